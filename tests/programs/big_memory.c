// args: 64 250
// Touches N MB, then works for M ms of CPU time with an event every half millisecond, changing some pages, and checks all of it.
// tests/bench measures its pauses at checkpoints. With a third argument, pages are full of numbers that cannot be compressed.
#include "test.h"

#include <sys/mman.h>
#include <time.h>

static double cpu_s(void) {
  struct timespec at;
  MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at));
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

int main(int argc, char** argv) {
  const size_t pages = (size_t)(argc > 1 ? atoi(argv[1]) : 64) * 256;
  const double work_s = (argc > 2 ? atoi(argv[2]) : 250) * 1e-3;
  const size_t words = 512;
  uint64_t* memory =
      (uint64_t*)MUST(mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  uint64_t noise = 88172645463325252u;
  for (size_t i = 0; i < (argc > 3 ? pages * words : 0); i++) {
    noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
    memory[i] = noise;
  }
  for (size_t i = 0; i < pages; i++) memory[i * words] = i * 3 + 1, memory[i * words + 1] = 0, memory[i * words + 511] = i;

  uint64_t writes = 0;
  for (const double start_s = cpu_s(); cpu_s() - start_s < work_s; writes++) {
    memory[(writes * 7919) % pages * words + 1]++;
    (void)compute(writes, 5);
  }

  uint64_t found = 0;
  for (size_t i = 0; i < pages; i++) {
    CHECK(memory[i * words] == i * 3 + 1 && memory[i * words + 511] == i);
    found += memory[i * words + 1];
  }
  CHECK(found == writes);
  return ok("%zu MB", pages / 256);
}
