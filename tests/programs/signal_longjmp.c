// Leaving a handler by siglongjmp, many times, from a computation, from a system call and from an alternate stack.
#include "test.h"

#include <setjmp.h>
#include <sys/time.h>

static sigjmp_buf back;
static char stack[65536];
static void jump(int signal) { siglongjmp(back, signal); }

int main(void) {
  volatile int jumps = 0;
  MUST(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL));
  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump, .sa_flags = SA_ONSTACK}, NULL));
  MUST(sigaction(SIGALRM, &(struct sigaction){.sa_handler = jump}, NULL));
  for (volatile int i = 0; i < 200; i++) {
    if (sigsetjmp(back, 1) == 0) {
      MUST(kill(getpid(), SIGUSR1));
      CHECK(!"reached");
    }
    jumps++;
  }
  pass_checkpoints();
  int ends[2];
  MUST(pipe(ends));
  for (volatile int i = 0; i < 5; i++) {
    if (sigsetjmp(back, 1) == 0) {
      MUST(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 10000}}, NULL));
      char byte;
      (void)!read(ends[0], &byte, 1);
      CHECK(!"reached");
    }
    jumps++;
  }
  CHECK(jumps == 205);
  return ok("%d jumps", jumps);
}
