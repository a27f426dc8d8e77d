// A thread counts how often it comes round in loops in which it waits for another one; some take several checkpoint periods.
// period: 5ms
#include <stdatomic.h>
#include <time.h>

#include "test.h"

enum { kFlags = 30, kShort = 10 };

static atomic_int flag;

__attribute__((noinline)) static long wait_for(int wanted) {
  long rounds = 0;
  while (atomic_load_explicit(&flag, memory_order_relaxed) < wanted) {
    rounds++;
    __builtin_ia32_pause();
  }
  return rounds;
}

static void* set_flags(void* unused) {
  for (int i = 1; i <= kFlags; i++) {
    MUST(nanosleep(&(struct timespec){0, i < kShort ? 100000 : 25000000}, NULL));
    atomic_store(&flag, i);
  }
  return unused;
}

int main(void) {
  pthread_t setting;
  MUST0(pthread_create(&setting, NULL, set_flags, NULL));
  long rounds = 0;
  for (int i = 1; i <= kFlags; i++) rounds += wait_for(i);
  MUST0(pthread_join(setting, NULL));
  fprintf(stderr, "%ld rounds\n", rounds);
  return ok("%d flags", kFlags);
}
