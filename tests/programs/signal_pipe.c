// Writing to a pipe without readers: SIGPIPE, EPIPE, MSG_NOSIGNAL.
#include "test.h"

static volatile sig_atomic_t caught;
static void count(int signal) { caught += signal == SIGPIPE; }

int main(void) {
  int ends[2], sockets[2];
  MUST(pipe(ends));
  MUST(close(ends[0]));
  const pid_t child = MUST(fork());
  if (child == 0) {
    (void)!write(ends[1], "x", 1);
    _exit(1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);

  MUST(sigaction(SIGPIPE, &(struct sigaction){.sa_handler = count}, NULL));
  CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE && caught == 1);
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  MUST(close(sockets[0]));
  CHECK(send(sockets[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && caught == 1);
  CHECK(send(sockets[1], "x", 1, 0) == -1 && errno == EPIPE && caught == 2);
  signal(SIGPIPE, SIG_IGN);
  CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE && caught == 2);
  return ok("%d caught", (int)caught);
}
