// A thread spins, without a system call, until another one has done something. Each signal comes before the previous one was handled.
// period: 200us
#include "test.h"

#include <sys/time.h>

enum { kTurns = 10 };

static volatile int turn;
static volatile sig_atomic_t alarms;
static void on_alarm(int signal) {
  (void)signal;
  alarms++;
}

static void play(int parity) {
  for (int i = 0; i < kTurns; i++) {
    while (turn % 2 != parity) continue;
    turn++;
  }
}

static void* play_odd(void* unused) {
  play(1);
  return unused;
}

int main(void) {
  struct sigaction action = {.sa_handler = on_alarm};
  MUST(sigaction(SIGALRM, &action, NULL));
  const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
  pthread_t other;
  MUST0(pthread_create(&other, NULL, play_odd, NULL));
  MUST(setitimer(ITIMER_REAL, &often, NULL));
  play(0);
  MUST(setitimer(ITIMER_REAL, &never, NULL));
  MUST0(pthread_join(other, NULL));
  CHECK(turn == 2 * kTurns);
  return ok("%d", kTurns);
}
