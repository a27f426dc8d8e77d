// sendfile from a file to a socket and to a pipe, copy_file_range between files.
#include "test.h"

#include <fcntl.h>
#include <sys/sendfile.h>

enum { kSize = 300000 };
static char data[kSize];

int main(void) {
  int sockets[2], ends[2];
  fill(data, kSize, 6);
  const int file = MUST(open("sendfile.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
  write_all(file, data, kSize);
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    memset(data, 0, kSize);
    read_all(sockets[1], data, kSize);
    CHECK(is_filled(data, kSize, 6));
    read_all(ends[0], data, 1000);
    write_all(sockets[1], data, 1000);
    _exit(0);
  }
  off_t offset = 0;
  while (offset < kSize) CHECK(sendfile(sockets[0], file, &offset, (size_t)(kSize - offset)) > 0);
  CHECK(lseek(file, 5000, SEEK_SET) == 5000 && sendfile(ends[1], file, NULL, 1000) == 1000);
  CHECK(lseek(file, 0, SEEK_CUR) == 6000);
  char back[1000];
  read_all(sockets[0], back, 1000);
  CHECK(memcmp(back, data + 5000, 1000) == 0);
  wait_for_exit(child, 0);

  const int copy = MUST(open("sendfile.copy", O_RDWR | O_CREAT | O_TRUNC, 0600));
  off_t from = 0, to = 0;
  while (from < kSize) CHECK(copy_file_range(file, &from, copy, &to, (size_t)(kSize - from), 0) > 0);
  memset(data, 0, kSize);
  CHECK(pread(copy, data, kSize, 0) == kSize && is_filled(data, kSize, 6));
  MUST(unlink("sendfile.data"));
  MUST(unlink("sendfile.copy"));
  return ok("%d bytes", kSize);
}
