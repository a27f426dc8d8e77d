// Readers and writers: readers never see a half-written pair.
#include "test.h"

#include <time.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static volatile uint64_t left, right;
static uint64_t reads;

static void* write_pairs(void* unused) {
  (void)unused;
  for (int i = 0; i < 300; i++) {
    MUST0(pthread_rwlock_wrlock(&lock));
    left = left + 1;
    if (i % 20 == 0) nanosleep(&(struct timespec){0, 1000}, NULL);
    right = right + 1;
    MUST0(pthread_rwlock_unlock(&lock));
    if (i % 10 == 0) sched_yield();
  }
  return NULL;
}
static void* read_pairs(void* unused) {
  (void)unused;
  uint64_t last = 0;
  while (last < 600) {
    MUST0(pthread_rwlock_rdlock(&lock));
    CHECK(left == right && left >= last);
    last = left;
    MUST0(pthread_rwlock_unlock(&lock));
    __atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
    sched_yield();
  }
  return NULL;
}

int main(void) {
  pthread_t ids[5];
  for (int i = 0; i < 3; i++) MUST0(pthread_create(&ids[i], NULL, read_pairs, NULL));
  for (int i = 3; i < 5; i++) MUST0(pthread_create(&ids[i], NULL, write_pairs, NULL));
  for (int i = 0; i < 5; i++) MUST0(pthread_join(ids[i], NULL));
  CHECK(left == 600 && right == 600);
  return ok("%lu reads", reads);
}
