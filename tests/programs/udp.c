// UDP over v4 and v6: ping-pong, unconnected and connected; equal datagrams from two senders; an empty one.
#include "test.h"

enum { kTurns = 100 };

static void echo(int fd) {
  char buffer[1000];
  for (;;) {
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    const ssize_t n = MUST(recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr*)&from, &length));
    CHECK(sendto(fd, buffer, (size_t)n, 0, (struct sockaddr*)&from, length) == n);
    if (n == 0) _exit(0);
  }
}

static void talk(int family) {
  struct sockaddr_storage server, left, right;
  char buffer[1000];
  const int fd = bound_socket(family, SOCK_DGRAM, &server);
  const int a = bound_socket(family, SOCK_DGRAM, &left), b = bound_socket(family, SOCK_DGRAM, &right);
  const socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
  const pid_t child = MUST(fork());
  if (child == 0) echo(fd);
  MUST(close(fd));
  MUST(connect(b, (struct sockaddr*)&server, length));
  for (unsigned i = 0; i < kTurns; i++) {
    const size_t size = 1 + i * 9;
    fill(buffer, size, i);
    CHECK(sendto(a, buffer, size, 0, (struct sockaddr*)&server, length) == (ssize_t)size);
    CHECK(send(b, buffer, size, 0) == (ssize_t)size);
    memset(buffer, 0, size);
    CHECK(recv(b, buffer, sizeof buffer, 0) == (ssize_t)size && is_filled(buffer, size, i));
    CHECK(recv(a, buffer, sizeof buffer, 0) == (ssize_t)size && is_filled(buffer, size, i));
  }
  CHECK(send(b, "", 0, 0) == 0 && recv(b, buffer, sizeof buffer, 0) == 0);
  wait_for_exit(child, 0);
  MUST(close(a));
  MUST(close(b));
}

int main(void) {
  talk(AF_INET);
  struct sockaddr_storage address;
  const int probe = socket(AF_INET6, SOCK_DGRAM, 0);
  const int v6 = probe >= 0 && bind(probe, (struct sockaddr*)&address, loopback(AF_INET6, &address)) == 0;
  if (v6) talk(AF_INET6);
  return ok("%d families", 1 + v6);
}
