// Processes that end while a read of one of their threads has written into memory that they share, and has not returned yet: killed, by an
// exit, a new program, a fault, and a forbidden call of another thread. Others find what was read.
#include "test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum end { killed, exits, executes, faults, forbidden, kEnds };
enum { kRounds = 2 };

static volatile char* shared;
static int data[2], to_end[2], ready[2];

static void* reader(void* unused) {
  write_all(ready[1], "r", 1);
  read_all(data[0], (char*)shared, 1);
  for (;;) pause();
  return unused;
}

static void make_forbidden_call(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  getppid();
}

static void end(enum end how) {
  if (how == exits) _exit(0);
  if (how == executes) execl("/proc/self/exe", "killed_readers", "ends", NULL);
  if (how == faults) *(volatile int*)NULL = 1;
  if (how == forbidden) make_forbidden_call();
}

static void child(enum end how) {
  if (how == killed) reader(NULL);
  pthread_t thread;
  char byte;
  MUST0(pthread_create(&thread, NULL, reader, NULL));
  read_all(to_end[0], &byte, 1);
  end(how);
  CHECK(!"the process must have ended");
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "ends") == 0) return 0;
  shared = MUST(mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  MUST(pipe(data));
  MUST(pipe(to_end));
  MUST(pipe(ready));
  for (int round = 0; round < kRounds * kEnds; round++) {
    const enum end how = (enum end)(round % kEnds);
    *shared = '-';
    const pid_t number = MUST(fork());
    if (number == 0) child(how);
    char byte;
    read_all(ready[0], &byte, 1);
    if (how != killed) write_all(to_end[1], "e", 1);
    write_all(data[1], "d", 1);
    noted += compute((uint64_t)round, 2);
    if (how == killed) MUST(kill(number, SIGKILL));
    int status;
    CHECK(MUST(waitpid(number, &status, 0)) == number);
    CHECK(how == exits || how == executes ? status == 0 : WIFSIGNALED(status));
    const char found = *shared;
    NOTE(found);
    char rest = 0;
    if (found == '-') read_all(data[0], &rest, 1);
  }
  return ok("%016llx", (unsigned long long)noted);
}
