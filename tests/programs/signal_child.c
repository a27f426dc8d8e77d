// SIGCHLD: a handler reaps children while the parent does other things.
#include "test.h"

enum { kChildren = 10 };
static volatile sig_atomic_t reaped, sum;

static void reap(int signal) {
  (void)signal;
  const int saved = errno;
  int status;
  while (waitpid(-1, &status, WNOHANG) > 0) {
    CHECK(WIFEXITED(status));
    sum += WEXITSTATUS(status);
    reaped++;
  }
  errno = saved;
}

int main(void) {
  struct sigaction action = {.sa_handler = reap, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
  MUST(sigaction(SIGCHLD, &action, NULL));
  sigset_t child, old;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  int expected = 0;
  for (int i = 1; i <= kChildren; i++) {
    if (MUST(fork()) == 0) _exit(i);
    expected += i;
    (void)compute(1, 5);
    CHECK(getppid() >= 0);
  }
  MUST(sigprocmask(SIG_BLOCK, &child, &old));
  while (reaped < kChildren) CHECK(sigsuspend(&old) == -1 && errno == EINTR);
  MUST(sigprocmask(SIG_SETMASK, &old, NULL));
  CHECK(sum == expected && waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
  return ok("%d reaped", kChildren);
}
