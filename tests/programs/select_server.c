// select and pselect over TCP clients and the listening socket.
#include "test.h"

#include <sys/select.h>

enum { kClients = 5 };

int main(void) {
  struct sockaddr_storage address;
  const int listener = bound_socket(AF_INET, SOCK_STREAM, &address);
  pid_t children[kClients];
  for (unsigned i = 0; i < kClients; i++) {
    if ((children[i] = MUST(fork())) != 0) continue;
    char buffer[100];
    const int fd = connected_to(&address);
    for (unsigned j = 0; j < 20; j++) {
      fill(buffer, sizeof buffer, i + j);
      write_all(fd, buffer, sizeof buffer);
      read_all(fd, buffer, sizeof buffer);
      CHECK(is_filled(buffer, sizeof buffer, i + j));
    }
    _exit(0);
  }
  fd_set watched, ready;
  FD_ZERO(&watched);
  FD_SET(listener, &watched);
  int highest = listener, finished = 0;
  for (int turn = 0; finished < kClients; turn++) {
    ready = watched;
    struct timeval limit = {20, 0};
    const struct timespec same_limit = {20, 0};
    const int n = turn % 2 ? select(highest + 1, &ready, NULL, NULL, &limit)
                           : pselect(highest + 1, &ready, NULL, NULL, &same_limit, &(sigset_t){0});
    CHECK(n > 0 && (turn % 2 == 0 || limit.tv_sec < 20 || limit.tv_usec == 0));
    for (int fd = 0; fd <= highest; fd++) {
      if (!FD_ISSET(fd, &ready)) continue;
      if (fd == listener) {
        const int accepted = MUST(accept(listener, NULL, NULL));
        FD_SET(accepted, &watched);
        if (accepted > highest) highest = accepted;
        continue;
      }
      char buffer[37];
      const ssize_t got = MUST(read(fd, buffer, sizeof buffer));
      if (got > 0) {
        write_all(fd, buffer, (size_t)got);
      } else {
        MUST(close(fd));
        FD_CLR(fd, &watched);
        finished++;
      }
    }
  }
  for (int i = 0; i < kClients; i++) wait_for_exit(children[i], 0);
  return ok("%d clients", kClients);
}
