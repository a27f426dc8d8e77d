// ptrace(2) of threads by a process with the same memory, as LeakSanitizer does: it stops them, reads their registers and lets them go.
#include "test.h"

#include <elf.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

enum { kThreads = 3, kStack = 256 << 10, kRounds = 3 };

static pid_t tids[kThreads];
static char* stacks[kThreads];
static volatile unsigned long counts[kThreads];
static volatile int over;
static int pipe_ends[2];
static volatile pid_t leader;

// One makes calls all the time, one sleeps in a read, one now and then.
static void* thread(void* which) {
  const long number = (long)which;
  char here = 0;
  stacks[number] = &here;
  tids[number] = (pid_t)syscall(SYS_gettid);
  if (number == 1) CHECK(read(pipe_ends[0], &here, 1) == 1);
  while (!over) {
    counts[number]++;
    if (number == 2) usleep(1000);
    syscall(SYS_getppid);
  }
  return NULL;
}

static void attach(pid_t tid) {
  MUST(ptrace(PTRACE_ATTACH, tid, 0, 0));
  int status = 0;
  CHECK(waitpid(tid, &status, __WALL) == tid);
  CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
}

static int tracer(void* unused) {
  (void)unused;
  for (int round = 0; round < kRounds; round++) {
    attach(leader);
    for (int i = 0; i < kThreads; i++) attach(tids[i]);
    for (int i = 0; i < kThreads; i++) {
      struct user_regs_struct regs;
      struct iovec vector = {&regs, sizeof regs};
      MUST(ptrace(PTRACE_GETREGSET, tids[i], NT_PRSTATUS, &vector));
      CHECK(vector.iov_len == sizeof regs);
      // Near the thread's local variable.
      CHECK((char*)regs.rsp < stacks[i] + 4096 && (char*)regs.rsp > stacks[i] - 65536);
      unsigned char state[8192];
      vector = (struct iovec){state, sizeof state};
      MUST(ptrace(PTRACE_GETREGSET, tids[i], NT_X86_XSTATE, &vector));
      CHECK(vector.iov_len >= 512 + 64);
      note_bytes(state, vector.iov_len);
      vector = (struct iovec){state, 512};
      MUST(ptrace(PTRACE_GETREGSET, tids[i], NT_FPREGSET, &vector));
      CHECK(vector.iov_len == 512);
    }
    // Nobody goes on, however long it takes.
    const unsigned long before[] = {counts[0], counts[1], counts[2]};
    for (int i = 0; i < 20; i++) {
      usleep(500);
      for (volatile int spin = 0; spin < 1000000; spin++) {
      }
    }
    for (int i = 0; i < kThreads; i++) CHECK(counts[i] == before[i]);
    FAILS(ptrace(PTRACE_ATTACH, tids[0], 0, 0), EPERM);
    for (int i = 0; i < kThreads; i++) MUST(ptrace(PTRACE_DETACH, tids[i], 0, 0));
    FAILS(ptrace(PTRACE_DETACH, tids[0], 0, 0), ESRCH);
    if (round + 1 < kRounds) MUST(ptrace(PTRACE_DETACH, leader, 0, 0));  // its tracer's end lets it go as well
    const unsigned long behind = counts[0];
    while (counts[0] == behind) usleep(100);
  }
  return 7;
}

int main(void) {
  pthread_t threads[kThreads];
  MUST(pipe(pipe_ends));
  leader = getpid();
  for (long i = 0; i < kThreads; i++) MUST0(pthread_create(&threads[i], NULL, thread, (void*)i));
  for (int i = 0; i < kThreads; i++) {
    while (!*(volatile pid_t*)&tids[i]) usleep(100);
  }
  FAILS(ptrace(PTRACE_ATTACH, tids[0], 0, 0), EPERM);  // of its own process
  char* const stack = MUST(mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const pid_t child = MUST(clone(tracer, stack + kStack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, NULL));
  prctl(PR_SET_PTRACER, child);
  int status = 0;
  CHECK(waitpid(child, &status, __WALL) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  over = 1;
  CHECK(write(pipe_ends[1], "x", 1) == 1);
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(threads[i], NULL));
  return ok("%d threads", kThreads);
}
