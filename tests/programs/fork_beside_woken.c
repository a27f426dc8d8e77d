// A thread waits with a timeout, and is woken by signals that it ignores. A child that is forked meanwhile finds the timeout unchanged.
// period: 1ms
#include "test.h"

#include <time.h>

enum { kChildren = 10 };

static const struct timespec kLimit = {30, 0};
static struct timespec limit;

static void* wait_long(void* unused) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  int got;
  while ((got = sigtimedwait(&set, NULL, &limit)) == -1) CHECK(errno == EINTR);
  CHECK(got == SIGUSR1);
  return unused;
}

int main(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  MUST0(pthread_sigmask(SIG_BLOCK, &set, NULL));
  limit = kLimit;
  pthread_t waiter;
  MUST0(pthread_create(&waiter, NULL, wait_long, NULL));
  const struct timespec pause = {0, 2000000};
  for (int i = 0; i < kChildren; i++) {
    MUST(nanosleep(&pause, NULL));
    MUST0(pthread_kill(waiter, SIGWINCH));
    MUST(nanosleep(&pause, NULL));
    const pid_t child = MUST(fork());
    if (child == 0) {
      for (int calls = 0; calls < 100; calls++) MUST(getppid());
      _exit(memcmp(&limit, &kLimit, sizeof limit) == 0 ? 3 : 4);
    }
    wait_for_exit(child, 3);
  }
  MUST0(pthread_kill(waiter, SIGUSR1));
  MUST0(pthread_join(waiter, NULL));
  return ok("%d", kChildren);
}
