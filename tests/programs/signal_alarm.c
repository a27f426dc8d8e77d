// Signals from timers: while the program sleeps, and between system calls.
#include "test.h"

#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t alarms;
static void count(int signal) { alarms += signal == SIGALRM; }

static void start_timer(int first_ms, int period_ms) {
  const struct itimerval timer = {{0, period_ms * 1000}, {0, first_ms * 1000}};
  MUST(setitimer(ITIMER_REAL, &timer, NULL));
}

int main(void) {
  struct sigaction action = {.sa_handler = count};
  MUST(sigaction(SIGALRM, &action, NULL));

  start_timer(20, 0);
  struct timespec long_time = {30, 0}, left = {0, 0};
  CHECK(nanosleep(&long_time, &left) == -1 && errno == EINTR && alarms == 1 && left.tv_sec >= 1 && left.tv_sec < 30);
  start_timer(20, 0);
  CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, &left) == EINTR && alarms == 2);
  start_timer(20, 0);
  CHECK(pause() == -1 && errno == EINTR && alarms == 3);

  start_timer(5, 5);
  uint64_t calls = 0;
  while (alarms < 13) CHECK(getppid() >= 0), calls++;
  start_timer(0, 0);
  CHECK(alarm(100) == 0 && alarm(0) == 100);
  return ok("%d alarms in %lu calls", (int)alarms, calls);
}
