// images: 1
// The first process of a PID namespace, where this user may make one: numbers, its children, and signals that it does not catch.
#include "test.h"

#include <sched.h>

static void nothing(int signal) { (void)signal; }

int main(void) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
    CHECK(errno == EPERM || errno == ENOSPC || errno == EINVAL || errno == ENOSYS);
    pass_checkpoints();
    return ok("not allowed");
  }
  pass_checkpoints();  // a copy of this process would become the first one
  const pid_t child = MUST(fork());
  if (child == 0) {
    CHECK(getpid() == 1 && getppid() == 0);
    pass_checkpoints();
    MUST(kill(1, SIGTERM));  // nothing happens
    MUST(signal(SIGUSR1, nothing) == SIG_ERR ? -1 : 0);
    MUST(kill(1, SIGUSR1));
    const pid_t inner = MUST(fork());
    if (inner == 0) {
      CHECK(getpid() > 1 && getppid() == 1);
      MUST(kill(1, SIGINT));
      _exit(4);
    }
    CHECK(inner > 1 && inner < child + 1000000);
    wait_for_exit(inner, 4);
    int status;
    FAILS(waitpid(-1, &status, __WALL), ECHILD);
    _exit(6);
  }
  wait_for_exit(child, 6);
  int status;
  FAILS(waitpid(-1, &status, __WALL), ECHILD);
  return ok("namespace");
}
