// A fixed amount of computation over 8 MB with hardly any events, to measure what recording costs a program that only computes.
// usage: cpu_bound STEPS     a step is some 20 ms of CPU time and one syscall
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kWords = 1 << 20 };
static uint64_t memory[kWords];

int main(int argc, char** argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 100;
  uint64_t x = 1;
  for (int step = 0; step < steps; step++) {
    for (int i = 0; i < 5000000; i++) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      memory[x % kWords / 64 + (uint64_t)(step % 64) * (kWords / 64)] += x;
    }
    syscall(SYS_getppid);
  }
  uint64_t sum = 0;
  for (int i = 0; i < kWords; i++) sum = sum * 31 + memory[i];
  printf("ok %016lx\n", sum);
  return 0;
}
