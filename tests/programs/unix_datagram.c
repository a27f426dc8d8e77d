// Unix datagrams between two named sockets, answered to the address that they came from.
#include "test.h"

#include <sys/un.h>

static int named(const char* name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, name);
  const int fd = MUST(socket(AF_UNIX, SOCK_DGRAM, 0));
  MUST(bind(fd, (struct sockaddr*)&address, sizeof address));
  return fd;
}

int main(void) {
  char buffer[1000];
  const int left = named("datagram.left"), right = named("datagram.right");
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (unsigned i = 0; i < 100; i++) {
      struct sockaddr_un from;
      socklen_t length = sizeof from;
      const ssize_t n = MUST(recvfrom(right, buffer, sizeof buffer, 0, (struct sockaddr*)&from, &length));
      CHECK(n == 10 + (ssize_t)i && is_filled(buffer, (size_t)n, i) && strcmp(from.sun_path, "datagram.left") == 0);
      CHECK(sendto(right, buffer, (size_t)n, 0, (struct sockaddr*)&from, length) == n);
    }
    _exit(0);
  }
  struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "datagram.right"};
  MUST(connect(left, (struct sockaddr*)&to, sizeof to));
  for (unsigned i = 0; i < 100; i++) {
    fill(buffer, 10 + i, i);
    CHECK(send(left, buffer, 10 + i, 0) == 10 + (ssize_t)i);
    CHECK(recv(left, buffer, sizeof buffer, 0) == 10 + (ssize_t)i && is_filled(buffer, 10 + i, i));
    if (i % 10 == 0) (void)compute(i, 20);
  }
  CHECK(recv(left, buffer, sizeof buffer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  wait_for_exit(child, 0);
  MUST(unlink("datagram.left"));
  MUST(unlink("datagram.right"));
  return ok("100 datagrams");
}
