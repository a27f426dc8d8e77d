// sigsuspend and sigtimedwait between two processes that take turns by signals alone.
#include "test.h"

#include <time.h>

enum { kTurns = 100 };
static volatile sig_atomic_t turns;
static void count(int signal) { (void)signal, turns++; }

static void play(pid_t other, int first) {
  sigset_t none;
  sigemptyset(&none);
  if (first) MUST(kill(other, SIGUSR1));
  for (int i = 1; i <= kTurns; i++) {
    while (turns < i) CHECK(sigsuspend(&none) == -1 && errno == EINTR);
    if (i < kTurns || !first) MUST(kill(other, SIGUSR1));
  }
}

int main(void) {
  struct sigaction action = {.sa_handler = count};
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigaddset(&blocked, SIGUSR2);
  MUST(sigprocmask(SIG_BLOCK, &blocked, NULL));
  MUST(sigaction(SIGUSR1, &action, NULL));
  const pid_t child = MUST(fork());
  play(child ? child : getppid(), child != 0);
  if (child == 0) _exit(turns == kTurns ? 0 : 1);
  wait_for_exit(child, 0);
  CHECK(turns == kTurns);

  sigset_t other;
  sigemptyset(&other);
  sigaddset(&other, SIGUSR2);
  const struct timespec soon = {0, 20000000};
  CHECK(sigtimedwait(&other, NULL, &soon) == -1 && errno == EAGAIN);
  MUST(kill(getpid(), SIGUSR2));
  CHECK(sigtimedwait(&other, NULL, &soon) == SIGUSR2);
  return ok("%d turns", kTurns);
}
