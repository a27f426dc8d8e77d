// All processes come to share memory at the same time, each with each: units that wait to become part of another one are waited for
// themselves. In every other round they are killed meanwhile.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "test.h"

enum { kPage = 4096, kProcesses = 6, kRounds = 8 };

static unsigned char value(int round, int process) { return (unsigned char)(1 + round * kProcesses + process); }

static void* map(const char* name, int index, int round) {
  char file[64];
  snprintf(file, sizeof file, "%s-%d-%d", name, round, index);
  const int fd = MUST(open(file, O_RDWR | O_CREAT, 0600));
  MUST(ftruncate(fd, kPage));
  void* const at = MUST(mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  MUST(close(fd));
  return at;
}

// Maps its own object and says so; when all have, maps all the others', starting with the next one's.
static void member(int round, int self, int said, const int* go) {
  volatile unsigned char* const own = map("circle", self, round);
  *own = value(round, self);
  write_all(said, "x", 1);
  read_all(go[0], &(char){0}, 1);
  for (int step = 1; step < kProcesses; step++) {
    const int other = (self + step) % kProcesses;
    volatile unsigned char* const seen = map("circle", other, round);
    CHECK(*seen == value(round, other));
    seen[1 + self] = value(round, self);
  }
  write_all(said, "x", 1);
  read_all(go[1], &(char){0}, 1);
  for (int other = 0; other < kProcesses; other++) CHECK(other == self || own[1 + other] == value(round, other));
  _exit(0);
}

int main(void) {
  for (int round = 0; round < kRounds; round++) {
    int said[2], go[2], end[2];
    MUST(pipe(said)), MUST(pipe(go)), MUST(pipe(end));
    const int killed = round % 2;
    pid_t children[kProcesses];
    for (int i = 0; i < kProcesses; i++) {
      children[i] = MUST(fork());
      if (children[i] == 0) member(round, i, said[1], (const int[]){go[0], end[0]});
    }
    char bytes[kProcesses] = {0};
    read_all(said[0], bytes, kProcesses);
    write_all(go[1], bytes, kProcesses);
    if (killed) {
      for (int i = 0; i < kProcesses; i++) MUST(kill(children[i], SIGKILL));
      for (int i = 0; i < kProcesses; i++) MUST(waitpid(children[i], NULL, 0));
    } else {
      read_all(said[0], bytes, kProcesses);
      write_all(end[1], bytes, kProcesses);
      for (int i = 0; i < kProcesses; i++) wait_for_exit(children[i], 0);
    }
    for (int i = 0; i < 2; i++) MUST(close(said[i])), MUST(close(go[i])), MUST(close(end[i]));
  }
  return ok("%d rounds", kRounds);
}
