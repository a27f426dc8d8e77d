// Threads that execute rdtsc or cpuid, and make no call, until another thread has done something or a signal has come.
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "test.h"

#include <x86intrin.h>

static volatile int done;

static void* set_done(void* unused) {
  (void)unused;
  done = 1;
  return NULL;
}
static void on_alarm(int signal) {
  (void)signal;
  done = 1;
}

static uint64_t by_rdtsc(void) { return __rdtsc(); }
static uint64_t by_rdtscp(void) {
  unsigned aux;
  return __rdtscp(&aux);
}
static uint64_t by_cpuid(void) {
  unsigned a, b, c, d;
  __cpuid(0, a, b, c, d);
  return a + b + c + d;
}

int main(void) {
  uint64_t (*const ways[])(void) = {by_rdtsc, by_rdtscp, by_cpuid};
  struct sigaction action = {0};
  action.sa_handler = on_alarm;
  MUST(sigaction(SIGALRM, &action, NULL));
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    pthread_t other;
    done = 0;
    MUST0(pthread_create(&other, NULL, set_done, NULL));
    while (!done) sum += ways[i]();
    MUST0(pthread_join(other, NULL));

    done = 0;
    const struct itimerval once = {{0, 0}, {0, 20000}};
    MUST(setitimer(ITIMER_REAL, &once, NULL));
    while (!done) sum += ways[i]();
  }
  CHECK(sum != 0);
  pass_checkpoints();
  return ok("%zu ways", sizeof ways / sizeof *ways);
}
