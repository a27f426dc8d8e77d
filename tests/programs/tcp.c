// TCP over v4 and v6: ping-pong, names of both ends, half-close, a bulk transfer, a refused connection.
#include "test.h"

enum { kBulk = 600000 };
static char bulk[kBulk];

static void server(int listener) {
  struct sockaddr_storage peer;
  socklen_t length = sizeof peer;
  char buffer[100];
  const int fd = MUST(accept(listener, (struct sockaddr*)&peer, &length));
  for (unsigned i = 0; i < 100; i++) {
    read_all(fd, buffer, sizeof buffer);
    CHECK(is_filled(buffer, sizeof buffer, i));
    fill(buffer, sizeof buffer, i + 1);
    write_all(fd, buffer, sizeof buffer);
  }
  fill(bulk, kBulk, 3);
  write_all(fd, bulk, kBulk);
  MUST(shutdown(fd, SHUT_WR));
  CHECK(read(fd, buffer, 1) == 0);
  _exit(0);
}

static void client(const struct sockaddr_storage* address) {
  const int fd = connected_to(address);
  const int one = 1;
  char buffer[100];
  MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
  struct sockaddr_storage peer;
  socklen_t length = sizeof peer;
  MUST(getpeername(fd, (struct sockaddr*)&peer, &length));
  CHECK(memcmp(&peer, address, 8) == 0);
  for (unsigned i = 0; i < 100; i++) {
    fill(buffer, sizeof buffer, i);
    write_all(fd, buffer, sizeof buffer);
    read_all(fd, buffer, sizeof buffer);
    CHECK(is_filled(buffer, sizeof buffer, i + 1));
  }
  CHECK(recv(fd, bulk, kBulk, MSG_WAITALL) == kBulk && is_filled(bulk, kBulk, 3));
  CHECK(read(fd, buffer, 1) == 0);
  MUST(close(fd));
}

int main(void) {
  const int families[] = {AF_INET, AF_INET6};
  int used = 0;
  for (int f = 0; f < 2; f++) {
    struct sockaddr_storage address;
    const int probe = socket(families[f], SOCK_STREAM, 0);
    if (probe < 0 || bind(probe, (struct sockaddr*)&address, loopback(families[f], &address)) < 0) continue;  // no IPv6
    MUST(close(probe));
    const int listener = bound_socket(families[f], SOCK_STREAM, &address);
    const pid_t child = MUST(fork());
    if (child == 0) server(listener);
    client(&address);
    wait_for_exit(child, 0);
    MUST(close(listener));
    const int silent = MUST(socket(families[f], SOCK_STREAM, 0));  // reserves a port on which nobody listens
    socklen_t length = loopback(families[f], &address);
    MUST(bind(silent, (struct sockaddr*)&address, length));
    MUST(getsockname(silent, (struct sockaddr*)&address, &length));
    const int refused = MUST(socket(families[f], SOCK_STREAM, 0));
    CHECK(connect(refused, (struct sockaddr*)&address, sizeof address) == -1 && errno == ECONNREFUSED);
    MUST(close(refused));
    MUST(close(silent));
    used++;
  }
  CHECK(used > 0);
  return ok("%d families", used);
}
