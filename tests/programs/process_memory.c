// process_vm_readv(2) and process_vm_writev(2), on the process itself and between processes, while the other one sleeps in a call,
// computes, or makes calls all the time. What is written is there at once, and stays.
#include "test.h"

#include <sys/mman.h>
#include <sys/uio.h>

enum { kBytes = 10000, kRounds = 30 };

static char* common;  // at the same address in parent and child, but separate memory
static int to_child[2], to_parent[2];

static long move(int write, pid_t pid, void* here, void* there, size_t size) {
  // In pieces that differ on both sides.
  struct iovec local[] = {{here, size / 3}, {(char*)here + size / 3, size - size / 3}};
  struct iovec remote[] = {{there, size / 2}, {NULL, 0}, {(char*)there + size / 2, size - size / 2}};
  return write ? process_vm_writev(pid, local, 2, remote, 3, 0) : process_vm_readv(pid, local, 2, remote, 3, 0);
}

static void tell(int fd) { CHECK(write(fd, "t", 1) == 1); }
static void hear(int fd) {
  char byte = 0;
  CHECK(read(fd, &byte, 1) == 1);
}

// The child reports what it finds in its memory by its exit status.
static void child(void) {
  CHECK(is_filled(common, kBytes, 1));
  tell(to_parent[1]);
  hear(to_child[0]);  // it is written to while it sleeps here
  CHECK(is_filled(common, kBytes, 2));
  fill(common, kBytes, 3);
  tell(to_parent[1]);
  hear(to_child[0]);
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
  char* const read = MUST(mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  common = MUST(mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  fill(own, kBytes, 7);
  CHECK(move(1, getpid(), own, common, kBytes) == kBytes && is_filled(common, kBytes, 7));
  CHECK(move(0, getpid(), read, common, kBytes) == kBytes && is_filled(read, kBytes, 7));
  fill(common, kBytes, 1);
  MUST(pipe(to_child));
  MUST(pipe(to_parent));
  const pid_t other = MUST(fork());
  if (other == 0) child();
  hear(to_parent[0]);
  memset(read, 0, kBytes);
  CHECK(move(0, other, read, common, kBytes) == kBytes && is_filled(read, kBytes, 1));
  fill(own, kBytes, 2);
  CHECK(move(1, other, own, common, kBytes) == kBytes);
  CHECK(is_filled(common, kBytes, 1));
  tell(to_child[1]);
  hear(to_parent[0]);
  CHECK(move(0, other, read, common, kBytes) == kBytes && is_filled(read, kBytes, 3));
  NOTE(*read);
  tell(to_child[1]);
  for (unsigned round = 1; round <= kRounds; round++) {
    CHECK(move(1, other, &round, common, sizeof round) == sizeof round);
    hear(to_parent[0]);
  }
  const unsigned end = ~0u;
  CHECK(move(1, other, (void*)&end, common, sizeof end) == sizeof end);
  read_all(to_parent[0], &noted, sizeof noted);
  wait_for_exit(other, 21);
  FAILS(move(0, other, read, common, kBytes), ESRCH);
  FAILS(move(1, other, read, common, kBytes), ESRCH);
  FAILS(move(1, getpid(), own, (void*)4096, kBytes), EFAULT);
  return ok("%llx", (unsigned long long)noted);
}
