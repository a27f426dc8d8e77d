// Threads that spin for each other without a system call: on a flag, on a counter in memory that they count up meanwhile, on a lock; and
// one that a signal handler releases. With an argument: only the last one, until SIGTERM.
#include <stdatomic.h>
#include <sys/time.h>

#include "test.h"

static volatile int flag, stage;
static volatile uint64_t waited;
static atomic_int lock;
static uint64_t shared;
static volatile sig_atomic_t stopped;

static void* setter(void* unused) {
  (void)unused;
  while (!stage) {
  }
  flag = 1;
  while (stage != 2) waited++;
  for (int i = 0; i < 1000; i++) {
    while (atomic_exchange(&lock, 1)) {
    }
    shared++;
    atomic_store(&lock, 0);
  }
  return NULL;
}

static void set_free(int signal) {
  (void)signal;
  stopped = 1;
}

static int wait_for(int signal) {
  struct sigaction action = {.sa_handler = set_free};
  MUST(sigaction(signal, &action, NULL));
  const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
  if (signal == SIGALRM) MUST(setitimer(ITIMER_REAL, &soon, NULL));
  printf("waits\n");
  fflush(stdout);
  uint64_t turns = 0;
  while (!stopped) turns++;
  NOTE(turns);
  return ok("%d", turns > 0);
}

int main(int argc, char** argv) {
  (void)argv;
  if (argc > 1) return wait_for(SIGTERM);
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, setter, NULL));
  stage = 1;
  while (!flag) {
  }
  stage = 2;
  for (int i = 0; i < 1000; i++) {
    while (atomic_exchange(&lock, 1)) {
    }
    shared++;
    atomic_store(&lock, 0);
  }
  MUST0(pthread_join(thread, NULL));
  CHECK(shared == 2000);
  return wait_for(SIGALRM);
}
