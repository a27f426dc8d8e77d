// Mutexes with priority inheritance: the kernel writes their words, for threads that wait, that unlock and that end.
#include <linux/futex.h>
#include <time.h>

#include "test.h"

enum { kThreads = 4, kRounds = 200 };

static pthread_mutex_t mutex;
static int counter, order[kThreads * kRounds];

static void* add(void* number) {
  for (int i = 0; i < kRounds; i++) {
    MUST0(pthread_mutex_lock(&mutex));
    order[counter++] = (int)(intptr_t)number;
    if (i % 16 == 0) syscall(SYS_sched_yield);  // others find it locked
    MUST0(pthread_mutex_unlock(&mutex));
  }
  return NULL;
}

static int ready[2];
static void* try_in_vain(void* unused) {
  CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
  struct timespec until;
  MUST(clock_gettime(CLOCK_REALTIME, &until));
  until.tv_nsec += 20000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  CHECK(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
  CHECK(write(ready[1], "t", 1) == 1);
  MUST0(pthread_mutex_lock(&mutex));
  MUST0(pthread_mutex_unlock(&mutex));
  return unused;
}

static pthread_mutex_t robust;
static void* die_with_it(void* unused) {
  MUST0(pthread_mutex_lock(&robust));
  CHECK(write(ready[1], "d", 1) == 1);
  compute(1, 20);
  return unused;
}

static long futex(uint32_t* word, int operation) {
  return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0);
}

int main(void) {
  static uint32_t word;
  const uint32_t self = (uint32_t)syscall(SYS_gettid);
  MUST(futex(&word, FUTEX_LOCK_PI));
  CHECK(word == self);
  FAILS(futex(&word, FUTEX_LOCK_PI), EDEADLK);
  FAILS(futex(&word, FUTEX_TRYLOCK_PI), EDEADLK);
  MUST(futex(&word, FUTEX_UNLOCK_PI));
  CHECK(word == 0);
  MUST(futex(&word, FUTEX_TRYLOCK_PI));
  CHECK(word == self);
  MUST(futex(&word, FUTEX_UNLOCK_PI));
  FAILS(futex(&word, FUTEX_UNLOCK_PI), EPERM);
  if (MAY(futex(&word, 13 /* FUTEX_LOCK_PI2 */))) MUST(futex(&word, FUTEX_UNLOCK_PI));
  NOTE(word);

  pthread_mutexattr_t kind;
  MUST0(pthread_mutexattr_init(&kind));
  MUST0(pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT));
  MUST0(pthread_mutex_init(&mutex, &kind));
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&threads[i], NULL, add, (void*)i));
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(threads[i], NULL));
  CHECK(counter == kThreads * kRounds);
  NOTE(order);
  char byte = 0;
  MUST(pipe(ready));
  MUST0(pthread_mutex_lock(&mutex));
  MUST0(pthread_create(&threads[0], NULL, try_in_vain, NULL));
  CHECK(read(ready[0], &byte, 1) == 1);
  compute(1, 50);
  MUST0(pthread_mutex_unlock(&mutex));
  MUST0(pthread_join(threads[0], NULL));
  NOTE(mutex);

  MUST0(pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST));
  MUST0(pthread_mutex_init(&robust, &kind));
  MUST0(pthread_create(&threads[0], NULL, die_with_it, NULL));
  CHECK(read(ready[0], &byte, 1) == 1);
  CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
  MUST0(pthread_mutex_consistent(&robust));
  MUST0(pthread_mutex_unlock(&robust));
  MUST0(pthread_join(threads[0], NULL));
  NOTE(robust);
  return ok("%llx", (unsigned long long)noted);
}
