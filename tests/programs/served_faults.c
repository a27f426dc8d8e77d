// Calls that are made over and over, with good arguments and with bad ones: what a recorder that serves them without a stop must leave to the
// kernel. Buffers at the edge of memory, vectors of many lengths, more bytes than any ring holds.
#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

int main(void) {
  const long page = sysconf(_SC_PAGESIZE);
  char* const memory = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  MUST(munmap(memory + page, (size_t)page));
  char* const edge = memory + page;
  char* volatile const bad = (char*)16;
  volatile const int negative = -1;
  const int zero = MUST(open("/dev/zero", O_RDWR));
  const int file = MUST(open("file", O_RDWR | O_CREAT, 0600));
  struct stat info;
  char path[PATH_MAX];
  for (int round = 0; round < 20; round++) {
    memset(memory, round + 1, (size_t)page);
    CHECK(read(zero, edge - 8, 8) == 8 && edge[-1] == 0 && edge[-9] == round + 1);
    FAILS(read(zero, bad, 8), EFAULT);
    FAILS(write(file, edge, 1), EFAULT);
    CHECK(pwrite(file, edge - 100, 100, 0) == 100);
    CHECK(pread(file, edge - 100, 100, 0) == 100);
    FAILS(pread(-1, edge - 100, 100, 0), EBADF);
    FAILS(pwrite(file, bad, 8, 0), EFAULT);
    strcpy(edge - 5, "file");
    CHECK(stat(edge - 5, &info) == 0 && info.st_size == 100);
    memset(edge - 4, 'x', 4);
    FAILS(stat(edge - 4, &info), EFAULT);
    FAILS(stat(bad, &info), EFAULT);
    FAILS(fstat(file, (struct stat*)bad), EFAULT);
    memset(path, 'p', sizeof path);
    FAILS(access(path, F_OK), ENAMETOOLONG);
    struct iovec parts[4] = {{edge - 3, 3}, {NULL, 0}, {edge - 10, 5}, {edge - 40, 20}};
    CHECK(readv(zero, parts, 4) == 28);
    CHECK(pwritev(file, parts, 4, 50) == 28);
    parts[2].iov_base = bad;
    const ssize_t n = readv(zero, parts, 4);
    CHECK(n == 3 || (n == -1 && errno == EFAULT));
    FAILS(readv(zero, (struct iovec*)bad, 4), EFAULT);
    FAILS(readv(zero, parts, negative), EINVAL);
    FAILS(syscall(SYS_clock_gettime, CLOCK_REALTIME, bad), EFAULT);
    FAILS(syscall(SYS_clock_gettime, 12345, memory), EINVAL);
  }
  // As much as fits, a little more, and far more than a recorder can hold at once.
  static char big[3 << 20];
  for (size_t size = 1; size <= sizeof big; size *= 3) {
    for (int round = 0; round < 4; round++) {
      memset(big, round + 1, size);
      CHECK(pwrite(file, big, size, 0) == (ssize_t)size);
      memset(big, 0, size);
      CHECK(pread(file, big, size, 0) == (ssize_t)size);
      CHECK(big[0] == round + 1 && big[size / 2] == round + 1 && big[size - 1] == round + 1);
    }
  }
  pass_checkpoints();
  MUST(unlink("file"));
  return ok("%ld", page);
}
