// Signals that are pending when they are unblocked interrupt each other's handlers before these have begun: the last one runs first.
#include "test.h"

enum { kRounds = 5 };
static const int signals[] = {SIGUSR1, SIGUSR2, SIGTERM};  // in the order of their numbers
static volatile sig_atomic_t order[3], steps;
static void note(int signal) { order[steps++] = signal; }

int main(void) {
  sigset_t all, old;
  sigfillset(&all);
  for (int i = 0; i < 3; i++) MUST(sigaction(signals[i], &(struct sigaction){.sa_handler = note}, NULL));
  for (int round = 0; round < kRounds; round++) {
    steps = 0;
    MUST(sigprocmask(SIG_BLOCK, &all, &old));
    for (int i = 0; i < 3; i++) MUST(raise(signals[i]));
    MUST(sigprocmask(SIG_SETMASK, &old, NULL));
    CHECK(steps == 3 && order[0] == SIGTERM && order[1] == SIGUSR2 && order[2] == SIGUSR1);
  }
  return ok("%d rounds", kRounds);
}
