// Processes that share memory die by a signal while they hold robust mutexes there: those that wait for the mutexes, or lock them later,
// are told.
#include "test.h"

#include <sys/mman.h>

enum { kRounds = 4 };

struct shared {
  pthread_mutex_t mutex;
  volatile int held;
  int value;
};

static struct shared* shared;

static void hold_and_die(int how) {
  CHECK(pthread_mutex_lock(&shared->mutex) == 0);
  shared->held = 1;
  switch (how) {
    case 0:
      raise(SIGTERM);
      break;
    case 1:
      kill(getpid(), SIGKILL);
      break;
    case 2:
      *(volatile int*)0 = 1;
      break;
    default:
      for (;;) pause();
  }
  _exit(9);
}

int main(void) {
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  pthread_mutexattr_t attributes;
  MUST0(pthread_mutexattr_init(&attributes));
  MUST0(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
  MUST0(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
  MUST0(pthread_mutex_init(&shared->mutex, &attributes));
  const int signals[kRounds] = {SIGTERM, SIGKILL, SIGSEGV, SIGKILL};
  for (int round = 0; round < kRounds; round++) {
    shared->held = 0;
    const pid_t child = MUST(fork());
    if (child == 0) hold_and_die(round);
    while (!shared->held) sched_yield();
    if (round == kRounds - 1) MUST(kill(child, SIGKILL));
    int status;
    if (round % 2) CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == signals[round]);
    CHECK(pthread_mutex_lock(&shared->mutex) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&shared->mutex) == 0);
    shared->value++;
    MUST0(pthread_mutex_unlock(&shared->mutex));
    if (round % 2 == 0) CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == signals[round]);
  }
  CHECK(shared->value == kRounds);
  return ok("told");
}
