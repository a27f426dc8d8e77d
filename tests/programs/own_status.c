// What /proc/self/status and similar files say of the program agrees with what system calls say: nobody traces it, its seccomp filters
// are its own, and it may run where it has asked to. All ways of reading the files are tried.
#include "test.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>

static char text[16384];

static size_t read_in_pieces(const char* path, size_t piece) {
  const int file = MUST(open(path, O_RDONLY | O_CLOEXEC));
  size_t size = 0;
  for (ssize_t n; (n = MUST(read(file, text + size, piece))) > 0;) size += (size_t)n;
  text[size] = 0;
  CHECK(MUST(lseek(file, 0, SEEK_SET)) == 0);
  char first[5] = "";
  CHECK(read(file, first, 4) == 4 && strcmp(first, "Name") == 0);
  CHECK(fcntl(file, F_GETFD) == FD_CLOEXEC);
  CHECK((MUST(fcntl(file, F_GETFL)) & O_ACCMODE) == O_RDONLY);
  const int next = MUST(open(path, O_RDONLY));
  CHECK(next == file + 1 && fcntl(next, F_GETFD) == 0);
  MUST(close(next));
  MUST(close(file));
  return size;
}

static const char* value(const char* name) {
  static char line[4096];
  const char* const found = strstr(text, name);
  CHECK(found && (found == text || found[-1] == '\n'));
  const char* const start = strchr(found, '\t') + 1;
  snprintf(line, sizeof line, "%.*s", (int)(strchr(start, '\n') - start), start);
  return line;
}

static void write_list(char* list, const cpu_set_t* set) {
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, set)) continue;
    int last = i;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
    list += sprintf(list, last > i ? "%s%d-%d" : "%s%d", i && *(list - 1) ? "," : "", i, last);
    i = last;
  }
}

static int filters_before;

static void check(const char* path, int more) {
  const size_t pieces[] = {sizeof text - 1, 1, 100};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    read_in_pieces(path, pieces[i]);
    CHECK(atoi(value("TracerPid:")) == 0);
    CHECK(atoi(value("NoNewPrivs:")) == MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)));
    CHECK(atoi(value("Seccomp:")) == MUST(prctl(PR_GET_SECCOMP)));
    CHECK(atoi(value("Seccomp_filters:")) == filters_before + more);
    cpu_set_t set;
    MUST(sched_getaffinity(0, sizeof set, &set));
    char list[8192] = "\0";
    write_list(list + 1, &set);
    CHECK(strcmp(value("Cpus_allowed_list:"), list + 1) == 0);
  }
}

static void* check_thread(void* more) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/status", syscall(SYS_gettid));
  check(path, more != NULL);
  check("/proc/thread-self/status", more != NULL);
  return NULL;
}

static void check_all(int more) {
  char path[64];
  check("/proc/self/status", more);
  check("/proc//self/./status", more);
  snprintf(path, sizeof path, "/proc/%d/status", getpid());
  check(path, more);
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, check_thread, more ? &thread : NULL));
  MUST0(pthread_join(thread, NULL));
  const pid_t child = MUST(fork());
  if (child == 0) {
    check("/proc/self/status", more);
    _exit(0);
  }
  wait_for_exit(child, 0);
}

// A process that is stopped by a signal is not said to be stopped by its tracer.
static void check_stopped(void) {
  const pid_t child = MUST(fork());
  if (child == 0) {
    for (;;) pause();
  }
  int status;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/status", child);
  MUST(kill(child, SIGSTOP));
  CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
  read_in_pieces(path, sizeof text - 1);
  CHECK(strcmp(value("State:"), "T (stopped)") == 0);
  MUST(kill(child, SIGCONT));
  do {
    read_in_pieces(path, sizeof text - 1);
    CHECK(*value("State:") != 't');
  } while (*value("State:") == 'T');
  MUST(kill(child, SIGKILL));
  CHECK(waitpid(child, &status, 0) == child);
}

// The kernel decides whether the file can be opened, and how.
static void check_opens(void) {
  FAILS(open("/proc/self/status", O_RDONLY | O_CREAT | O_EXCL, 0600), EEXIST);
  FAILS(open("/proc/self/nosuch/../status", O_RDONLY), ENOENT);
  const int file = MUST(open("/proc/self/status", O_RDONLY | O_APPEND | O_NONBLOCK | O_NOATIME));
  const int flags = O_APPEND | O_NONBLOCK | O_NOATIME;
  CHECK((MUST(fcntl(file, F_GETFL)) & (flags | O_ACCMODE)) == flags && fcntl(file, F_GETFD) == 0);
  MUST(close(file));
  const int last = MUST(open("/proc/self/status", O_RDONLY | O_NOFOLLOW));
  CHECK((MUST(fcntl(last, F_GETFL)) & O_ACCMODE) == O_RDONLY);
  MUST(close(last));
  struct open_how how = {.flags = O_RDONLY | O_CLOEXEC};
  int other = -1;
  if (MAY(other = (int)syscall(SYS_openat2, AT_FDCWD, "/proc/self/status", &how, sizeof how))) {
    const ssize_t size = MUST(read(other, text, sizeof text - 1));
    text[size] = 0;
    CHECK(atoi(value("TracerPid:")) == 0 && fcntl(other, F_GETFD) == FD_CLOEXEC);
    MUST(close(other));
  }
  const uint64_t handled[] = {4 /* LANDLOCK_ACCESS_FS_READ_FILE */};
  int rules = -1;
  if (!MAY(rules = (int)syscall(SYS_landlock_create_ruleset, handled, sizeof handled, 0), EOPNOTSUPP)) return;
  MUST(syscall(SYS_landlock_restrict_self, rules, 0));
  FAILS(open("/proc/self/status", O_RDONLY), EACCES);
}

int main(void) {
  read_in_pieces("/proc/self/status", sizeof text - 1);
  filters_before = atoi(value("Seccomp_filters:"));
  check_all(0);
  check_stopped();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)MUST(sched_getcpu()), &one);
  MUST(sched_setaffinity(0, sizeof one, &one));
  MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  pass_checkpoints();
  check_all(0);
  struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {1, allow};
  MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
  CHECK(MUST(prctl(PR_GET_SECCOMP)) == SECCOMP_MODE_FILTER);
  check_all(1);
  // It does not get files that it may not open.
  FAILS(open("/proc/self/status/", O_RDONLY), ENOTDIR);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/status", getppid());
  FAILS(open(path, O_RDONLY), ENOENT);
  int ready[2];
  MUST(pipe(ready));
  const pid_t child = MUST(fork());
  if (child == 0) _exit(read(ready[0], path, 1) != 1);
  snprintf(path, sizeof path, "/proc/self/task/%d/status", child);
  FAILS(open(path, O_RDONLY), ENOENT);
  CHECK(write(ready[1], "g", 1) == 1);
  wait_for_exit(child, 0);
  check_opens();
  return ok("own_status");
}
