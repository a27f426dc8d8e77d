// Processes that share memory end while their other threads wake up from sleeps: nothing of these threads happens after the end.
#include "test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

enum { kChildren = 30, kThreads = 12 };

static int* rounds;

static void* sleeps(void* number) {
  const struct timespec some_us = {0, 1000 * (20 + 7 * (long)(intptr_t)number)};
  for (;;) {
    MUST(clock_nanosleep(CLOCK_MONOTONIC, 0, &some_us, NULL));
    ++*rounds;
  }
}

// The others wake up meanwhile.
static void* ends(void* unused) {
  (void)unused;
  (void)compute(1, 20);
  _exit(3);
}

static void child(void) {
  pthread_t thread;
  for (intptr_t i = 0; i < kThreads; i++) CHECK(pthread_create(&thread, NULL, sleeps, (void*)i) == 0);
  CHECK(pthread_create(&thread, NULL, ends, NULL) == 0);
  sleeps(NULL);
}

int main(void) {
  rounds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(rounds != MAP_FAILED);
  for (int i = 0; i < kChildren; i++) {
    const pid_t born = MUST(fork());
    if (born == 0) child();
    wait_for_exit(born, 3);
  }
  return ok("%d children", kChildren);
}
