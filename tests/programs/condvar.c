// Producers and consumers with a mutex and condition variables; the order of items differs from run to run, their sum does not.
#include "test.h"

#include <time.h>

enum { kProducers = 3, kConsumers = 3, kItems = 400, kRoom = 5 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static uint64_t queue[kRoom], digest, sum;
static int count, taken;

static void* produce(void* number) {
  for (uint64_t i = 0; i < kItems; i++) {
    MUST0(pthread_mutex_lock(&mutex));
    while (count == kRoom) MUST0(pthread_cond_wait(&not_full, &mutex));
    queue[count++] = (uint64_t)(uintptr_t)number * kItems + i;
    MUST0(pthread_cond_signal(&not_empty));
    MUST0(pthread_mutex_unlock(&mutex));
  }
  return NULL;
}

static void* consume(void* unused) {
  (void)unused;
  for (;;) {
    MUST0(pthread_mutex_lock(&mutex));
    while (count == 0 && taken < kProducers * kItems) MUST0(pthread_cond_wait(&not_empty, &mutex));
    if (count == 0) break;
    const uint64_t item = queue[--count];
    if (++taken == kProducers * kItems) MUST0(pthread_cond_broadcast(&not_empty));
    digest = digest * 1000003 + item;
    sum += item;
    MUST0(pthread_cond_signal(&not_full));
    MUST0(pthread_mutex_unlock(&mutex));
    (void)compute(item, 1);
  }
  MUST0(pthread_mutex_unlock(&mutex));
  return NULL;
}

int main(void) {
  struct timespec soon;
  MUST(clock_gettime(CLOCK_REALTIME, &soon));
  soon.tv_nsec += 10000000;
  if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
  MUST0(pthread_mutex_lock(&mutex));
  int timed;
  do timed = pthread_cond_timedwait(&not_full, &mutex, &soon);
  while (timed == 0);
  CHECK(timed == ETIMEDOUT);
  MUST0(pthread_mutex_unlock(&mutex));

  pthread_t ids[kProducers + kConsumers];
  for (uintptr_t i = 0; i < kProducers; i++) MUST0(pthread_create(&ids[i], NULL, produce, (void*)i));
  for (int i = 0; i < kConsumers; i++) MUST0(pthread_create(&ids[kProducers + i], NULL, consume, NULL));
  for (int i = 0; i < kProducers + kConsumers; i++) MUST0(pthread_join(ids[i], NULL));
  const uint64_t n = kProducers * kItems;
  CHECK(taken == (int)n && sum == n * (n - 1) / 2);
  return ok("digest %016lx", digest);
}
