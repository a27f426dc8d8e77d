// What clone(2) writes for the parent, a descriptor for the child or the child's id: with children that a replay of the parent does not
// need, and with those that share its memory.
// images: 1
#include "test.h"

#include <poll.h>
#include <sched.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static void reap_by(int descriptor, int status) {
  struct pollfd end = {.fd = descriptor, .events = POLLIN};
  CHECK(MUST(poll(&end, 1, -1)) == 1);
  siginfo_t info = {0};
  MUST(waitid((idtype_t)P_PIDFD, (id_t)descriptor, &info, WEXITED));
  CHECK(info.si_status == status);
  MUST(close(descriptor));
}

int main(void) {
  int descriptor = -1;
  long child = MUST(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &descriptor, 0, 0));
  if (child == 0) _exit(3);
  CHECK(descriptor > 2);
  NOTE(descriptor);
  reap_by(descriptor, 3);

  int id = -1;
  child = MUST(syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, 0, &id, 0, 0));
  if (child == 0) _exit(id == -1 ? 4 : 5);  // the word is the parent's
  CHECK(id == child);
  pass_checkpoints();
  wait_for_exit((pid_t)child, 4);

  int own = -1;
  child = MUST(syscall(SYS_clone, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, 0, 0, &own, 0));
  if (child == 0) _exit(own == getpid() ? 6 : 7);
  CHECK(own == -1);
  wait_for_exit((pid_t)child, 6);

  descriptor = -1;
  child = MUST(syscall(SYS_clone, CLONE_PIDFD | CLONE_VFORK | SIGCHLD, 0, &descriptor, 0, 0));
  if (child == 0) _exit(8);
  CHECK(descriptor > 2);
  NOTE(descriptor);
  reap_by(descriptor, 8);
  return ok("%016llx", (unsigned long long)noted);
}
