// A thread computes in loops and clears memory while others come to wait for it, and is sent a signal that is ignored all the time.
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "test.h"

enum { kSleeps = 60, kBytes = 1 << 20 };

static atomic_int stopped;
static char cleared[kBytes];

static void* work(void* unused) {
  for (unsigned rounds = 0; !atomic_load(&stopped); rounds++) {
    memset(cleared, (int)(rounds % 100), kBytes);
    CHECK(cleared[rounds % kBytes] == (char)(rounds % 100));
    for (volatile int i = 0; i < 10000 && !stopped; i++) continue;
  }
  return unused;
}

static void* sleep_again(void* unused) {
  for (int i = 0; i < kSleeps; i++) MUST(nanosleep(&(struct timespec){0, 3000000}, NULL));
  return unused;
}

int main(void) {
  const pid_t parent = getpid();
  const pid_t sender = MUST(fork());
  while (sender == 0) {
    nanosleep(&(struct timespec){0, 2500000}, NULL);
    if (getppid() != parent || kill(parent, SIGWINCH) != 0) _exit(0);
  }
  pthread_t computing, sleeping;
  MUST0(pthread_create(&computing, NULL, work, NULL));
  MUST0(pthread_create(&sleeping, NULL, sleep_again, NULL));
  MUST0(pthread_join(sleeping, NULL));
  atomic_store(&stopped, 1);
  MUST0(pthread_join(computing, NULL));
  MUST(kill(sender, SIGKILL));
  MUST(waitpid(sender, NULL, 0));
  return ok("%d sleeps", kSleeps);
}
