// images: 3
// Threads change memory at the end of their turns: the other threads, and checkpoints, find what such a call has done.
#include "test.h"

#include <sys/mman.h>

enum { kThreads = 3, kRounds = 20, kSize = 1 << 18 };

static char* map(void) {
  char* const memory = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static void* work(void* argument) {
  const char mark = (char)(1 + (intptr_t)argument);
  char* const own = map();
  uint64_t value = (uint64_t)mark;
  for (int round = 0; round < kRounds; round++) {
    memset(own, mark, kSize);
    value = compute(value, 60);
    CHECK(own[0] == mark && own[kSize - 1] == mark);
    MUST(madvise(own, kSize, MADV_DONTNEED));
    CHECK(own[0] == 0 && own[kSize - 1] == 0);
    // Possibly at the address of another thread's former memory.
    char* const other = map();
    memset(other, mark, kSize);
    value = compute(value, 60);
    for (int i = 0; i < kSize; i += 64) CHECK(other[i] == mark);
    MUST(munmap(other, kSize));
  }
  return (void*)(intptr_t)(value != 0);
}

int main(void) {
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; i++) MUST0(pthread_create(&threads[i], NULL, work, (void*)i));
  for (int i = 0; i < kThreads; i++) {
    void* result;
    MUST0(pthread_join(threads[i], &result));
    CHECK(result != NULL);
  }
  return ok("%d threads", kThreads);
}
