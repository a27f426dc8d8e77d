// readv, writev, preadv2, pwritev and sendmsg/recvmsg with several parts, split at every place.
#include "test.h"

#include <fcntl.h>
#include <sys/uio.h>

int main(void) {
  int ends[2], sockets[2];
  char data[1000], found[1000];
  fill(data, sizeof data, 8);
  MUST(pipe(ends));
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (size_t cut = 1; cut < 999; cut += 13) {
      struct iovec parts[3] = {{data, cut}, {data + cut, 0}, {data + cut, sizeof data - cut}};
      CHECK(writev(ends[1], parts, 3) == sizeof data);
      struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
      CHECK(sendmsg(sockets[1], &message, 0) == sizeof data);
    }
    _exit(0);
  }
  for (size_t cut = 1; cut < 999; cut += 13) {
    struct iovec parts[2] = {{found + 1000 - cut, cut}, {found, 1000 - cut}};
    memset(found, 0, sizeof found);
    CHECK(readv(ends[0], parts, 2) == sizeof data);
    CHECK(memcmp(parts[0].iov_base, data, cut) == 0 && memcmp(found, data + cut, 1000 - cut) == 0);
    memset(found, 0, sizeof found);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    CHECK(recvmsg(sockets[0], &message, MSG_WAITALL) == sizeof data);
    CHECK(memcmp(parts[0].iov_base, data, cut) == 0 && memcmp(found, data + cut, 1000 - cut) == 0);
  }
  wait_for_exit(child, 0);

  const int file = MUST(open("vectors.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(unlink("vectors.data"));
  struct iovec parts[2] = {{data, 600}, {data + 600, 400}}, into[2] = {{found, 300}, {found + 300, 700}};
  CHECK(pwritev(file, parts, 2, 50) == 1000 && preadv(file, into, 2, 50) == 1000 && memcmp(found, data, 1000) == 0);
  CHECK(preadv2(file, into, 2, 550, 0) == 500 && memcmp(found, data + 500, 500) == 0);
  return ok("vectors");
}
