// fork and every kind of wait; the child sees its own copy of memory and the same descriptors.
#include "test.h"

#include <sys/resource.h>

static int shared_by_copy = 1;

int main(void) {
  int ends[2];
  MUST(pipe(ends));
  for (int i = 0; i < 30; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      CHECK(shared_by_copy == i + 1 && getpid() != getppid());
      shared_by_copy = 1000;
      const pid_t self = getpid();
      write_all(ends[1], &self, sizeof self);
      _exit(i);
    }
    pid_t told;
    read_all(ends[0], &told, sizeof told);
    CHECK(told == child);
    shared_by_copy++;
    if (i % 3 == 0) {
      wait_for_exit(child, i);
    } else if (i % 3 == 1) {
      siginfo_t info = {0};
      MUST(waitid(P_ALL, 0, &info, WEXITED));
      CHECK(info.si_pid == child && info.si_code == CLD_EXITED && info.si_status == i);
    } else {
      int status;
      struct rusage usage;
      CHECK(wait4(-1, &status, 0, &usage) == child && WEXITSTATUS(status) == i);
    }
  }
  CHECK(wait(NULL) == -1 && errno == ECHILD);

  const pid_t busy = MUST(fork());  // checkpoints in a child that never execs
  if (busy == 0) {
    pass_checkpoints();
    CHECK(shared_by_copy == 31);
    _exit(5);
  }
  pass_checkpoints();
  wait_for_exit(busy, 5);
  return ok("31 children");
}
