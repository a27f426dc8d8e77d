// Signals for whose frame the stack has no room become a SIGSEGV, for which there may be a handler on another stack.
#include "test.h"

#include <setjmp.h>
#include <sys/mman.h>

static char other_stack[65536];
static sigjmp_buf back;
static volatile sig_atomic_t faults;

static void never(int signal) {
  (void)signal;
  CHECK(!"it has no frame");
}
static void on_fault(int signal) {
  (void)signal;
  faults++;
  siglongjmp(back, 1);
}

// Sends the thread a signal while its stack ends right below.
static void signal_at_end_of_stack(char* stack) {
  const pid_t process = getpid(), thread = gettid();
  long call = SYS_tgkill;
  __asm__ volatile("mov %%rsp, %%rbx; mov %1, %%rsp; syscall; mov %%rbx, %%rsp"
                   : "+a"(call)
                   : "r"(stack), "D"(process), "S"(thread), "d"(SIGUSR1)
                   : "rbx", "rcx", "r11", "memory");
}

int main(void) {
  MUST(sigaltstack(&(stack_t){.ss_sp = other_stack, .ss_size = sizeof other_stack}, NULL));
  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = never}, NULL));
  MUST(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = on_fault, .sa_flags = SA_ONSTACK}, NULL));
  char* const memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  MUST(mprotect(memory, 4096, PROT_NONE));
  for (int i = 0; i < 5; i++) {
    if (sigsetjmp(back, 1) == 0) signal_at_end_of_stack(memory + 4096 + 256);
  }
  CHECK(faults == 5);

  const pid_t child = MUST(fork());
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    signal_at_end_of_stack(memory + 4096 + 256);
    _exit(1);
  }
  int status;
  MUST(waitpid(child, &status, 0));
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  return ok("%d faults", (int)faults);
}
