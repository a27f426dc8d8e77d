// images: 2
// Two processes and two pipes: messages of growing size in both directions, with work between them, so that checkpoints fall inside.
#include "test.h"

enum { kTurns = 600 };

int main(void) {
  int there[2], back[2];
  char buffer[3000];
  MUST(pipe(there));
  MUST(pipe(back));
  const pid_t child = MUST(fork());
  for (unsigned i = 0; i < kTurns; i++) {
    const size_t size = 1 + i * 5 % sizeof buffer;
    if (child) {
      fill(buffer, size, i);
      write_all(there[1], buffer, size);
      read_all(back[0], buffer, size);
      CHECK(is_filled(buffer, size, i + 1));
    } else {
      read_all(there[0], buffer, size);
      CHECK(is_filled(buffer, size, i));
      fill(buffer, size, i + 1);
      write_all(back[1], buffer, size);
    }
    (void)compute(i, 4);
  }
  if (child == 0) _exit(0);
  wait_for_exit(child, 0);
  return ok("%d turns", kTurns);
}
