// Memory that is missing though it is mapped, or though a stack could grow: a file system is full, there are no huge pages, or a limit is reached that
// no replay has. It is missing in a replay, too, at the same place.
// images: 1
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

static sigjmp_buf after;
static volatile long depth;

static void on_fault(int signal, siginfo_t* info, void* context) {
  (void)context;
  const uintptr_t at = (uintptr_t)info->si_addr;
  NOTE(at), NOTE(info->si_code);
  siglongjmp(after, signal);
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) static int descend(int n) {
  volatile char frame[200];
  frame[0] = (char)n;
  depth = n;
  return descend(n + 1) + frame[0];
}

static long overflow(void) {
  if (sigsetjmp(after, 1) == 0) descend(0);
  const long reached = depth;
  NOTE(reached);
  return reached;
}

static void limit(pid_t whose, __rlimit_resource_t resource, rlim_t bytes) {
  struct rlimit value;
  MUST(prlimit(whose, resource, NULL, &value));
  value.rlim_cur = bytes;
  MUST(prlimit(whose, resource, &value, NULL));
}

static void* limit_stack(void* unused) {
  limit(gettid(), RLIMIT_STACK, 1 << 20);
  return unused;
}

// The limit of a process's stack can be set by the number of any of its threads, and by another process.
static void limits_set_by_others(void) {
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, limit_stack, NULL));
  MUST0(pthread_join(thread, NULL));
  const long small = overflow();
  const pid_t parent = getpid();
  const pid_t child = MUST(fork());
  if (child == 0) {
    limit(parent, RLIMIT_STACK, 2 << 20);
    _exit(0);
  }
  int status = 0;
  CHECK(MUST(waitpid(child, &status, 0)) == child && status == 0);
  CHECK(overflow() > small + 1000);
}

// Writes to a page at a time, to the last, or to where one is missing; returns how many there were.
static size_t fill_pages(char* memory, size_t size, size_t page) {
  volatile size_t at = 0;
  if (sigsetjmp(after, 1) == 0) {
    for (; at < size; at += page) memory[at] = 1;
  }
  const size_t there = at / page;
  NOTE(there);
  return there;
}

static void write_to(const char* path, const char* text) {
  const int file = MUST(open(path, O_WRONLY));
  MUST(write(file, text, strlen(text)));
  MUST(close(file));
}

static void full_file_system(void) {
  char user[20], group[20];
  snprintf(user, sizeof user, "0 %d 1", (int)geteuid());
  snprintf(group, sizeof group, "0 %d 1", (int)getegid());
  if (!MAY(unshare(CLONE_NEWUSER | CLONE_NEWNS), EINVAL, ENOSPC)) return;
  write_to("/proc/self/uid_map", user), write_to("/proc/self/setgroups", "deny"), write_to("/proc/self/gid_map", group);
  MUST(mkdir("full", 0700));
  if (!MAY(mount("none", "full", "tmpfs", 0, "size=256k"))) return;
  const size_t size = 1 << 20;
  const int file = MUST(open("full/file", O_RDWR | O_CREAT, 0600));
  MUST(ftruncate(file, (off_t)size));
  char* const shared = MUST(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  const size_t there = fill_pages(shared, size, 4096);
  CHECK(there > 10 && there < 256);
  pass_checkpoints();
  CHECK(fill_pages(shared, size, 4096) == there);
  MUST(munmap(shared, (there - 10) * 4096));
  MUST(ftruncate(file, 10 * 4096));
  MUST(ftruncate(file, (off_t)size));
  CHECK(fill_pages(shared + (there - 10) * 4096, 4096, 4096) == 1);
}

static void no_huge_pages(void) {
  const size_t page = 2 << 20, size = (size_t)1 << 40;
  char* const memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  CHECK(fill_pages(memory, 1, page) <= 1);
  MUST(munmap(memory, size));
}

// A child dies of it, because its stack would have to grow for the handler, too.
static void full_address_space(void) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    limit(0, RLIMIT_AS, 4096);  // it has more already
    overflow();
    signal(SIGSEGV, (void (*)(int))_exit);
    descend(0);
  }
  int status = 0;
  CHECK(MUST(waitpid(child, &status, 0)) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

int main(void) {
  static char handler_stack[65536];
  const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
  MUST(sigaltstack(&stack, NULL));
  const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_ONSTACK | SA_SIGINFO};
  MUST(sigaction(SIGSEGV, &action, NULL));
  MUST(sigaction(SIGBUS, &action, NULL));
  limits_set_by_others();
  full_address_space();
  no_huge_pages();
  full_file_system();
  return ok("%016llx", (unsigned long long)noted);
}
