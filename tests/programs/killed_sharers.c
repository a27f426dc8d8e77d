// Processes that are killed while they write into memory that they share: by another that shares it, and by one that does not. What they have
// written is found by those that are left.
#include "test.h"

#include <sys/mman.h>

enum { kRounds = 9 };

struct shared {
  volatile pid_t number;
  volatile uint64_t count;
};
static struct shared* shared;

static void wait_for_killed(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// A call that shows what was found.
static void show(uint64_t found) {
  CHECK(close(-1 - (int)(found % 100000)) == -1);
  NOTE(found);
}

// Both the parent and the child write the number that fork returns. The child has waited for its turn, and gets it when its parent kills it.
static void kill_beginners(void) {
  for (int round = 0; round < kRounds; round++) {
    const pid_t child = MUST(fork());
    shared->number = child;
    if (child == 0) {
      for (int n = 0;; n++) {
        CHECK(getppid() > 0);
        shared->number = n;
      }
    }
    noted += compute((uint64_t)round, 120);
    MUST(kill(child, SIGKILL));
    wait_for_killed(child);
    show((uint64_t)shared->number);
  }
}

// Kills whom it is told to after a while, and shares no memory with them.
static void begin_killer(int* to) {
  int ends[2];
  MUST(pipe(ends));
  if (MUST(fork()) == 0) {
    MUST(close(ends[1]));
    for (pid_t child; read(ends[0], &child, sizeof child) == (ssize_t)sizeof child;) {
      MUST(usleep(3000));
      MUST(kill(child, SIGKILL));
    }
    _exit(0);
  }
  MUST(close(ends[0]));
  *to = ends[1];
}

static void have_killed(int killer, int round) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (;;) {
      shared->count++;
      if (round % 3 != 2) noted += compute(shared->count, 1);
      if (round % 3 != 0) CHECK(getppid() > 0);
    }
  }
  CHECK(write(killer, &child, sizeof child) == (ssize_t)sizeof child);
  wait_for_killed(child);
  show(shared->count);
}

int main(void) {
  int killer;
  begin_killer(&killer);
  shared = MUST(mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  kill_beginners();
  for (int round = 0; round < kRounds; round++) have_killed(killer, round);
  MUST(close(killer));
  CHECK(wait(NULL) > 0);
  return ok("%016llx", (unsigned long long)noted);
}
