// Timeouts that are longer than any clock lasts, of calls that are woken and entered again.
#include "test.h"

#include <limits.h>
#include <sys/epoll.h>
#include <time.h>

static void wake_and_end(pid_t parent) {
  usleep(20000);
  kill(parent, SIGWINCH);  // is ignored
  usleep(20000);
  kill(parent, SIGUSR1);
}

int main(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  MUST(sigprocmask(SIG_BLOCK, &set, NULL));
  const struct timespec times[] = {{LONG_MAX, 999999999}, {LONG_MAX / 1000000000, 0}, {9000000000, 5}};
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    const pid_t parent = getpid();
    const pid_t child = MUST(fork());
    if (child == 0) wake_and_end(parent), _exit(0);
    siginfo_t info;
    CHECK(sigtimedwait(&set, &info, &times[i]) == SIGUSR1);
    CHECK(times[0].tv_sec == LONG_MAX);
    wait_for_exit(child, 0);
  }
  return ok("no timeout");
}
