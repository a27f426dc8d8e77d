// Threads: made, joined, named, with large results and many generations.
#include "test.h"

enum { kThreads = 8, kGenerations = 5 };

static void* square(void* number) {
  const uintptr_t n = (uintptr_t)number;
  MUST0(pthread_setname_np(pthread_self(), "square"));
  for (int i = 0; i < 10; i++) (void)compute(n, 1), CHECK(getppid() >= 0);
  return (void*)(n * n);
}

int main(void) {
  uintptr_t sum = 0, expected = 0;
  for (uintptr_t g = 0; g < kGenerations; g++) {
    pthread_t ids[kThreads];
    for (uintptr_t i = 0; i < kThreads; i++) {
      MUST0(pthread_create(&ids[i], NULL, square, (void*)(g * kThreads + i)));
      expected += (g * kThreads + i) * (g * kThreads + i);
    }
    for (int i = 0; i < kThreads; i++) {
      void* result;
      MUST0(pthread_join(ids[i], &result));
      sum += (uintptr_t)result;
    }
  }
  CHECK(sum == expected);
  return ok("sum %lu", (unsigned long)sum);
}
