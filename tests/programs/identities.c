// User and group ids, capabilities, groups: set to their present values, and, in a child that may do so, to others.
#include "test.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>

static void same_again(void) {
  const uid_t user = getuid();
  const gid_t group = getgid();
  MUST(syscall(SYS_setuid, user));
  MUST(syscall(SYS_setgid, group));
  MUST(syscall(SYS_setreuid, user, user));
  MUST(syscall(SYS_setregid, group, group));
  MUST(syscall(SYS_setresuid, user, user, user));
  MUST(syscall(SYS_setresgid, group, group, group));
  uid_t ids[3] = {7, 7, 7};
  MUST(getresuid(&ids[0], &ids[1], &ids[2]));
  CHECK(ids[0] == user && ids[1] == user && ids[2] == user);
  MUST(getresgid(&ids[0], &ids[1], &ids[2]));
  CHECK(ids[0] == group && ids[1] == group && ids[2] == group);
  CHECK((uid_t)setfsuid(user) == user && (gid_t)setfsgid(group) == group);
  gid_t groups[100];
  const int count = MUST(getgroups(100, groups));
  note_bytes(groups, (size_t)count * sizeof *groups);
  CHECK(getgroups(0, NULL) == count);
  MAY(syscall(SYS_setgroups, count, groups));
}

static void capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  memset(data, 0xee, sizeof data);
  MUST(syscall(SYS_capget, &header, data));
  NOTE(data);
  data[0].effective = data[0].permitted;
  MUST(syscall(SYS_capset, &header, data));
  header.version = 1234;  // the kernel writes the one that it prefers
  FAILS(syscall(SYS_capset, &header, data), EINVAL);
  CHECK(header.version == _LINUX_CAPABILITY_VERSION_3);
}

static void another_user(void) {
  const gid_t groups[2] = {12345, 12346};
  gid_t found[2] = {0};
  MUST(syscall(SYS_setgroups, 2, groups));
  CHECK(getgroups(2, found) == 2 && memcmp(groups, found, sizeof groups) == 0);
  MUST(syscall(SYS_setresgid, 12345, 12345, 12345));
  MUST(syscall(SYS_setresuid, 23456, 23456, 23456));
  FAILS(syscall(SYS_setuid, 0), EPERM);
  CHECK(geteuid() == 23456 && getegid() == 12345);
  _exit(5);
}

int main(void) {
  same_again();
  capabilities();
  const pid_t group = MUST(getpgid(0));
  CHECK(group == getpgrp() && getpgid(getpid()) == group && getsid(0) > 0);
  if (geteuid() == 0) {
    const pid_t child = MUST(fork());
    if (child == 0) another_user();
    wait_for_exit(child, 5);
  }
  return ok("%016lx", noted);
}
