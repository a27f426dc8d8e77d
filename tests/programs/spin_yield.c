// Spin locks and flags that are waited for with sched_yield alone.
#include "test.h"

enum { kThreads = 3, kRounds = 300 };
static pthread_spinlock_t lock;
static volatile int turn;
static uint64_t counter, yields;

static void* spin(void* number) {
  const int self = (int)(uintptr_t)number;
  for (int i = 0; i < kRounds; i++) {
    while (turn != self) sched_yield(), __atomic_add_fetch(&yields, 1, __ATOMIC_RELAXED);
    while (pthread_spin_trylock(&lock) != 0) sched_yield();
    counter++;
    MUST0(pthread_spin_unlock(&lock));
    turn = (self + 1) % kThreads;
  }
  return NULL;
}

int main(void) {
  pthread_t ids[kThreads];
  MUST0(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
  for (uintptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&ids[i], NULL, spin, (void*)i));
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(ids[i], NULL));
  CHECK(counter == kThreads * kRounds);
  return ok("%lu yields", yields);
}
