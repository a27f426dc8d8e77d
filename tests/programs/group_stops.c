// images: 2
// Job control of processes with threads: whichever thread stops its process, or gets a stopping signal, all of them stop, the parent sees
// it, and SIGCONT makes all of them continue where they were.
#include "test.h"

#include <sys/mman.h>
#include <sys/prctl.h>

enum { kThreads = 3 };

static volatile sig_atomic_t continued;
static void note_continued(int signal) { (void)signal, continued++; }

static int ends[2];
static int stopper;  // the signal by which the last thread stops its process; 0: another process does that
static int computes;

static void* work(void* last) {
  if (computes) {
    static volatile uint64_t sink;
    for (int i = 0; i < 20; i++) sink = compute(sink, 10);
  }
  if (last && stopper) MUST(kill(getpid(), stopper));
  char byte;
  CHECK(read(ends[0], &byte, 1) == 1);
  return NULL;
}

// A child with threads that wait for a byte each, or compute first.
static pid_t start(int signal, int busy) {
  int ready[2];
  char byte;
  MUST(pipe(ends));
  MUST(pipe(ready));
  stopper = signal;
  computes = busy;
  const pid_t child = MUST(fork());
  if (child) {
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return child;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  MUST(sigaction(SIGCONT, &(struct sigaction){.sa_handler = note_continued, .sa_flags = SA_RESTART}, NULL));
  write_all(ready[1], "x", 1);
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; i++) MUST0(pthread_create(&threads[i], NULL, work, i == kThreads - 1 ? "" : NULL));
  for (int i = 0; i < kThreads; i++) MUST0(pthread_join(threads[i], NULL));
  _exit(continued ? 5 : 6);
}

static void let_end(pid_t child, int status) {
  write_all(ends[1], "xxxxxxxx", kThreads);
  wait_for_exit(child, status);
  close(ends[0]);
  close(ends[1]);
}

static void expect_stopped(pid_t child, int signal) {
  siginfo_t info = {0};
  MUST(waitid(P_PID, (id_t)child, &info, WSTOPPED | WNOWAIT));
  CHECK(info.si_pid == child && info.si_code == CLD_STOPPED && info.si_status == signal);
  int status;
  CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && WSTOPSIG(status) == signal);
  CHECK(waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
}

static void expect_continued(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
}

// A thread that is not the leader stops its own process.
static void stops_itself(int signal, int busy) {
  const pid_t child = start(signal, busy);
  expect_stopped(child, signal);
  MUST(kill(child, SIGCONT));
  expect_continued(child);
  let_end(child, 5);
}

// From outside, again and again. While the child is stopped, it is killed or continued.
static void is_stopped(int busy, int killed) {
  const pid_t child = start(0, busy);
  for (int i = 0; i < 3; i++) {
    MUST(kill(child, SIGSTOP));
    expect_stopped(child, SIGSTOP);
    if (killed) break;
    MUST(kill(child, SIGCONT));
    expect_continued(child);
  }
  if (!killed) {
    let_end(child, 5);
    return;
  }
  MUST(kill(child, SIGKILL));
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  close(ends[0]);
  close(ends[1]);
}

// SIGCONT cancels a stop that has not happened yet; in either case, the child continues.
static void at_once(int busy) {
  const pid_t child = start(0, busy);
  for (int i = 0; i < 10; i++) {
    MUST(kill(child, SIGSTOP));
    MUST(kill(child, SIGCONT));
  }
  let_end(child, 5);
}

// One of two processes that share memory stops, and the other one continues.
static void beside_another(void) {
  volatile int* const shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      ++*shared;
      compute(1, 5);
      if (*shared > 5000) getppid();
    }
  }
  while (*shared < 20) sched_yield();
  MUST(kill(child, SIGSTOP));
  expect_stopped(child, SIGSTOP);
  const int before = *shared;
  pass_checkpoints();
  CHECK(*shared == before);
  MUST(kill(child, SIGCONT));
  expect_continued(child);
  while (*shared == before) sched_yield();
  MUST(kill(child, SIGKILL));
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(void) {
  setbuf(stdout, NULL);
  for (int busy = 0; busy < 2; busy++) {
    stops_itself(SIGSTOP, busy);
    stops_itself(SIGTSTP, busy);
    stops_itself(SIGTTIN, busy);
    is_stopped(busy, 0);
    is_stopped(busy, 1);
    at_once(busy);
  }
  beside_another();
  return ok("stopped");
}
