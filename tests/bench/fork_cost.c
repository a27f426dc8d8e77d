// What fork(2) itself costs a process that has touched so many MB (argument), in nanoseconds: the median of 9. It is the least that a pause
// for a checkpoint can be.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRuns = 9 };

static long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const long x = *(const long*)a, y = *(const long*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  const size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) << 20;
  char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, size, MADV_NOHUGEPAGE);
  memset(memory, 1, size);
  long costs[kRuns];
  for (int i = 0; i < kRuns; i++) {
    const long start = now_ns();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    costs[i] = now_ns() - start;
    if (child < 0 || waitpid(child, NULL, 0) != child) return 1;
    memset(memory, i, size);
  }
  qsort(costs, kRuns, sizeof costs[0], compare);
  printf("%ld\n", costs[kRuns / 2]);
  return 0;
}
