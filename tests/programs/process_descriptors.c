// Processes by descriptor: opening, signalling, taking a descriptor out, comparing; a program executed by descriptor.
#include "test.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/utsname.h>

enum { kOnlyChecks = 0x10000 };  // AT_EXECVE_CHECK

// Whether this kernel can be asked if it would execute a file (since 6.14).
static int only_checks(void) {
  struct utsname name;
  int version = 0, part = 0;
  MUST(uname(&name));
  CHECK(sscanf(name.release, "%d.%d", &version, &part) == 2);
  return version > 6 || (version == 6 && part >= 14);
}

int main(int argc, char** argv) {
  if (argc > 1) return strcmp(argv[1], "again") == 0 ? 9 : 8;
  int ends[2];
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (;;) pause();
  }
  const int process = MUST(syscall(SYS_pidfd_open, child, 0));
  int taken = -1;
  if (MAY(taken = syscall(SYS_pidfd_getfd, process, ends[1], 0))) {
    CHECK(write(taken, "taken", 5) == 5);
    char text[5];
    read_all(ends[0], text, 5);
    CHECK(memcmp(text, "taken", 5) == 0);
    MAY(syscall(SYS_kcmp, getpid(), child, KCMP_FILE, taken, ends[1]));
  }
  long order = -1;
  if (MAY(order = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, ends[0], ends[0]))) CHECK(order == 0);
  MUST(syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0));
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  FAILS(syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0), ESRCH);

  const pid_t second = MUST(fork());
  if (second == 0) {
    const int self = MUST(open("/proc/self/exe", O_RDONLY));
    char* arguments[] = {"by-descriptor", "again", NULL};
    if (only_checks()) {
      CHECK(syscall(SYS_execveat, self, "", arguments, environ, AT_EMPTY_PATH | kOnlyChecks) == 0);
      FAILS(syscall(SYS_execveat, AT_FDCWD, "/dev/null", arguments, environ, kOnlyChecks), EACCES);
    }
    syscall(SYS_execveat, self, "", arguments, environ, AT_EMPTY_PATH);
    CHECK(!"execveat");
  }
  wait_for_exit(second, 9);
  return ok("done");
}
