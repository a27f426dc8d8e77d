// Interval timers of all three kinds, POSIX timers, and the remaining times that they report.
#include "test.h"

#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t real_ticks, cpu_ticks, timer_ticks;
static void on_real(int signal) { (void)signal, real_ticks++; }
static void on_cpu(int signal) { (void)signal, cpu_ticks++; }
static void on_timer(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)context;
  CHECK(info->si_code == SI_TIMER && info->si_value.sival_int == 77);
  timer_ticks++;
}

int main(void) {
  MUST(sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_real, .sa_flags = SA_RESTART}, NULL));
  MUST(sigaction(SIGVTALRM, &(struct sigaction){.sa_handler = on_cpu, .sa_flags = SA_RESTART}, NULL));
  MUST(sigaction(SIGPROF, &(struct sigaction){.sa_handler = on_cpu, .sa_flags = SA_RESTART}, NULL));
  MUST(sigaction(SIGRTMIN, &(struct sigaction){.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART}, NULL));

  const struct itimerval period = {{0, 10000}, {0, 10000}}, off = {{0, 0}, {0, 0}};
  struct itimerval left;
  MUST(setitimer(ITIMER_REAL, &period, NULL));
  MUST(setitimer(ITIMER_VIRTUAL, &period, NULL));
  MUST(setitimer(ITIMER_PROF, &period, NULL));
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 77};
  MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
  const struct itimerspec every = {{0, 10000000}, {0, 10000000}};
  MUST(timer_settime(timer, 0, &every, NULL));

  uint64_t calls = 0;
  for (; real_ticks < 5 || cpu_ticks < 5 || timer_ticks < 5; calls++) {
    (void)compute(calls, 2);
    CHECK(getppid() >= 0);
  }
  MUST(getitimer(ITIMER_REAL, &left));
  CHECK(left.it_interval.tv_usec == 10000);
  MUST(setitimer(ITIMER_REAL, &off, NULL));
  MUST(setitimer(ITIMER_VIRTUAL, &off, NULL));
  MUST(setitimer(ITIMER_PROF, &off, NULL));
  MUST(timer_delete(timer));
  return ok("%lu calls", calls);
}
