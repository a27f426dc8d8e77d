// Calls that a recorder may refuse: programs must find either a working call or the error of an older kernel, and go on.
#include "test.h"

#include <linux/perf_event.h>
#include <linux/sched.h>

static int is_refusal(long result) {
  return result == -1 && (errno == ENOSYS || errno == EPERM || errno == EACCES || errno == EINVAL || errno == EFAULT);
}

static void* nothing(void* unused) { return unused; }

int main(void) {
  char parameters[256] = {0};
  long fd = syscall(SYS_io_uring_setup, 4, parameters);
  CHECK(fd >= 0 || is_refusal(fd));
  if (fd >= 0) MUST(close((int)fd));
  fd = syscall(SYS_userfaultfd, 1);
  CHECK(fd >= 0 || is_refusal(fd));
  if (fd >= 0) MUST(close((int)fd));
  struct perf_event_attr event = {.size = sizeof event, .type = PERF_TYPE_SOFTWARE};
  fd = syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
  CHECK(fd >= 0 || is_refusal(fd) || errno == ENOENT);
  if (fd >= 0) MUST(close((int)fd));
  CHECK(is_refusal(syscall(SYS_rseq, parameters + 1, 32, 0, 0)));  // misaligned: refused by the kernel too
  struct clone_args arguments = {.exit_signal = SIGCHLD};
  const long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  CHECK(child >= 0 || is_refusal(child));
  if (child == 0) _exit(3);
  if (child > 0) wait_for_exit((pid_t)child, 3);
  CHECK(syscall(470, 0) == -1 && errno == ENOSYS && syscall(100000, 0) == -1 && errno == ENOSYS);
  pthread_t id;  // glibc takes the path that is left
  MUST0(pthread_create(&id, NULL, nothing, NULL));
  MUST0(pthread_join(id, NULL));
  return ok("asked");
}
