// Extended attributes of files, by path, by link and by descriptor. "trusted" ones work on every file system, for root.
#include "test.h"

#include <fcntl.h>
#include <sys/xattr.h>

static const char* const kLong = "trusted.redrive.long";
static const char* const kName = "trusted.redrive.test";

// Some file systems do not support it, and some users may not do it.
#define MAY_HERE(call) MAY(call, EOPNOTSUPP, ENODATA)

static void check_list(const char* list, ssize_t size) {
  CHECK(size > 0 && memmem(list, (size_t)size, kName, strlen(kName) + 1));
  note_bytes(list, (size_t)size);
}

static void by_path_and_descriptor(int file) {
  char value[64], list[2000];
  CHECK(getxattr("file", kName, value, sizeof value) == 5 && memcmp(value, "value", 5) == 0);
  CHECK(getxattr("file", kName, NULL, 0) == 5);
  FAILS(getxattr("file", kName, value, 3), ERANGE);
  check_list(list, listxattr("file", list, sizeof list));
  MUST(removexattr("file", kName));
  FAILS(getxattr("file", kName, value, sizeof value), ENODATA);

  MUST(fsetxattr(file, kName, "by descriptor", 13, XATTR_CREATE));
  CHECK(fgetxattr(file, kName, value, sizeof value) == 13 && memcmp(value, "by descriptor", 13) == 0);
  check_list(list, flistxattr(file, list, sizeof list));
  MUST(fremovexattr(file, kName));

  MUST(lsetxattr("link", kName, "of the link", 11, 0));
  CHECK(lgetxattr("link", kName, value, sizeof value) == 11 && memcmp(value, "of the link", 11) == 0);
  check_list(list, llistxattr("link", list, sizeof list));
  MUST(lremovexattr("link", kName));
}

// setxattrat and related calls (Linux 6.13).
static void at_directory(void) {
  struct {
    uint64_t value;
    uint32_t size, flags;
  } args = {(uintptr_t) "at", 2, 0};
  char value[64] = {0}, list[2000];
  if (MAY_HERE(syscall(463, AT_FDCWD, "file", 0, kLong, &args, sizeof args))) {
    args.value = (uintptr_t)value;
    args.size = sizeof value;
    CHECK(syscall(464, AT_FDCWD, "file", 0, kLong, &args, sizeof args) == 2 && memcmp(value, "at", 3) == 0);
    const long size = MUST(syscall(465, AT_FDCWD, "file", 0, list, sizeof list));
    note_bytes(list, (size_t)size);
    MUST(syscall(466, AT_FDCWD, "file", 0, kLong));
  } else {
    MAY_HERE(syscall(464, AT_FDCWD, "file", 0, kLong, &args, sizeof args));
    MAY_HERE(syscall(465, AT_FDCWD, "file", 0, list, sizeof list));
    MAY_HERE(syscall(466, AT_FDCWD, "file", 0, kLong));
  }
}

int main(void) {
  const int file = MUST(open("file", O_RDWR | O_CREAT, 0644));
  MUST(symlink("file", "link"));
  if (MAY_HERE(setxattr("file", kName, "value", 5, 0))) {
    by_path_and_descriptor(file);
  } else {
    char value[64];
    MAY_HERE(getxattr("file", kName, value, sizeof value));
    MAY_HERE(lgetxattr("link", kName, value, sizeof value));
    MAY_HERE(fgetxattr(file, kName, value, sizeof value));
    MAY_HERE(listxattr("file", value, sizeof value));
    MAY_HERE(llistxattr("link", value, sizeof value));
    MAY_HERE(flistxattr(file, value, sizeof value));
    MAY_HERE(lsetxattr("link", kName, value, 1, 0));
    MAY_HERE(fsetxattr(file, kName, value, 1, 0));
    MAY_HERE(removexattr("file", kName));
    MAY_HERE(lremovexattr("link", kName));
    MAY_HERE(fremovexattr(file, kName));
  }
  at_directory();
  return ok("%016lx", noted);
}
