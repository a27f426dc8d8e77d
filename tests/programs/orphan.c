// A double fork: the grandchild outlives its parent and continues to communicate; a subreaper inherits it.
#include "test.h"

#include <sys/prctl.h>

int main(void) {
  int ends[2], back[2];
  MUST(pipe(ends));
  MUST(pipe(back));
  MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
  const pid_t child = MUST(fork());
  if (child == 0) {
    const pid_t parent = getpid();
    if (MUST(fork()) == 0) {
      MUST(setsid());
      char byte;
      read_all(back[0], &byte, 1);  // the parent is gone by then
      const pid_t ids[2] = {getpid(), getppid()};
      pass_checkpoints();
      CHECK(ids[1] != parent);
      write_all(ends[1], ids, sizeof ids);
      _exit(9);
    }
    _exit(0);
  }
  wait_for_exit(child, 0);
  write_all(back[1], "g", 1);
  pid_t ids[2];
  read_all(ends[0], ids, sizeof ids);
  CHECK(ids[1] == getpid());
  wait_for_exit(ids[0], 9);
  return ok("orphan %d", ids[0]);
}
