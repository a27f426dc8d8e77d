// Twenty threads that lock, allocate, communicate through pipes and compute, all at once.
#include "test.h"

enum { kThreads = 20, kRounds = 60 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static uint64_t total, digest;

static void* stress(void* number) {
  const uint64_t self = (uint64_t)(uintptr_t)number;
  for (uint64_t i = 0; i < kRounds; i++) {
    char* block = (char*)malloc(1000 + 500 * (i % 7));
    CHECK(block);
    fill(block, 1000, (unsigned)(self + i));
    write_all(ends[1], &self, sizeof self);
    (void)compute(self, 2);
    uint64_t other;
    read_all(ends[0], &other, sizeof other);
    CHECK(is_filled(block, 1000, (unsigned)(self + i)));
    free(block);
    MUST0(pthread_mutex_lock(&mutex));
    total += other;
    digest = digest * 1000003 + other;
    MUST0(pthread_mutex_unlock(&mutex));
  }
  return NULL;
}

int main(void) {
  pthread_t ids[kThreads];
  MUST(pipe(ends));
  for (uintptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&ids[i], NULL, stress, (void*)i));
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(ids[i], NULL));
  CHECK(total == (uint64_t)kRounds * kThreads * (kThreads - 1) / 2);
  return ok("digest %016lx", digest);
}
