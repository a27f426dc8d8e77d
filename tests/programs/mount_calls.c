// Mounts by the old calls and by the new ones, in a mount namespace of its own; without the right to make one, all of them fail.
#include "test.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/stat.h>

static long mounted(const char* what, const char* where, const char* type, unsigned long flags, const char* options) {
  return syscall(SYS_mount, what, where, type, flags, options);
}

static long configure(int context, unsigned command, const char* key, const void* value, int number) {
  return syscall(SYS_fsconfig, context, command, key, value, number);
}

static void make_file(const char* path) { MUST(close(MUST(open(path, O_WRONLY | O_CREAT, 0600)))); }

static void old_calls(void) {
  if (!MAY(mounted("none", "old", "tmpfs", MS_NOSUID, "size=1m,mode=711"))) {
    MAY(syscall(SYS_umount2, "old", 0), EINVAL);
    return;
  }
  struct stat status;
  MUST(stat("old", &status));
  CHECK((status.st_mode & 0777) == 0711);
  make_file("old/file");
  MUST(syscall(SYS_umount2, "old", 2 /* MNT_DETACH */));
  FAILS(access("old/file", F_OK), ENOENT);
}

// A file system that is made step by step, and attached.
static void new_calls(void) {
  int context = -1;
  if (!MAY(context = syscall(SYS_fsopen, "tmpfs", 0))) {
    for (unsigned command = 0; command <= 8; command++) MAY(configure(-1, command, NULL, NULL, 0), EBADF, EINVAL);
    MAY(syscall(SYS_fsmount, -1, 0, 0), EBADF);
    MAY(syscall(SYS_move_mount, -1, "", AT_FDCWD, "new", 4), EBADF, EINVAL);
    return;
  }
  const int directory = MUST(open(".", O_PATH | O_DIRECTORY));
  CHECK(configure(context, 0, "redrive-has-none", NULL, 0) == -1);
  MUST(configure(context, 1, "size", "1048576", 0));
  CHECK(configure(context, 2, "redrive-has-none", "binary", 6) == -1);
  CHECK(configure(context, 3, "redrive-has-none", "path", AT_FDCWD) == -1);
  CHECK(configure(context, 4, "redrive-has-none", "", directory) == -1);
  CHECK(configure(context, 5, "redrive-has-none", NULL, directory) == -1);
  char message[200];
  memset(message, 0, sizeof message);
  CHECK(read(context, message, sizeof message) > 0 && strstr(message, "redrive-has-none"));
  MAY(configure(context, 8, NULL, NULL, 0), EOPNOTSUPP, EINVAL, EBUSY);
  MAY(configure(context, 6, NULL, NULL, 0), EBUSY);
  const int made = MUST(syscall(SYS_fsmount, context, 0, 0));
  MUST(syscall(SYS_move_mount, made, "", AT_FDCWD, "new", 4 /* MOVE_MOUNT_F_EMPTY_PATH */));
  make_file("new/file");
  const int again = MUST(syscall(SYS_fspick, AT_FDCWD, "new", 0));
  MUST(configure(again, 1, "size", "2097152", 0));
  MUST(configure(again, 7, NULL, NULL, 0));
}

static void trees(void) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
  int tree = -1;
  if (MAY(tree = syscall(SYS_open_tree, AT_FDCWD, "new", 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC), EINVAL)) {
    MUST(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes));
    FAILS(openat(tree, "other", O_WRONLY | O_CREAT, 0600), EROFS);
  } else {
    MAY(syscall(SYS_mount_setattr, AT_FDCWD, "new", 0, &attributes, sizeof attributes), EINVAL);
    MAY(syscall(SYS_fspick, AT_FDCWD, "new", 0), EINVAL);
  }
  MAY(syscall(467 /* open_tree_attr */, AT_FDCWD, "new", 1L | O_CLOEXEC, &attributes, sizeof attributes), EINVAL);
}

// statmount and listmount (Linux 6.8).
static void what_is_mounted(void) {
  struct {
    uint32_t size, spare;
    uint64_t id, parameter;
  } request = {24, 0, ~0ull /* LSMT_ROOT */, 0};
  uint64_t ids[50];
  long count = -1;
  if (!MAY(count = syscall(458, &request, ids, 50, 0))) {
    MAY(syscall(457, &request, ids, sizeof ids, 0));
    return;
  }
  CHECK(count > 0);
  note_bytes(ids, (size_t)count * sizeof *ids);
  request.id = ids[count - 1];
  request.parameter = 0x2 | 0x8 | 0x10;  // STATMOUNT_MNT_BASIC, _MNT_ROOT, _MNT_POINT
  uint64_t status[256];
  memset(status, 0, sizeof status);
  MUST(syscall(457, &request, status, sizeof status, 0));
  NOTE(status);
}

// Another root directory for this child alone.
static void root(int own_mounts) {
  if (own_mounts && mounted("new", "new", NULL, MS_BIND, NULL) == 0) {
    MUST(mkdir("new/before", 0700));
    MUST(syscall(SYS_pivot_root, "new", "new/before"));
    MUST(chdir("/"));
    MUST(access("/file", F_OK));
  } else {
    MAY(syscall(SYS_pivot_root, "new", "new"), EINVAL, EBUSY);
  }
  if (MAY(chroot("."))) MUST(access("/", F_OK));
  _exit(7);
}

int main(void) {
  const int before = MUST(open("/proc/self/ns/mnt", O_RDONLY));
  MUST(mkdir("old", 0700));
  MUST(mkdir("new", 0700));
  // In a chroot, the root may not be a mount, which could be made private.
  const int own = MAY(unshare(CLONE_NEWNS)) && MAY(mounted("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), EINVAL);
  if (own) {
    old_calls();
    new_calls();
    trees();
  } else {
    MAY(syscall(SYS_umount2, "none", 0), ENOENT);
    MAY(mounted("none", "none", "none", 0, NULL), ENOENT);
    MAY(syscall(SYS_fsopen, "none", 0), ENODEV);
    for (unsigned command = 0; command <= 8; command++) MAY(configure(-1, command, NULL, NULL, 0), EBADF, EINVAL);
    MAY(syscall(SYS_fsmount, -1, 0, 0), EBADF);
    MAY(syscall(SYS_move_mount, -1, "", AT_FDCWD, "new", 4), EBADF);
    trees();
  }
  what_is_mounted();
  const pid_t child = MUST(fork());
  if (child == 0) root(own);
  wait_for_exit(child, 7);
  if (MAY(setns(before, CLONE_NEWNS), EINVAL)) CHECK(chdir("/") == 0);
  return ok("%016lx", noted);
}
