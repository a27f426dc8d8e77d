// Many writers on one pipe: pieces of at most PIPE_BUF bytes stay whole, in an order that differs from run to run.
#include "test.h"

#include <limits.h>

enum { kWriters = 5, kPieces = 60 };
struct Piece {
  uint32_t writer, number, size;
  char data[];
};

int main(void) {
  int ends[2];
  char buffer[PIPE_BUF];
  struct Piece* piece = (struct Piece*)buffer;
  pid_t children[kWriters];
  MUST(pipe(ends));
  for (uint32_t w = 0; w < kWriters; w++) {
    if ((children[w] = MUST(fork())) != 0) continue;
    for (uint32_t i = 0; i < kPieces; i++) {
      const uint32_t size = (w * 977 + i * 389) % (PIPE_BUF - sizeof *piece);
      *piece = (struct Piece){w, i, size};
      fill(piece->data, size, w * 100 + i);
      CHECK(write(ends[1], buffer, sizeof *piece + size) == (ssize_t)(sizeof *piece + size));
    }
    _exit(0);
  }
  MUST(close(ends[1]));
  uint32_t next[kWriters] = {0};
  uint64_t digest = 0;
  for (int i = 0; i < kWriters * kPieces; i++) {
    read_all(ends[0], piece, sizeof *piece);
    CHECK(piece->writer < kWriters && piece->number == next[piece->writer]++ && piece->size < PIPE_BUF);
    read_all(ends[0], piece->data, piece->size);
    CHECK(is_filled(piece->data, piece->size, piece->writer * 100 + piece->number));
    digest = digest * 31 + piece->writer;
  }
  CHECK(read(ends[0], buffer, 1) == 0);
  for (int w = 0; w < kWriters; w++) wait_for_exit(children[w], 0);
  return ok("order %016lx", digest);
}
