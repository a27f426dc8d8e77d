// Job control: a child is stopped, continued and killed, and its parent sees each.
#include "test.h"

int main(void) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (;;) pause();
  }
  int status;
  for (int i = 0; i < 3; i++) {
    MUST(kill(child, SIGSTOP));
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    CHECK(waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
    MUST(kill(child, SIGCONT));
    CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
  }
  MUST(kill(child, SIGKILL));
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  return ok("stopped");
}
