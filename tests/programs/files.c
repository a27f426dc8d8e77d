// Ordinary files: every way to read, write, name and inspect them.
#include "test.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

int main(void) {
  char wanted[10000], found[10000], link[64];
  fill(wanted, sizeof wanted, 1);
  const int fd = MUST(open("files.data", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640));
  write_all(fd, wanted, sizeof wanted);
  CHECK(lseek(fd, 0, SEEK_CUR) == sizeof wanted && lseek(fd, 100, SEEK_SET) == 100);
  read_all(fd, found, 1000);
  CHECK(memcmp(found, wanted + 100, 1000) == 0);
  CHECK(pwrite(fd, "xyz", 3, 5000) == 3 && pread(fd, found, 3, 5000) == 3 && memcmp(found, "xyz", 3) == 0);
  CHECK(read(fd, found, 0) == 0 && lseek(fd, 0, SEEK_END) == sizeof wanted && read(fd, found, 10) == 0);

  struct stat by_fd, by_name;
  MUST(fstat(fd, &by_fd));
  MUST(stat("files.data", &by_name));
  CHECK(by_fd.st_ino == by_name.st_ino && by_fd.st_size == sizeof wanted && (by_fd.st_mode & 0777) == 0640);
  struct statx extended;
  MUST(statx(AT_FDCWD, "files.data", 0, STATX_ALL, &extended));
  CHECK(extended.stx_size == sizeof wanted && extended.stx_ino == by_fd.st_ino);
  struct statfs system;
  MUST(fstatfs(fd, &system));

  MUST(flock(fd, LOCK_EX));
  MUST(ftruncate(fd, 6000));
  MUST(fallocate(fd, 0, 0, 8000));
  MUST(fsync(fd));
  pass_checkpoints();
  MUST(flock(fd, LOCK_UN));
  CHECK(fstat(fd, &by_fd) == 0 && by_fd.st_size == 8000);

  MUST(symlink("files.data", "files.link"));
  CHECK(readlink("files.link", link, sizeof link) == 10 && memcmp(link, "files.data", 10) == 0);
  MUST(rename("files.data", "files.moved"));
  CHECK(access("files.data", F_OK) == -1 && errno == ENOENT && access("files.moved", R_OK | W_OK) == 0);
  CHECK(stat("files.link", &by_name) == -1 && errno == ENOENT && lstat("files.link", &by_name) == 0);
  MUST(chmod("files.moved", 0600));
  MUST(unlink("files.link"));
  MUST(unlink("files.moved"));
  CHECK(pread(fd, found, 3, 5000) == 3 && memcmp(found, "xyz", 3) == 0);
  MUST(close(fd));
  CHECK(close(fd) == -1 && errno == EBADF && open("files.absent", O_RDONLY) == -1 && errno == ENOENT);
  return ok("inode %lu", (unsigned long)by_fd.st_ino);
}
