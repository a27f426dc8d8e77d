// Files by their paths, with the calls of all generations: times, owners, modes, links, names; and what stat and related calls write.
#include "test.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <utime.h>

static struct stat status_of(const char* path) {
  struct stat status;
  MUST(syscall(SYS_stat, path, &status));
  NOTE(status);
  return status;
}

static void opened(void) {
  const int file = MUST(syscall(SYS_creat, "file", 0640));
  CHECK(write(file, "0123456789", 10) == 10);
  MUST(fdatasync(file));
  MUST(syncfs(file));
  MUST(sync_file_range(file, 0, 10, SYNC_FILE_RANGE_WRITE));
  MUST(close(file));
  MUST(truncate("file", 7));
  CHECK(status_of("file").st_size == 7);
  const int old = MUST(syscall(SYS_open, "file", O_RDONLY));
  MUST(readahead(old, 0, 4096));
  struct stat status;
  MUST(syscall(SYS_fstat, old, &status));
  NOTE(status);
  CHECK(status.st_size == 7);
  uint64_t range[2] = {0, 0}, cached[5] = {0};
  if (MAY(syscall(451, old, range, cached, 0))) NOTE(cached);
  MUST(close(old));
  struct open_how how = {.flags = O_RDWR, .resolve = RESOLVE_BENEATH};
  MUST(close(MUST(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how))));
  FAILS(syscall(SYS_openat2, AT_FDCWD, "../x", &how, sizeof how), EXDEV);
}

static void times(void) {
  MUST(syscall(SYS_utime, "file", &(struct utimbuf){1000, 2000}));
  CHECK(status_of("file").st_atime == 1000 && status_of("file").st_mtime == 2000);
  const struct timeval values[2] = {{3000, 5}, {4000, 6}};
  MUST(syscall(SYS_utimes, "file", values));
  CHECK(status_of("file").st_mtim.tv_nsec == 6000);
  MUST(syscall(SYS_futimesat, AT_FDCWD, "file", (const struct timeval[2]){{5000, 0}, {6000, 0}}));
  CHECK(status_of("file").st_mtime == 6000);
  MUST(utimensat(AT_FDCWD, "file", (const struct timespec[2]){{7000, 1}, {8000, UTIME_OMIT}}, 0));
  CHECK(status_of("file").st_atime == 7000 && status_of("file").st_mtime == 6000);
}

static void owners_and_modes(int file) {
  const uid_t user = getuid();
  const gid_t group = getgid();
  MUST(syscall(SYS_chown, "file", user, group));
  MUST(syscall(SYS_lchown, "file", user, group));
  MUST(fchown(file, user, group));
  MUST(fchownat(AT_FDCWD, "file", user, group, 0));
  MUST(fchmod(file, 0611));
  CHECK((status_of("file").st_mode & 0777) == 0611);
  MUST(syscall(SYS_fchmodat, AT_FDCWD, "file", 0622));
  CHECK((status_of("file").st_mode & 0777) == 0622);
  if (MAY(syscall(452, AT_FDCWD, "file", 0633, 0))) CHECK((status_of("file").st_mode & 0777) == 0633);
  MUST(syscall(SYS_faccessat, AT_FDCWD, "file", R_OK));
  FAILS(syscall(SYS_faccessat, AT_FDCWD, "none", R_OK), ENOENT);
  MUST(syscall(SYS_faccessat2, AT_FDCWD, "file", W_OK, AT_EACCESS));
}

static void names(int directory) {
  char target[64];
  MUST(mkdirat(directory, "sub", 0755));
  MUST(linkat(directory, "file", directory, "sub/hard", 0));
  CHECK(status_of("file").st_nlink == 2);
  MUST(renameat(directory, "sub/hard", directory, "harder"));
  FAILS(renameat2(directory, "harder", directory, "file", RENAME_NOREPLACE), EEXIST);
  MUST(symlinkat("harder", directory, "sub/soft"));
  CHECK(readlinkat(directory, "sub/soft", target, sizeof target) == 6 && memcmp(target, "harder", 6) == 0);
  struct stat status;
  MUST(syscall(SYS_lstat, "sub/soft", &status));
  CHECK(S_ISLNK(status.st_mode) && status.st_size == 6);
  NOTE(status);
  MUST(unlinkat(directory, "sub/soft", 0));
  MUST(unlinkat(directory, "sub", AT_REMOVEDIR));
  MUST(unlinkat(directory, "harder", 0));
  MUST(syscall(SYS_mknod, "fifo", S_IFIFO | 0600, 0));
  CHECK(S_ISFIFO(status_of("fifo").st_mode));
  MUST(fchdir(directory));
  MUST(unlink("fifo"));
}

static void file_systems(void) {
  struct statfs info;
  MUST(syscall(SYS_statfs, ".", &info));
  NOTE(info);
  CHECK(info.f_bsize > 0);
  // struct ustat no longer has a header.
  struct {
    int32_t blocks;
    uint64_t inodes;
    char names[12];
  } old;
  memset(&old, 7, sizeof old);
  if (MAY(syscall(SYS_ustat, status_of(".").st_dev, &old), EINVAL)) NOTE(old);
  char name[64] = {0};
  if (!MAY(syscall(SYS_sysfs, 3), EINVAL)) return;
  CHECK(syscall(SYS_sysfs, 3) > 0);
  const long index = MUST(syscall(SYS_sysfs, 1, "proc"));
  MUST(syscall(SYS_sysfs, 2, index, name));
  CHECK(strcmp(name, "proc") == 0);
}

// An opaque handle for a file, and the file opened by it.
static void handles(int directory) {
  struct {
    struct file_handle head;
    unsigned char bytes[128];
  } handle;
  int mount = 0;
  uint64_t unique = 0;
  handle.head.handle_bytes = 0;
  if (MAY(syscall(SYS_name_to_handle_at, AT_FDCWD, "file", &handle, &mount, 0), EOVERFLOW, EOPNOTSUPP)) return;
  CHECK(errno != EOVERFLOW || (handle.head.handle_bytes > 0 && handle.head.handle_bytes <= 128));
  handle.head.handle_bytes = 128;
  if (MAY(syscall(SYS_name_to_handle_at, AT_FDCWD, "file", &handle, &mount, 0), EOPNOTSUPP)) {
    note_bytes(&handle, sizeof handle.head + handle.head.handle_bytes);
    NOTE(mount);
    int file = -1;
    if (MAY(file = syscall(SYS_open_by_handle_at, directory, &handle, O_RDONLY))) MUST(close(file));
  }
  handle.head.handle_bytes = 128;
  if (MAY(syscall(SYS_name_to_handle_at, AT_FDCWD, "file", &handle, &unique, 1), EINVAL, EOPNOTSUPP)) NOTE(unique);
}

int main(void) {
  opened();
  times();
  const int file = MUST(open("file", O_RDWR)), directory = MUST(open(".", O_RDONLY | O_DIRECTORY));
  owners_and_modes(file);
  names(directory);
  handles(directory);
  file_systems();
  char entries[2000];
  const long bytes = MUST(syscall(SYS_getdents, directory, entries, sizeof entries));
  CHECK(bytes > 0);
  note_bytes(entries, (size_t)bytes);
  MUST(syscall(SYS_sync));
  // File attributes as of Linux 6.17, on a file system that may not support them.
  uint64_t attributes[3] = {0};
  if (MAY(syscall(468, AT_FDCWD, "file", attributes, sizeof attributes, 0), EOPNOTSUPP, ENOTTY)) NOTE(attributes);
  MAY(syscall(469, AT_FDCWD, "file", attributes, sizeof attributes, 0), EOPNOTSUPP, ENOTTY, EINVAL);
  return ok("%016lx", noted);
}
