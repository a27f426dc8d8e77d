// SIGCONT comes while the program computes, and blocks all other signals. Its handler runs all the same, and nothing else is pending then.
#include "test.h"

static volatile sig_atomic_t continued;
static void note_continued(int signal) { (void)signal, continued++; }

// The C library leaves some signals out of all masks.
static void block_all_but_continue(int by_call) {
  sigset_t set;
  sigfillset(&set);
  sigdelset(&set, SIGCONT);
  MUST(sigprocmask(SIG_SETMASK, &set, NULL));
  const uint64_t all = ~(UINT64_C(1) << (SIGCONT - 1));
  if (by_call) MUST(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all));
}

static void is_continued(int by_call) {
  continued = 0;
  block_all_but_continue(by_call);
  const pid_t parent = getpid(), child = MUST(fork());
  if (child == 0) {
    usleep(10000);
    MUST(kill(parent, SIGCONT));
    _exit(0);
  }
  for (int i = 0; i < 5000 && !continued; i++) compute(1, 10);
  CHECK(continued == 1);
  wait_for_exit(child, 0);
  sigset_t pending;
  MUST(sigpending(&pending));
  for (int signal = 1; signal <= SIGRTMAX; signal++) CHECK(signal == SIGCHLD || sigismember(&pending, signal) != 1);
}

int main(void) {
  MUST(sigaction(SIGCONT, &(struct sigaction){.sa_handler = note_continued}, NULL));
  is_continued(0);
  is_continued(1);
  return ok("continued");
}
