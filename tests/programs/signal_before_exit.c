// A child gets a signal, and the same again while it computes on after the handler has returned. The next call that it makes is
// its last one. Both handlers run, unless the second signal comes too late.
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "test.h"

enum { kRounds = 30, kComputed = 4000000 };

static int said[2];
static volatile sig_atomic_t handled;

static void on_signal(int number) {
  (void)number;
  handled++;
  write_all(said[1], "h", 1);
}

static void compute_between_signals(void) {
  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL));
  write_all(said[1], "r", 1);
  while (!handled) continue;
  for (volatile int i = 0; i < kComputed; i++) continue;
  _exit(0);
}

int main(void) {
  int both = 0;
  for (int round = 0; round < kRounds; round++) {
    MUST(pipe(said));
    const pid_t child = MUST(fork());
    if (child == 0) compute_between_signals();
    char byte;
    read_all(said[0], &byte, 1);
    MUST(nanosleep(&(struct timespec){0, 300000}, NULL));
    MUST(kill(child, SIGUSR1));
    read_all(said[0], &byte, 1);
    MUST(kill(child, SIGUSR1));
    wait_for_exit(child, 0);
    MUST(close(said[1]));
    both += read(said[0], &byte, 1) == 1;
    MUST(close(said[0]));
  }
  CHECK(both > 0);
  return ok("both");
}
