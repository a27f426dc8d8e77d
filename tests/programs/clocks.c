// Time, process numbers and random bytes: what the kernel answers differently in each run.
#include "test.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

static int64_t now_ns(clockid_t clock) {
  struct timespec at;
  MUST(clock_gettime(clock, &at));
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

int main(void) {
  const pid_t pid = getpid();
  CHECK(pid == syscall(SYS_gettid) && getppid() > 0 && getpgrp() > 0 && getsid(0) >= 0);
  const time_t start_s = time(NULL);
  int64_t monotonic = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < 2000; i++) {
    const int64_t later = now_ns(CLOCK_MONOTONIC), more_cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
    CHECK(later >= monotonic && more_cpu >= 0);
    monotonic = later;
  }
  pass_checkpoints();
  CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) > cpu && now_ns(CLOCK_MONOTONIC) >= monotonic);

  struct timeval day;
  MUST(gettimeofday(&day, NULL));
  CHECK(day.tv_sec >= start_s && time(NULL) >= start_s && now_ns(CLOCK_REALTIME) / 1000000000 >= start_s);
  struct timespec step;
  MUST(clock_getres(CLOCK_MONOTONIC, &step));
  struct rusage usage;
  MUST(getrusage(RUSAGE_SELF, &usage));
  CHECK(usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec > 0);
  struct tms ticks;
  CHECK(times(&ticks) != (clock_t)-1 && clock() > 0);

  unsigned char a[32], b[32];
  CHECK(getrandom(a, sizeof a, 0) == sizeof a && getrandom(b, sizeof b, GRND_NONBLOCK) == sizeof b);
  CHECK(memcmp(a, b, sizeof a) != 0);
  unsigned cpu_number, node;
  MUST(syscall(SYS_getcpu, &cpu_number, &node, NULL));
  CHECK(getpid() == pid);
  return ok("pid %d random %02x%02x", pid, a[0], b[0]);
}
