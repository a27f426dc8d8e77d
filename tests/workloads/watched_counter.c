// A counter in a file that two processes have mapped: `count FILE` increments it for ever, `watch FILE TIMES` writes what it reads there to standard
// output, with work between. If only the second one is recorded, what it reads changes at no event.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int file = open(argv[2], O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, 4096) != 0) return 2;
  volatile uint64_t* const counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counter == MAP_FAILED) return 2;
  if (strcmp(argv[1], "count") == 0) {
    for (;;) ++*counter;
  }
  const int times = argc > 3 ? atoi(argv[3]) : 100;
  for (int i = 0; i < times; i++) {
    volatile uint64_t x = 1;
    for (int j = 0; j < 3000000; j++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    const uint64_t seen = *counter;
    if (write(1, &seen, sizeof seen) != sizeof seen) return 1;
  }
  return 0;
}
