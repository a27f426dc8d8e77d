// Two processes that share memory take turns. The one that waits tests in a loop whether messages have come in several places, and
// reads the time, as the ranks of an MPI job do that share memory with one another; later it reads the processor's counter.
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <x86intrin.h>

#include "test.h"

enum { kTurns = 600 };

static void test_in_vain(const int ends[2]) {
  struct pollfd tested[2] = {{.fd = ends[0], .events = POLLIN, .revents = 0}, {.fd = ends[1], .events = POLLIN, .revents = 0}};
  CHECK(MUST(poll(tested, 2, 0)) == 0);
  struct timespec now;
  MUST(clock_gettime(CLOCK_MONOTONIC_COARSE, &now));
  char byte;
  CHECK(recv(ends[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

static void take_turns(atomic_int* turn, int self, const int ends[2]) {
  for (int mine = self; mine < kTurns; mine += 2) {
    const unsigned long long began = __rdtsc();
    while (atomic_load(turn) != mine) {
      if (mine < kTurns / 2) {
        test_in_vain(ends);
      } else {
        CHECK(__rdtsc() >= began);
      }
    }
    atomic_store(turn, mine + 1);
  }
}

int main(void) {
  int ends[2];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  atomic_int* const turn = MUST(mmap(NULL, sizeof *turn, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = MUST(fork());
  take_turns(turn, child == 0, ends);
  if (child == 0) _exit(0);
  wait_for_exit(child, 0);
  CHECK(atomic_load(turn) == kTurns);
  return ok("%d turns", kTurns);
}
