// MSG_PEEK and FIONREAD: bytes and datagrams that are peeked at first and received later, in other portions.
#include "test.h"

#include <poll.h>
#include <sys/ioctl.h>

int main(void) {
  int stream[2], datagram[2];
  char data[600], found[600];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram));
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (unsigned i = 0; i < 30; i++) {
      fill(data, sizeof data, i);
      write_all(stream[1], data, 250);
      write_all(stream[1], data + 250, 350);
      CHECK(send(datagram[1], data, 100 + i, 0) == 100 + (ssize_t)i);
      read_all(stream[1], data, 1);
    }
    _exit(0);
  }
  for (unsigned i = 0; i < 30; i++) {
    CHECK(recv(stream[0], found, 400, MSG_PEEK | MSG_WAITALL) >= 1 && is_filled(found, 1, i));
    CHECK(poll(&(struct pollfd){stream[0], POLLIN, 0}, 1, -1) == 1);
    CHECK(recv(stream[0], found, 10, MSG_PEEK) == 10 && is_filled(found, 10, i));
    read_all(stream[0], found, 10);
    int waiting = 0;
    CHECK(recv(stream[0], found + 10, 20, MSG_PEEK) == 20 && is_filled(found, 30, i));
    read_all(stream[0], found + 10, 590);
    CHECK(is_filled(found, 600, i));
    MUST(ioctl(stream[0], FIONREAD, &waiting));
    CHECK(waiting == 0);
    CHECK(recv(datagram[0], found, 5, MSG_PEEK | MSG_TRUNC) == 100 + (ssize_t)i);
    CHECK(recv(datagram[0], found, sizeof found, 0) == 100 + (ssize_t)i && is_filled(found, 100 + i, i));
    write_all(stream[0], "n", 1);
  }
  wait_for_exit(child, 0);
  return ok("peeked");
}
