// What a program writes into another process's memory through /proc/PID/mem is there at once, and stays: while that process sleeps in a
// call, makes calls all the time, or makes none.
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { kBytes = 10000, kRounds = 30 };

static char* common;  // at the same address in parent and child, but separate memory
static int to_child[2], to_parent[2];

static void tell(int fd) { CHECK(write(fd, "t", 1) == 1); }
static void hear(int fd) {
  char byte = 0;
  CHECK(read(fd, &byte, 1) == 1);
}

static void child(void) {
  tell(to_parent[1]);
  hear(to_child[0]);  // it is written to while it sleeps here
  CHECK(is_filled(common, kBytes, 2));
  tell(to_parent[1]);
  volatile unsigned* const word = (unsigned*)common;
  for (unsigned round = 1; round <= kRounds; round++) {
    while (*word != round) syscall(SYS_getppid);  // ... while it makes calls
    tell(to_parent[1]);
  }
  while (*word != ~0u) {  // ... and while it makes none
  }
  note_bytes(common, kBytes);
  CHECK(write(to_parent[1], &noted, sizeof noted) == sizeof noted);
  _exit(21);
}

int main(void) {
  char* const own = MUST(mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  common = MUST(mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  fill(common, kBytes, 1);
  MUST(pipe(to_child));
  MUST(pipe(to_parent));
  const pid_t other = MUST(fork());
  if (other == 0) child();
  hear(to_parent[0]);
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", other);
  const int memory = MUST(open(path, O_RDWR));
  const off_t place = (off_t)(uintptr_t)common;
  fill(own, kBytes, 2);
  MUST(lseek(memory, place, SEEK_SET));
  CHECK(write(memory, own, kBytes / 2) == kBytes / 2);
  struct iovec rest[] = {{own + kBytes / 2, 7}, {own + kBytes / 2 + 7, kBytes - kBytes / 2 - 7}};
  CHECK(writev(memory, rest, 2) == kBytes - kBytes / 2);
  CHECK(is_filled(common, kBytes, 1));
  tell(to_child[1]);
  hear(to_parent[0]);
  for (unsigned round = 1; round <= kRounds; round++) {
    CHECK(pwrite(memory, &round, sizeof round, place) == sizeof round);
    hear(to_parent[0]);
  }
  const unsigned end = ~0u;
  const struct iovec last = {(void*)&end, sizeof end};
  CHECK(pwritev(memory, &last, 1, place) == sizeof end);
  read_all(to_parent[0], &noted, sizeof noted);
  wait_for_exit(other, 21);
  CHECK(pwrite(memory, own, kBytes, place) <= 0);  // its memory is gone
  return ok("%016llx", (unsigned long long)noted);
}
