// A tree of processes, three wide and three deep, each of which reports to its parent through a pipe.
#include "test.h"

enum { kWidth = 3, kDepth = 3 };

static int grow(int depth) {
  (void)compute(1, 3);
  if (depth == 0) return 1;
  int sum = 1, ends[2];
  MUST(pipe(ends));
  pid_t children[kWidth];
  for (int i = 0; i < kWidth; i++) {
    if ((children[i] = MUST(fork())) == 0) {
      const int below = grow(depth - 1);
      write_all(ends[1], &below, sizeof below);
      _exit(depth);
    }
  }
  for (int i = 0; i < kWidth; i++) {
    int below;
    read_all(ends[0], &below, sizeof below);
    sum += below;
  }
  for (int i = kWidth - 1; i >= 0; i--) wait_for_exit(children[i], depth);
  close(ends[0]), close(ends[1]);
  return sum;
}

int main(void) {
  const int processes = grow(kDepth);
  CHECK(processes == 1 + 3 + 9 + 27);
  return ok("%d processes", processes);
}
