// splice from pipe to pipe and between pipe, file and socket; tee; vmsplice.
#include "test.h"

#include <fcntl.h>
#include <sys/uio.h>

static size_t move(int from, int to, size_t size) {
  size_t moved = 0;
  while (moved < size) moved += (size_t)MUST(splice(from, NULL, to, NULL, size - moved, SPLICE_F_MOVE));
  return moved;
}

int main(void) {
  int a[2], b[2], c[2], sockets[2];
  char data[4000], found[4000];
  MUST(pipe(a)), MUST(pipe(b)), MUST(pipe(c));
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  const pid_t child = MUST(fork());
  if (child == 0) {  // a relay that never sees the bytes
    for (int i = 0; i < 20; i++) CHECK(move(a[0], b[1], sizeof data) == sizeof data);
    CHECK(move(a[0], sockets[1], sizeof data) == sizeof data);
    _exit(0);
  }
  for (unsigned i = 0; i < 20; i++) {
    fill(data, sizeof data, i);
    write_all(a[1], data, sizeof data);
    CHECK(tee(b[0], c[1], sizeof data, 0) > 0 || errno == EAGAIN);
    read_all(b[0], found, sizeof found);
    CHECK(is_filled(found, sizeof found, i));
    read_all(c[0], found, 100);
    CHECK(is_filled(found, 100, i));
    MUST(fcntl(c[0], F_SETFL, O_NONBLOCK));
    while (read(c[0], found, sizeof found) > 0) continue;
    MUST(fcntl(c[0], F_SETFL, 0));
  }
  struct iovec parts[2] = {{data, 1000}, {data + 1000, 3000}};
  fill(data, sizeof data, 77);
  CHECK(vmsplice(a[1], parts, 2, 0) == sizeof data);
  read_all(sockets[0], found, sizeof found);
  CHECK(is_filled(found, sizeof found, 77));
  wait_for_exit(child, 0);

  const int file = MUST(open("splice.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  MUST(unlink("splice.data"));
  write_all(a[1], data, sizeof data);
  CHECK(move(a[0], file, sizeof data) == sizeof data);
  loff_t offset = 500;
  CHECK(splice(file, &offset, b[1], NULL, 700, 0) == 700 && offset == 1200);
  read_all(b[0], found, 700);
  CHECK(memcmp(found, data + 500, 700) == 0);
  return ok("spliced");
}
