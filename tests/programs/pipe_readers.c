// Several processes read pieces of the same writes from one pipe, all at the same time: each byte comes to exactly one of them.
#include "test.h"

enum { kReaders = 4, kRounds = 40 };

int main(void) {
  int ends[2], answers[2];
  pid_t children[kReaders];
  MUST(pipe(ends));
  MUST(pipe(answers));
  for (int r = 0; r < kReaders; r++) {
    if ((children[r] = MUST(fork())) != 0) continue;
    MUST(close(ends[1]));
    char piece[3];
    ssize_t size;
    while ((size = MUST(read(ends[0], piece, sizeof piece))) > 0) {
      CHECK(write(answers[1], piece, (size_t)size) == size);
      compute((uint64_t)r, 1);
    }
    _exit(0);
  }
  uint64_t digest = 0;
  for (int round = 0; round < kRounds; round++) {
    char sent[10 + kReaders], got[sizeof sent];
    int seen[256] = {0};
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (char)(round * 7 + (int)i * 5);
    CHECK(write(ends[1], sent, sizeof sent) == (ssize_t)sizeof sent);
    read_all(answers[0], got, sizeof got);
    for (size_t i = 0; i < sizeof sent; i++) {
      seen[(uint8_t)sent[i]]++;
      seen[(uint8_t)got[i]]--;
      digest = digest * 31 + (uint8_t)got[i];
    }
    for (int value = 0; value < 256; value++) CHECK(seen[value] == 0);
  }
  MUST(close(ends[1]));
  for (int r = 0; r < kReaders; r++) wait_for_exit(children[r], 0);
  return ok("order %016lx", digest);
}
