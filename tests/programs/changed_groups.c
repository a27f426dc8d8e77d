// Processes leave their process group while a member of it is stopped; the kernel must not send SIGHUP to it because of that.
// images: 2
// period: 500us
#include "test.h"

enum { kLeavers = 60, kCalls = 1500 };

static void work(void) {
  for (int i = 0; i < kCalls; ++i) syscall(SYS_getppid);
}

int main(void) {
  const pid_t stopped = MUST(fork());
  if (stopped == 0) {
    raise(SIGSTOP);
    _exit(7);
  }
  int status = 0;
  CHECK(waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
  for (int i = 0; i < kLeavers; ++i) {
    const pid_t leaver = MUST(fork());
    if (leaver == 0) {
      work();
      if (i % 2) {
        MUST(setsid());
      } else {
        MUST(setpgid(0, 0));
      }
      work();
      _exit(3);
    }
    CHECK(waitpid(leaver, &status, 0) == leaver && WIFEXITED(status) && WEXITSTATUS(status) == 3);
  }
  MUST(kill(stopped, SIGCONT));
  CHECK(waitpid(stopped, &status, 0) == stopped && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  return ok("%d left", kLeavers);
}
