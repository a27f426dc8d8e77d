// landlock(7): a process takes rights away from itself, its threads and children; what it may still do is served as before.
#include "test.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>

struct port_rule {
  uint64_t access, port;
};

int main(void) {
  const int file = MUST(open("allowed", O_CREAT | O_RDWR, 0600));
  MUST(mkdir("inside", 0700));
  const int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
  CHECK(version > 0 || errno == ENOSYS || errno == EOPNOTSUPP);
  struct port_rule port = {1, 80};
  syscall(SYS_landlock_add_rule, -1, 2 /* LANDLOCK_RULE_NET_PORT */, &port, 0);
  struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG};
  const int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
  struct landlock_path_beneath_attr beneath = {.allowed_access = rules.handled_access_fs,
                                               .parent_fd = MUST(open("inside", O_PATH | O_DIRECTORY))};
  const long added = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
  MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  const long restricted = syscall(SYS_landlock_restrict_self, ruleset, 0);
  CHECK((ruleset >= 0) == (added == 0) && (ruleset >= 0) == (restricted == 0));
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (int i = 0; i < 20; i++) {
      const int again = open("allowed", O_RDWR);
      CHECK(ruleset < 0 ? again >= 0 : again == -1 && errno == EACCES);
      if (again >= 0) MUST(close(again));
      const int made = MUST(open("inside/file", O_CREAT | O_RDWR, 0600));
      CHECK(write(made, "x", 1) == 1);
      MUST(close(made));
    }
    execl("/bin/sh", "sh", "-c", "exit 9", NULL);
    _exit(1);
  }
  wait_for_exit(child, 9);
  CHECK(write(file, "x", 1) == 1);  // it was open before
  return ok("%s", ruleset < 0 ? "no landlock" : "restricted");
}
