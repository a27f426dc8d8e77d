// Calls that fail after the kernel has written something: what it was is found in memory later, and in a replay too.
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

static char *memory, *edge;  // the last page before one that is not mapped, and its end
static char* const bad = (char*)16;
static char* constant;  // a page of zeros that cannot be written to

static void fill_memory(void) {
  memset(memory, 0x5a, (size_t)(edge - memory));
}

static void note_memory(void) {
  note_bytes(edge - 64, 64);
  fill_memory();
}

// The numbers of the descriptors that the pair would have had.
static void fail_socketpair(int* ends) {
  FAILS(socketpair(AF_UNIX, SOCK_STREAM, 77, ends), EPROTONOSUPPORT);
  note_bytes(ends, sizeof(int[2]));
  ends[0] = ends[1] = -5;
  FAILS(socketpair(AF_INET, SOCK_STREAM, 0, ends), EOPNOTSUPP);
  note_bytes(ends, sizeof(int[2]));
  ends[0] = ends[1] = -6;
  FAILS(socketpair(99, SOCK_STREAM, 0, ends), EAFNOSUPPORT);
}

static void fail_timer_create(int* timer) {
  // Without an alarm clock it is not supported, and without a privilege it is not permitted.
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  const long made = syscall(SYS_timer_create, CLOCK_REALTIME_ALARM, &event, timer);
  CHECK(made == 0 || errno == EOPNOTSUPP || errno == EPERM);
  if (made == 0) MUST(syscall(SYS_timer_delete, *timer));
}

// The first of several outputs can be written, or the first part of one.
static void fail_in_part(void) {
  int ids[2] = {77, 78};
  FAILS(syscall(SYS_getresuid, &ids[0], &ids[1], bad), EFAULT);
  note_bytes(ids, sizeof ids);
  ids[0] = 79;
  FAILS(syscall(SYS_getresuid, &ids[0], &ids[1], constant), EFAULT);
  FAILS(syscall(SYS_getresuid, NULL, &ids[1], &ids[0]), EFAULT);
  note_bytes(ids, sizeof ids);
  FAILS(syscall(SYS_getresgid, edge - 8, bad, edge - 4), EFAULT);
  note_memory();
  FAILS(syscall(SYS_fstat, 0, edge - 8), EFAULT);
  note_memory();
  FAILS(syscall(SYS_statfs, "/", edge - 24), EFAULT);
  note_memory();
  FAILS(syscall(SYS_uname, edge - 16), EFAULT);
  note_memory();
  unsigned processor = 1234567;
  FAILS(syscall(SYS_getcpu, &processor, bad, NULL), EFAULT);
  note_bytes(&processor, sizeof processor);
  FAILS(syscall(SYS_gettimeofday, edge - 16, bad), EFAULT);
  note_memory();
  int pair[2];
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  CHECK(write(pair[0], "datagram", 8) == 8);
  FAILS(recvfrom(pair[1], edge - 8, 8, 0, (struct sockaddr*)(edge - 32), (socklen_t*)bad), EFAULT);
  note_memory();
  FAILS(getsockname(pair[1], (struct sockaddr*)(edge - 2), (socklen_t*)bad), EFAULT);
  note_memory();
  MUST(close(pair[0]));
  MUST(close(pair[1]));
}

static long wait_for(int most, fd_set* readable, fd_set* writable, void* others) {
  return syscall(SYS_select, most + 1, readable, writable, others, constant);
}

// What is left of the timeout cannot be written, which the kernel does not mind.
static void keep_timeout(void) {
  int ends[2];
  MUST(pipe(ends));
  fd_set readable, writable;
  for (int i = 0; i < 3; i++) {
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(ends[0], &readable);
    FD_SET(ends[1], &writable);
    CHECK(wait_for(ends[1], &readable, &writable, NULL) == 1);
    CHECK(!FD_ISSET(ends[0], &readable) && FD_ISSET(ends[1], &writable));
    CHECK(wait_for(ends[1], &readable, NULL, NULL) == 0);
    FD_SET(ends[1], &readable);
    FAILS(wait_for(ends[1], &writable, &readable, bad), EFAULT);
    note_bytes(&writable, sizeof writable);
  }
  MUST(close(ends[0]));
  MUST(close(ends[1]));
}

int main(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  memory = MUST(mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  MUST(munmap(memory + page, page));
  edge = memory + page;
  fill_memory();
  constant = MUST(mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  int ends[2] = {-1, -2}, timer = -3;
  for (int round = 0; round < 10; round++) {
    fail_socketpair(ends);
    fail_timer_create(&timer);
    fail_in_part();
    keep_timeout();
  }
  pass_checkpoints();
  note_bytes(ends, sizeof ends);
  NOTE(timer);
  return ok("%016llx", (unsigned long long)noted);
}
