// signalfd: signals, child exits among them, received as data.
#include "test.h"

#include <poll.h>
#include <sys/signalfd.h>

int main(void) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  sigaddset(&mask, SIGCHLD);
  MUST(sigprocmask(SIG_BLOCK, &mask, NULL));
  const int fd = MUST(signalfd(-1, &mask, SFD_NONBLOCK));
  struct signalfd_siginfo info[4];
  CHECK(read(fd, info, sizeof info) == -1 && errno == EAGAIN);
  for (int i = 0; i < 20; i++) {
    MUST(kill(getpid(), SIGUSR1));
    CHECK(read(fd, info, sizeof info) == sizeof *info && info->ssi_signo == SIGUSR1 && (pid_t)info->ssi_pid == getpid());
  }
  for (int i = 0; i < 5; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) _exit(i);
    CHECK(poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1) == 1);
    CHECK(read(fd, info, sizeof info) == sizeof *info && info->ssi_signo == SIGCHLD && (pid_t)info->ssi_pid == child);
    wait_for_exit(child, i);
  }
  return ok("25 signals");
}
