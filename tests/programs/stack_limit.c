// A stack overflows at the same depth in a replay: by the limit that the program was started with, by limits that it sets, where
// something else is mapped, and in a child that dies of it. What the kernel writes into untouched stack makes it grow too.
#include "test.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>

static volatile uintptr_t deepest;
static volatile long depth;
static sigjmp_buf over;

#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) static int descend(int n) {
  volatile char frame[200];
  frame[0] = (char)n;
  deepest = (uintptr_t)frame;
  depth = n;
  return descend(n + 1) + frame[0];
}

static void on_fault(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)context;
  const uintptr_t at = (uintptr_t)info->si_addr;
  NOTE(at);
  siglongjmp(over, 1);
}

static long overflow(void) {
  if (sigsetjmp(over, 1) == 0) descend(0);
  const long reached = depth;
  NOTE(reached);
  return reached;
}

static void limit(rlim_t bytes) {
  struct rlimit value;
  MUST(getrlimit(RLIMIT_STACK, &value));
  value.rlim_cur = bytes;
  MUST(setrlimit(RLIMIT_STACK, &value));
}

__attribute__((noinline)) static void read_far_below(void) {
  char buffer[400000];
  const int zero = MUST(open("/dev/zero", O_RDONLY));
  CHECK(read(zero, buffer, 100) == 100);
  NOTE(buffer[50]);
  CHECK(read(zero, buffer, sizeof buffer) == sizeof buffer);
  NOTE(buffer[sizeof buffer - 1]);
  MUST(close(zero));
}

int main(void) {
  static char handler_stack[65536];
  const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
  MUST(sigaltstack(&stack, NULL));
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_ONSTACK | SA_SIGINFO};
  MUST(sigaction(SIGSEGV, &action, NULL));
  read_far_below();
  limit(1 << 20);
  const long small = overflow();
  limit(2 << 20);
  const long large = overflow();
  CHECK(small > 1000 && large > small + 1000);
  struct rlimit value = {0, 0};
  MUST(prlimit(getpid(), RLIMIT_STACK, NULL, &value));
  value.rlim_cur = 3 << 20;
  MUST(prlimit(getpid(), RLIMIT_STACK, &value, NULL));
  const long larger = overflow();
  CHECK(larger > large + 1000);
  const pid_t child = MUST(fork());
  if (child == 0) {
    limit(4 << 20);
    signal(SIGSEGV, SIG_DFL);
    descend(0);
  }
  int status = 0;
  CHECK(MUST(waitpid(child, &status, 0)) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  // Something is mapped below: the stack ends a gap above that, before its limit.
  limit(8 << 20);
  char* const below = (char*)((deepest & ~(uintptr_t)0xfff) - (2 << 20));
  MUST(mmap(below, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  const long gap = overflow();
  CHECK(gap > larger && deepest > (uintptr_t)below);
  pass_checkpoints();
  MUST(munmap(below, 4096));
  CHECK(overflow() > gap);
  return ok("%016llx", (unsigned long long)noted);
}
