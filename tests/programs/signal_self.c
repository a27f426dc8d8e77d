// Signals that a program sends to itself: kill, raise, tgkill, sigqueue, with masks, pending sets and the contents of siginfo.
#include "test.h"

static volatile sig_atomic_t caught;
static volatile sig_atomic_t last_pid, last_code;

static void handler(int signal, siginfo_t* info, void* context) {
  (void)context;
  CHECK(info->si_signo == signal);
  last_pid = info->si_pid;
  last_code = info->si_code;
  caught++;
}

int main(void) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, old;
  MUST(sigaction(SIGUSR1, &action, NULL));
  MUST(sigaction(SIGRTMIN, &action, NULL));
  for (int i = 1; i <= 100; i++) {
    MUST(kill(getpid(), SIGUSR1));
    CHECK(caught == i && last_pid == getpid() && last_code == SI_USER);
  }
  pass_checkpoints();
  CHECK(raise(SIGUSR1) == 0 && caught == 101 && last_code == SI_TKILL);
  MUST(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
  CHECK(caught == 102);

  sigset_t blocked, pending, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigaddset(&blocked, SIGRTMIN);
  MUST(sigprocmask(SIG_BLOCK, &blocked, &before));
  for (int i = 0; i < 3; i++) {  // SIGUSR1 merges, a real-time signal queues
    MUST(kill(getpid(), SIGUSR1));
    MUST(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 40 + i}));
  }
  MUST(sigpending(&pending));
  CHECK(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGRTMIN) && !sigismember(&pending, SIGUSR2));
  pass_checkpoints();
  CHECK(caught == 102);
  MUST(sigprocmask(SIG_SETMASK, &before, NULL));
  CHECK(caught == 106);

  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_IGN}, &old));
  CHECK(old.sa_sigaction == handler);
  MUST(kill(getpid(), SIGUSR1));
  CHECK(caught == 106);

  MUST(sigprocmask(SIG_BLOCK, &blocked, NULL));
  MUST(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 7}));
  siginfo_t info;
  CHECK(sigwaitinfo(&blocked, &info) == SIGRTMIN && info.si_value.sival_int == 7 && caught == 106);
  return ok("%d caught", (int)caught);
}
