// images: 3
// Sleeps that signals end: the kernel writes how much time was left, and nobody else may see that earlier. Another process computes
// beside them, so that checkpoints come during such sleeps.
#include "test.h"

#include <sys/time.h>

enum { kSleeps = 100 };

static void tick(int signal) { (void)signal; }

static void set_timer(int microseconds) {
  MUST(setitimer(ITIMER_REAL, &(struct itimerval){{0, microseconds}, {0, microseconds}}, NULL));
}

int main(void) {
  int ends[2];
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    close(ends[1]);
    uint64_t value = 1;
    for (char byte; read(ends[0], &byte, 1) == 1;) value = compute(value, 60);
    _exit(value == 0);
  }
  close(ends[0]);
  MUST(sigaction(SIGALRM, &(struct sigaction){.sa_handler = tick}, NULL));
  set_timer(8000);
  uint64_t value = 2;
  for (int i = 0; i < kSleeps; i++) {
    value = compute(value, 30);
    MUST(write(ends[1], "x", 1));
    const struct timespec second = {1, 0};
    struct timespec left = {7, 7};
    CHECK(nanosleep(&second, &left) == -1 && errno == EINTR);
    CHECK(left.tv_sec <= 1);
  }
  set_timer(0);
  close(ends[1]);
  wait_for_exit(child, 0);
  return ok("%d sleeps, %d", kSleeps, value != 0);
}
