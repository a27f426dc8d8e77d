// A signal that comes at the moment when a computing thread is stopped for a checkpoint is handled there, wherever the thread has got to
// since its last call.
// period: 300us
#include "test.h"

#include <sys/time.h>

enum { ROUNDS = 600 };

static volatile sig_atomic_t handled;

static void on_alarm(int signal) {
  (void)signal;
  handled++;
}

// Returns to its caller's address, which is on the stack only while it runs.
__attribute__((noinline)) static unsigned spend(unsigned steps, unsigned x) {
  for (unsigned i = 0; i < steps; i++) x ^= x << 13, x ^= x >> 17, x ^= x << 5;
  return x;
}

int main(void) {
  struct sigaction action = {.sa_handler = on_alarm};
  MUST(sigaction(SIGALRM, &action, NULL));
  const struct itimerval often = {{0, 2000}, {0, 900}}, never = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_REAL, &often, NULL));
  unsigned x = 1;
  for (int round = 0; round < ROUNDS; round++) {
    x = spend(100000 + x % 7, x);
    getppid();
  }
  MUST(setitimer(ITIMER_REAL, &never, NULL));
  CHECK(handled > 0);
  return ok("%u", x);
}
