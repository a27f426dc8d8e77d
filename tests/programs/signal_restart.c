// A blocked read that a signal interrupts: restarted with SA_RESTART, EINTR without.
#include "test.h"

static volatile sig_atomic_t caught;
static void count(int signal) { (void)signal, caught++; }

// Forks a child that signals the parent until told to stop by a byte in `stop`, then writes a byte to `to`.
static pid_t disturber(int to, int until_caught_fd) {
  const pid_t child = MUST(fork());
  if (child) return child;
  char byte;
  for (int i = 0; i < 5; i++) {
    usleep(5000);
    MUST(kill(getppid(), SIGUSR1));
  }
  if (until_caught_fd >= 0) read_all(until_caught_fd, &byte, 1);
  write_all(to, "x", 1);
  _exit(0);
}

int main(void) {
  int data[2], control[2];
  char byte = 0;
  MUST(pipe(data));
  MUST(pipe(control));
  struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
  MUST(sigaction(SIGUSR1, &action, NULL));
  pid_t child = disturber(data[1], -1);
  CHECK(read(data[0], &byte, 1) == 1 && byte == 'x' && caught >= 1);
  wait_for_exit(child, 0);

  caught = 0;
  action.sa_flags = 0;
  MUST(sigaction(SIGUSR1, &action, NULL));
  child = disturber(data[1], control[0]);
  errno = 0;
  CHECK(read(data[0], &byte, 1) == -1 && errno == EINTR && caught >= 1);
  write_all(control[1], "s", 1);
  int interrupted = 1;
  while (read(data[0], &byte, 1) == -1) CHECK(errno == EINTR), interrupted++;
  wait_for_exit(child, 0);
  return ok("%d interrupted", interrupted);
}
