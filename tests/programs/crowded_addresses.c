// Memory at addresses that the recorder and the replayer would like to use, mapped and unmapped between many small calls; some of it is
// refused while the in-process tier records.
#include "test.h"

#include <sys/mman.h>

enum { kCalls = 300, kLength = 1 << 16 };

static const uintptr_t addresses[] = {0x6f000000, 0x6f020000, 0x6f100000, 1ull << 36, 1ull << 37};
enum { kAddresses = sizeof addresses / sizeof *addresses };

static void* map_at(uintptr_t address) {
  void* want = (void*)address;
  return mmap(want, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void many_calls(const int* pipe) {
  char byte = 'x';
  for (int i = 0; i < kCalls; i++) {
    CHECK(write(pipe[1], &byte, 1) == 1 && read(pipe[0], &byte, 1) == 1 && byte == 'x');
    CHECK(getppid() > 0);
  }
}

int main(void) {
  int pipe_ends[2], there = 0;
  MUST(pipe(pipe_ends));
  many_calls(pipe_ends);
  for (int i = 0; i < kAddresses; i++) {
    unsigned char* memory = map_at(addresses[i]);
    many_calls(pipe_ends);
    if (memory == MAP_FAILED) continue;
    there++;
    memset(memory, i + 1, kLength);
    many_calls(pipe_ends);
    pass_checkpoints();
    for (int k = 0; k < kLength; k++) CHECK(memory[k] == i + 1);
    if (i % 2) MUST(munmap(memory, kLength));
    many_calls(pipe_ends);
  }
  CHECK(there >= 2);
  return ok("%d of %d", there, kAddresses);
}
