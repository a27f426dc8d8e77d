// images: 4
// About half a second of CPU time in each of two processes that send each other a small message every millisecond: checkpoints fall
// between messages, and messages cross checkpoints.
#include "test.h"

enum { kSteps = 500, kPages = 64 };
static uint64_t state[kPages][512];

static uint64_t step(uint64_t input, int i) {
  uint64_t* page = state[i % kPages];
  page[i % 512] ^= compute(input + page[0], 10);
  return page[i % 512] * 0x9e3779b97f4a7c15;
}

// The same computation by one process: both must arrive at this result.
static uint64_t expected(void) {
  static uint64_t other[kPages][512];
  uint64_t value = 1;
  for (int i = 0; i < kSteps; i++) {
    value = step(value, i);
    uint64_t* page = other[i % kPages];
    page[i % 512] ^= compute(value + page[0], 10);
    value = page[i % 512] * 0x9e3779b97f4a7c15;
  }
  return value;
}

int main(int argc, char** argv) {
  (void)argv;
  int ends[2];
  uint64_t value = 1;
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  const pid_t child = MUST(fork());
  for (int i = 0; i < kSteps; i++) {
    if (child) {
      value = step(value, i);
      write_all(ends[0], &value, sizeof value);
      read_all(ends[0], &value, sizeof value);
    } else {
      read_all(ends[1], &value, sizeof value);
      value = step(value, i);
      write_all(ends[1], &value, sizeof value);
    }
  }
  if (child == 0) _exit(0);
  wait_for_exit(child, 0);
  if (argc > 1) {
    memset(state, 0, sizeof state);
    CHECK(value == expected());
  }
  return ok("%016lx", value);
}
