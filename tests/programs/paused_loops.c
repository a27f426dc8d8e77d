// Threads wait for each other in loops with pause instructions and without calls: for their turn, for a lock with
// backoff, and for signals.
// build: -O2
// period: 20ms
#include <immintrin.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "test.h"

enum { kRounds = 60, kMostThreads = 8, kMostPauses = 1024, kAlarms = 3 };

static atomic_int turn, alarms;
static atomic_flag lock_word = ATOMIC_FLAG_INIT;
static int threads;
static uint64_t order, taken;

static void count_alarm(int number) {
  (void)number;
  alarms++;
}

static void* take_turns(void* number) {
  const int me = (int)(intptr_t)number;
  for (int round = 0; round < kRounds; round++) {
    while (atomic_load(&turn) % threads != me) _mm_pause();
    order = order * 31 + (uint64_t)me;
    atomic_fetch_add(&turn, 1);
  }
  return NULL;
}

static void lock(void) {
  for (int pauses = 1; atomic_flag_test_and_set(&lock_word);) {
    for (int i = 0; i < pauses; i++) _mm_pause();
    if (pauses < kMostPauses) pauses *= 2;
  }
}

static void work(void) {
  for (volatile int i = 0; i < 20000; i++) continue;
}

static void* take_lock(void* unused) {
  for (int round = 0; round < kRounds; round++) {
    lock();
    work();
    taken++;
    if (round % 50 == 0) getppid();
    atomic_flag_clear(&lock_word);
    work();
  }
  return unused;
}

static void run_all(void* (*run)(void*)) {
  pthread_t thread[kMostThreads];
  for (intptr_t i = 0; i < threads; i++) MUST0(pthread_create(&thread[i], NULL, run, (void*)i));
  for (int i = 0; i < threads; i++) MUST0(pthread_join(thread[i], NULL));
}

static void set_timer(long period_us) {
  const struct itimerval timer = {{0, period_us}, {0, period_us}};
  MUST(setitimer(ITIMER_REAL, &timer, NULL));
}

int main(void) {
  for (threads = 2; threads <= kMostThreads; threads *= 2) {
    turn = 0;
    order = taken = 0;
    run_all(take_turns);
    uint64_t expected = 0;
    for (int i = 0; i < kRounds * threads; i++) expected = expected * 31 + (uint64_t)(i % threads);
    CHECK(order == expected);
    run_all(take_lock);
    CHECK(taken == (uint64_t)(kRounds * threads));
  }
  // Signals come amid such loops, beside other threads and alone.
  CHECK(signal(SIGALRM, count_alarm) != SIG_ERR);
  set_timer(2000);
  turn = 0;
  threads = 2;
  run_all(take_turns);
  while (alarms < kAlarms) _mm_pause();
  set_timer(0);
  return ok("2 to %d threads, at least %d signals", kMostThreads, kAlarms);
}
