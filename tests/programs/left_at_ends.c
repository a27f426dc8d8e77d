// What a process holds is free when it has ended, its locks stay with it when it executes a program, and nothing that it has unmapped keeps
// a file from being sealed: also while the image of a checkpoint is being stored, and in the end its parent has no other children.
// period: 50ms
#include "test.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

enum { kRounds = 2, kMost = 48 };

static int file;

// Changes much memory, so that checkpoints are due, and take a while to store.
static void work(void) {
  static char memory[kMost << 20];
  struct timespec used;
  for (int round = 0; round < 15; round++) {
    do {
      for (int i = 0; i < kMost; i++) {
        memset(memory + ((size_t)i << 20), round, 1 << 20);
        CHECK(syscall(SYS_getppid) >= 0);
      }
      MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used));
    } while (used.tv_sec == 0 && used.tv_nsec < round * 10000000L);
  }
}

static int opened(void) {
  char name[32];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  return MUST(open(name, O_RDWR));
}

static int lock(int fd) {
  struct flock whole = {.l_type = F_WRLCK};
  return fcntl(fd, F_SETLK, &whole);
}

static void end_holding(int by_signal) {
  int ends[2];
  MUST(pipe2(ends, O_NONBLOCK));
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(setpgid(0, 0));
    MUST(close(ends[0]));
    MUST(flock(opened(), LOCK_EX));
    MUST(lock(opened()));
    work();
    if (by_signal) raise(SIGTERM);
    _exit(0);
  }
  MUST(close(ends[1]));
  int status;
  CHECK(MUST(wait(&status)) == child && (by_signal ? WIFSIGNALED(status) : status == 0));
  char byte;
  CHECK(read(ends[0], &byte, 1) == 0);
  if (!by_signal) FAILS(kill(-child, 0), ESRCH);
  const int fd = opened();
  MUST(flock(fd, LOCK_EX | LOCK_NB));
  MUST(lock(fd));
  MUST(close(fd));
  MUST(close(ends[0]));
}

static void execute_holding(void) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    char number[16];
    MUST(lock(opened()));
    work();
    snprintf(number, sizeof number, "%d", file);
    MUST(execl("/proc/self/exe", "left_at_ends", number, NULL));
  }
  wait_for_exit(child, 0);
}

static void executed(void) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    struct flock found = {.l_type = F_WRLCK};
    MUST(fcntl(opened(), F_GETLK, &found));
    CHECK(found.l_type == F_WRLCK && found.l_pid == getppid());
    _exit(0);
  }
  wait_for_exit(child, 0);
}

static void seal(void) {
  const int sealed = MUST(memfd_create("sealed", MFD_ALLOW_SEALING));
  MUST(ftruncate(sealed, 4096));
  void* const mapped = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, sealed, 0));
  work();
  MUST(munmap(mapped, 4096));
  MUST(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
  _exit(0);
}

// A user who has no other process may have one more.
static void bear_at_limit(void) {
  const uid_t user = 1000000 + (uid_t)getpid();
  const struct rlimit limit = {2, 2};
  if (setresuid(user, user, user) != 0) _exit(0);
  MUST(setrlimit(RLIMIT_NPROC, &limit));
  work();
  const pid_t child = MUST(fork());
  if (child == 0) _exit(0);
  wait_for_exit(child, 0);
  _exit(0);
}

static void in_child(void (*body)(void)) {
  const pid_t child = MUST(fork());
  if (child == 0) body();
  wait_for_exit(child, 0);
}

int main(int argc, char** argv) {
  if (argc > 1) {
    file = atoi(argv[1]);
    executed();
    return 0;
  }
  file = MUST(memfd_create("locked", 0));
  for (int round = 0; round < kRounds; round++) {
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
    end_holding(0);
    FAILS(wait(NULL), ECHILD);
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 0));
    end_holding(1);
    execute_holding();
  }
  in_child(seal);
  in_child(bear_at_limit);
  return ok("%d", kRounds);
}
