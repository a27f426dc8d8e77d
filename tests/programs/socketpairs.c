// Socket pairs of all three types: streams join, datagrams and packets keep their boundaries, long ones are cut.
#include "test.h"

static void answer(int fd, int type) {
  char buffer[2000];
  for (int i = 0; i < 40; i++) {
    ssize_t n;
    if (type == SOCK_STREAM) {
      read_all(fd, buffer, (size_t)(n = 100 + i));
    } else {
      n = MUST(recv(fd, buffer, sizeof buffer, 0));
      CHECK(n == 100 + i);
    }
    CHECK(is_filled(buffer, (size_t)n, (unsigned)i));
    buffer[0] ^= 1;
    CHECK(send(fd, buffer, (size_t)n, 0) == n);
  }
  CHECK(shutdown(fd, SHUT_WR) == 0);
}

static void ask(int fd, int type) {
  char buffer[2000];
  for (int i = 0; i < 40; i++) {
    const size_t size = (size_t)(100 + i);
    fill(buffer, size, (unsigned)i);
    if (type == SOCK_STREAM) {  // in two pieces, received as one
      write_all(fd, buffer, 33);
      write_all(fd, buffer + 33, size - 33);
      read_all(fd, buffer, size);
    } else {
      CHECK(send(fd, buffer, size, 0) == (ssize_t)size);
      struct iovec part = {buffer, 50};  // too small on purpose
      struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
      CHECK(recvmsg(fd, &message, 0) == 50 && (message.msg_flags & MSG_TRUNC));
    }
    buffer[0] ^= 1;
    CHECK(is_filled(buffer, 50, (unsigned)i));
  }
}

int main(void) {
  const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
  for (int t = 0; t < 3; t++) {
    int ends[2];
    char byte;
    MUST(socketpair(AF_UNIX, types[t], 0, ends));
    const pid_t child = MUST(fork());
    if (child == 0) {
      MUST(close(ends[0]));
      answer(ends[1], types[t]);
      _exit(0);
    }
    MUST(close(ends[1]));
    ask(ends[0], types[t]);
    wait_for_exit(child, 0);
    if (types[t] != SOCK_DGRAM) CHECK(read(ends[0], &byte, 1) == 0);
    MUST(close(ends[0]));
  }
  return ok("3 types");
}
