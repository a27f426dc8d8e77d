// A thread waits for a signal. What wakes it before that is often meant for another thread: a signal to the process, which any thread may
// take.
// period: 200us
#include "test.h"

#include <sys/time.h>
#include <time.h>

enum { kSignals = 500, kSleepers = 3 };

static volatile sig_atomic_t alarms;
static void on_alarm(int signal) {
  (void)signal;
  alarms++;
}

static void* send_to(void* waiter) {
  for (int i = 1; i <= kSignals; i++) {
    const struct timespec pause = {0, 300000};
    CHECK(nanosleep(&pause, NULL) == 0 || errno == EINTR);
    MUST0(pthread_sigqueue(*(pthread_t*)waiter, SIGRTMIN, (union sigval){.sival_int = i}));
  }
  return NULL;
}

// These threads sleep, and so can be chosen to take a signal.
static void* sleep_on(void* end) {
  char byte;
  ssize_t got;
  while ((got = read(*(int*)end, &byte, 1)) == -1) CHECK(errno == EINTR);
  CHECK(got == 0);
  return NULL;
}

int main(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN);
  MUST0(pthread_sigmask(SIG_BLOCK, &set, NULL));
  struct sigaction action = {.sa_handler = on_alarm};
  MUST(sigaction(SIGALRM, &action, NULL));
  const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
  MUST(setitimer(ITIMER_REAL, &often, NULL));
  pthread_t self = pthread_self(), sender, sleepers[kSleepers];
  int ends[2];
  MUST(pipe(ends));
  for (int i = 0; i < kSleepers; i++) MUST0(pthread_create(&sleepers[i], NULL, sleep_on, ends));
  MUST0(pthread_create(&sender, NULL, send_to, &self));
  int last = 0;
  while (last < kSignals) {
    siginfo_t info;
    const struct timespec limit = {20, 0};
    const int got = sigtimedwait(&set, &info, &limit);
    CHECK(got == SIGRTMIN || (got == -1 && errno == EINTR));
    if (got == -1) continue;
    CHECK(info.si_value.sival_int == last + 1);
    last = info.si_value.sival_int;
  }
  MUST(setitimer(ITIMER_REAL, &never, NULL));
  MUST0(pthread_join(sender, NULL));
  MUST(close(ends[1]));
  for (int i = 0; i < kSleepers; i++) MUST0(pthread_join(sleepers[i], NULL));
  return ok("%d", kSignals);
}
