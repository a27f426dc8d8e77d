// A child in a PID namespace of its own gets its number there; its parent gets a different one.
#include "test.h"

static pid_t fork_told(int flags, pid_t* told) {
  return (pid_t)syscall(SYS_clone, flags | CLONE_CHILD_SETTID | SIGCHLD, NULL, NULL, told, 0);
}

static void is_first(pid_t told) {
  CHECK(told == 1 && getpid() == 1 && getppid() == 0);
  CHECK(syscall(SYS_tgkill, getpid(), told, 0) == 0);
  const pid_t second = MUST(fork());
  if (second == 0) {
    CHECK(getpid() == 2 && raise(0) == 0);  // glibc's raise uses the number written at the fork
    _exit(6);
  }
  CHECK(second == 2);
  wait_for_exit(second, 6);
  _exit(5);
}

int main(void) {
  pid_t told = -1;
  pid_t child = -1;
  if (!MAY(child = fork_told(CLONE_NEWPID, &told))) return ok("not permitted");
  if (child == 0) is_first(told);
  wait_for_exit(child, 5);

  MUST(unshare(CLONE_NEWPID));
  child = MUST(fork_told(0, &told));
  if (child == 0) is_first(told);
  CHECK(child > 2 && told == -1);
  wait_for_exit(child, 5);
  return ok("two namespaces");
}
