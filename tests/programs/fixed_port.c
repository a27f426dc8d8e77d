// args: 0
// A TCP and a UDP server on the given port (0: any), each with a client: for replays while others use the port.
#include "test.h"

int main(int argc, char** argv) {
  const int one = 1;
  struct sockaddr_storage address;
  socklen_t length = loopback(AF_INET, &address);
  ((struct sockaddr_in*)&address)->sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0));
  const int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), udp = MUST(socket(AF_INET, SOCK_DGRAM, 0));
  MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
  MUST(bind(listener, (struct sockaddr*)&address, length));
  MUST(getsockname(listener, (struct sockaddr*)&address, &length));
  MUST(bind(udp, (struct sockaddr*)&address, length));
  MUST(listen(listener, 5));
  const pid_t child = MUST(fork());
  char data[100];
  if (child == 0) {
    MUST(close(udp));
    const int fd = connected_to(&address), datagrams = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    for (unsigned i = 0; i < 100; i++) {
      fill(data, sizeof data, i);
      write_all(fd, data, sizeof data);
      CHECK(sendto(datagrams, data, 50, 0, (struct sockaddr*)&address, length) == 50);
      read_all(fd, data, 1);
    }
    _exit(0);
  }
  const int fd = MUST(accept(listener, NULL, NULL));
  for (unsigned i = 0; i < 100; i++) {
    read_all(fd, data, sizeof data);
    CHECK(is_filled(data, sizeof data, i));
    CHECK(recv(udp, data, sizeof data, 0) == 50 && is_filled(data, 50, i));
    (void)compute(i, 15);
    write_all(fd, "n", 1);
  }
  wait_for_exit(child, 0);
  return ok("100 requests");
}
