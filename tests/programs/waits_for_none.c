// A program that looks for ended children of all kinds, without sleeping, hears that it has none, or none of those that it asks for.
// period: 5ms
#include "test.h"

enum { ROUNDS = 600 };

static void look_in_vain(pid_t group) {
  int status = 0;
  siginfo_t info = {.si_pid = 1};
  FAILS(waitpid(0, &status, WNOHANG | __WALL), ECHILD);
  FAILS(waitpid(-group, &status, WNOHANG | __WALL), ECHILD);
  FAILS(waitpid(-1, &status, WNOHANG | __WCLONE), ECHILD);
  FAILS(waitid(P_PGID, (id_t)group, &info, WEXITED | WNOHANG | __WALL), ECHILD);
  CHECK(status == 0 && info.si_pid == 0);
}

int main(void) {
  siginfo_t info = {0};
  for (int i = 0; i < ROUNDS; i++) {
    compute(1, 5);
    FAILS(waitpid(-1, NULL, WNOHANG | __WALL), ECHILD);
    FAILS(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WALL), ECHILD);
    look_in_vain(getpgrp());
  }
  int ends[2];
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    close(ends[1]);
    char byte;
    read(ends[0], &byte, 1);
    _exit(3);
  }
  MUST(setpgid(child, child));
  for (int i = 0; i < ROUNDS; i++) {
    compute(1, 5);
    CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == 0);
    CHECK(waitpid(-child, NULL, WNOHANG | __WALL) == 0);
    CHECK(waitid(P_PGID, (id_t)child, &info, WEXITED | WNOHANG | __WALL) == 0 && info.si_pid == 0);
    look_in_vain(getpgrp());
  }
  close(ends[1]);
  wait_for_exit(child, 3);
  return ok("no children");
}
