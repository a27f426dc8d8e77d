// Threads in lock step at a barrier; exactly one of them is the serial thread each time.
#include "test.h"

enum { kThreads = 4, kSteps = 100 };
static pthread_barrier_t barrier;
static int at[kThreads], serial;

static void* walk(void* number) {
  const int self = (int)(uintptr_t)number;
  for (int step = 1; step <= kSteps; step++) {
    at[self] = step;
    int result = pthread_barrier_wait(&barrier);
    if (result == PTHREAD_BARRIER_SERIAL_THREAD) serial++;
    for (int i = 0; i < kThreads; i++) CHECK(at[i] == step);
    if (self == step % kThreads) (void)compute(1, 10);
    result = pthread_barrier_wait(&barrier);
    CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
  }
  return NULL;
}

int main(void) {
  MUST0(pthread_barrier_init(&barrier, NULL, kThreads));
  pthread_t ids[kThreads];
  for (uintptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&ids[i], NULL, walk, (void*)i));
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(ids[i], NULL));
  CHECK(serial == kSteps);
  return ok("%d steps", kSteps);
}
