// TCP connections that are over, at both ends, some microseconds after they were made: what has gone through them was sent by somebody who is recorded. Each
// child accepts one, so that its only accept(2) is the first call of that instruction, and its other calls are not.
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>

enum { CONNECTIONS = 40, SIZE = 100 };

// Both ends are shut before either is closed, so that neither has an address any more.
static void talk(int fd, bool first) {
  char buffer[SIZE];
  fill(buffer, SIZE, first);
  if (first) write_all(fd, buffer, SIZE);
  read_all(fd, buffer, SIZE);
  CHECK(is_filled(buffer, SIZE, !first));
  fill(buffer, SIZE, first);
  if (!first) write_all(fd, buffer, SIZE);
  MUST(shutdown(fd, SHUT_WR));
  CHECK(read(fd, buffer, 1) == 0);
}

static int connected_at_once(const struct sockaddr_storage* address) {
  const int fd = connected_to(address);
  return fd;
}

static int connected_later(const struct sockaddr_storage* address) {
  const int fd = MUST(socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  CHECK(connect(fd, (const struct sockaddr*)address, sizeof(struct sockaddr_in)) == 0 || errno == EINPROGRESS);
  struct pollfd wanted = {.fd = fd, .events = POLLOUT};
  CHECK(MUST(poll(&wanted, 1, -1)) == 1);
  MUST(fcntl(fd, F_SETFL, 0));
  return fd;
}

int main(void) {
  struct sockaddr_storage address;
  loopback(AF_INET, &address);
  const int listener = bound_socket(AF_INET, SOCK_STREAM, &address);
  for (int i = 0; i < CONNECTIONS; i++) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      talk(MUST(accept(listener, NULL, NULL)), false);
      _exit(0);
    }
    usleep(i % 4 ? 500 : 30000);
    const int fd = i % 2 ? connected_later(&address) : connected_at_once(&address);
    talk(fd, true);
    MUST(close(fd));
    wait_for_exit(child, 0);
  }
  return ok("%d connections", CONNECTIONS);
}
