// Signals that are pending when they are unblocked have all been handled when the call returns, however often the thread is preempted
// meanwhile for other threads of its process.
// period: 1ms
#include "test.h"

#include <sched.h>

enum { ROUNDS = 60, SIGNALS = 12 };

static volatile sig_atomic_t handled;
static volatile int done;

static void on_signal(int signal) {
  (void)signal;
  for (volatile int i = 0; i < 2000; i++) continue;
  handled++;
}

static void* disturb(void* unused) {
  while (!done) {
    for (volatile int i = 0; i < 20000; i++) continue;
    getppid();
  }
  return unused;
}

int main(void) {
  const int signal_number = SIGRTMIN + 3;
  struct sigaction action = {.sa_handler = on_signal};
  MUST(sigaction(signal_number, &action, NULL));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) MUST0(pthread_create(&threads[i], NULL, disturb, NULL));
  for (int round = 1; round <= ROUNDS; round++) {
    MUST0(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < SIGNALS; i++) MUST0(pthread_kill(pthread_self(), signal_number));
    MUST0(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    CHECK(handled == round * SIGNALS);
  }
  done = 1;
  for (int i = 0; i < 2; i++) MUST0(pthread_join(threads[i], NULL));
  return ok("%d signals", (int)handled);
}
