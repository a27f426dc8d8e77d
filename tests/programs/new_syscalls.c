// Calls that are newer than most programs: those that a recorder may refuse, and those that it must support.
#include "test.h"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/uio.h>

static int is_refusal(long result) {
  return result == -1 && (errno == ENOSYS || errno == EPERM || errno == EACCES || errno == EINVAL || errno == EFAULT);
}

static void* nothing(void* unused) { return unused; }

// Advice and queries that do not change contents, and memory that nobody may change any more.
static void of_memory(void) {
  enum { kPages = 4, kPage = 4096 };
  char* const memory = MUST(mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  fill(memory, kPages * kPage, 3);
  void* pages[kPages];
  int places[kPages] = {0};
  for (int i = 0; i < kPages; i++) pages[i] = memory + i * kPage;
  if (MAY(syscall(SYS_move_pages, 0, kPages, pages, NULL, places, 0))) NOTE(places);
  const int self = MUST((int)syscall(SYS_pidfd_open, getpid(), 0));
  const struct iovec all = {memory, kPages * kPage};
  const int advice[] = {MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT, 25 /* MADV_COLLAPSE */};
  for (int i = 0; i < 4; i++) MAY(syscall(SYS_process_madvise, self, &all, 1, advice[i], 0), EINVAL, EAGAIN, EBUSY);
  CHECK(syscall(SYS_process_mrelease, self, 0) == -1);  // it is alive
  MUST(close(self));
  if (MAY(syscall(462 /* mseal */, memory, kPages * kPage, 0))) {
    FAILS(munmap(memory, kPage), EPERM);
    FAILS(mprotect(memory, kPage, PROT_READ), EPERM);
  }
  CHECK(is_filled(memory, kPages * kPage, 3));
}

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
  of_memory();
  CHECK(syscall(100000, 0) == -1 && errno == ENOSYS);
  pthread_t id;  // glibc falls back
  MUST0(pthread_create(&id, NULL, nothing, NULL));
  MUST0(pthread_join(id, NULL));
  return ok("asked");
}
