// Calls that change the whole machine, used so that they change nothing: with the present values, in a namespace, or so that they fail.
#include "test.h"

#include <sched.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>

static void clocks(void) {
  struct timex state;
  memset(&state, 0, sizeof state);
  CHECK(syscall(SYS_adjtimex, &state) >= 0);
  NOTE(state);
  memset(&state, 0, sizeof state);
  CHECK(clock_adjtime(CLOCK_REALTIME, &state) >= 0);
  NOTE(state);
  const struct timespec never = {0, -1};
  MAY(syscall(SYS_clock_settime, CLOCK_REALTIME, &never), EINVAL);
  MAY(syscall(SYS_settimeofday, (const int64_t[2]){0, -1}, NULL), EINVAL);
}

static void names(void) {
  if (!MAY(unshare(CLONE_NEWUTS))) {
    MAY(syscall(SYS_sethostname, "x", -1), EINVAL);
    MAY(syscall(SYS_setdomainname, "x", -1), EINVAL);
    return;
  }
  struct utsname found;
  MUST(sethostname("recorded", 8));
  MUST(setdomainname("example", 7));
  MUST(uname(&found));
  CHECK(strcmp(found.nodename, "recorded") == 0 && strcmp(found.domainname, "example") == 0);
}

static void kernel_log(void) {
  static char text[65536];
  MAY(syscall(SYS_syslog, 0, NULL, 0));
  MAY(syscall(SYS_syslog, 1, NULL, 0));
  long size = -1;
  if (MAY(size = syscall(SYS_syslog, 3, text, sizeof text))) note_bytes(text, (size_t)size);
  if (MAY(size = syscall(SYS_syslog, 10, NULL, 0))) CHECK(size > 0);
  MAY(syscall(SYS_syslog, 9, NULL, 0));
  MAY(syscall(SYS_syslog, 2, NULL, 0), EINVAL);   // no buffer
  MAY(syscall(SYS_syslog, 4, NULL, 0), EINVAL);   // no buffer: nothing is cleared
  MAY(syscall(SYS_syslog, 8, NULL, 99), EINVAL);  // no such level
}

int main(void) {
  clocks();
  names();
  kernel_log();
  MAY(syscall(SYS_reboot, 0, 0, 0, NULL), EINVAL);  // without the magic numbers that it requires
  MAY(syscall(SYS_acct, "none"), ENOENT);
  MAY(syscall(SYS_swapon, "none", 0), ENOENT);
  MAY(syscall(SYS_swapoff, "none"), ENOENT);
  uint64_t ids[10];
  uint32_t size = sizeof ids;
  memset(ids, 0, sizeof ids);
  long count = -1;
  if (MAY(count = syscall(461 /* lsm_list_modules */, ids, &size, 0), E2BIG)) note_bytes(ids, (size_t)count * sizeof *ids);
  static char attribute[4096];
  size = sizeof attribute;
  MAY(syscall(459 /* lsm_get_self_attr */, 100, attribute, &size, 0), EOPNOTSUPP);
  MAY(syscall(460 /* lsm_set_self_attr */, 100, attribute, 64, 0), EOPNOTSUPP, EINVAL);
  return ok("%016lx", noted);
}
