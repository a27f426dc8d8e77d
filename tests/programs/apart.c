// Two processes compute, and after each piece of work tell each other their results and the processors that they were on. They end when
// they were on two processors at the same time, but after at least 30 pieces and at most ROUNDS. usage: apart [ROUNDS]
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "test.h"

enum { kRounds = 30, kSteps = 400000 };
struct piece {
  unsigned processor;
  uint64_t sum;
};

static uint64_t work(uint64_t x) {
  for (int i = 0; i < kSteps; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return x;
}

// Returns whether it was on a different processor than the other process at some time.
static int work_beside(int other, uint64_t seed, uint64_t other_seed, int rounds) {
  int apart = 0;
  struct piece mine = {0, seed}, theirs;
  for (int round = 0; round < rounds && (round < kRounds || !apart); round++) {
    mine.sum = work(mine.sum);
    other_seed = work(other_seed);
    MUST(syscall(SYS_getcpu, &mine.processor, NULL, NULL));
    CHECK(MUST(write(other, &mine, sizeof mine)) == sizeof mine);
    CHECK(MUST(read(other, &theirs, sizeof theirs)) == sizeof theirs);
    CHECK(theirs.sum == other_seed);
    apart |= theirs.processor != mine.processor;
  }
  return apart;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : kRounds;
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  const pid_t child = MUST(fork());
  const int apart = child ? work_beside(ends[0], 1, 2, rounds) : work_beside(ends[1], 2, 1, rounds);
  if (!child) _exit(apart ? 1 : 0);
  int status = 0;
  MUST(waitpid(child, &status, 0));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (apart ? 1 : 0));
  printf("ok, %s\n", apart ? "on two processors" : "on one processor");
  return 0;
}
