// Futexes beyond what the C library uses: requeueing, wake-and-operate, bit sets, several at once, and the separate calls for them.
#include "test.h"

#include <limits.h>
#include <linux/futex.h>
#include <time.h>

static uint32_t words[4];
static int sleepers;

static long futex(uint32_t* word, int command, uint32_t value, uintptr_t limit, uint32_t* second, uint32_t third) {
  return syscall(SYS_futex, word, command | FUTEX_PRIVATE_FLAG, value, limit, second, third);
}

static void* sleep_on_first(void* unused) {
  __atomic_add_fetch(&sleepers, 1, __ATOMIC_SEQ_CST);
  MUST(futex(&words[0], FUTEX_WAIT_BITSET, 0, 0, NULL, 6));
  return unused;
}

// A thread that sleeps on words[0] for bits 2 and 4. To wake it, a thread must try until it really sleeps.
static pthread_t start_sleeper(void) {
  pthread_t id;
  const int before = __atomic_load_n(&sleepers, __ATOMIC_SEQ_CST);
  MUST0(pthread_create(&id, NULL, sleep_on_first, NULL));
  while (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST) == before) sched_yield();
  return id;
}

// A sleeper that the kernel interrupts (for example, because the machine is frozen) sleeps on words[0] again, wherever it was moved to.
// In that case everything is done again.
static void requeue(void) {
  pthread_t id = start_sleeper();
  FAILS(futex(&words[0], FUTEX_CMP_REQUEUE, 0, 1, &words[1], 5), EAGAIN);
  do {
    while (MUST(futex(&words[0], FUTEX_REQUEUE, 0, 1, &words[1], 0)) == 0) sched_yield();
    MUST(futex(&words[1], FUTEX_CMP_REQUEUE, 0, 1, &words[2], words[1]));
    CHECK(futex(&words[2], FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 1) == 0);
  } while (MUST(futex(&words[2], FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 2)) == 0);
  CHECK(futex(&words[0], FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 0);
  MUST0(pthread_join(id, NULL));
}

static void wake_op(void) {
  pthread_t id = start_sleeper();
  words[3] = 40;
  long woken = 0;
  int rounds = 0;
  // words[3] += 2, and wake there too if it was 40.
  for (; woken == 0; rounds++) {
    woken = MUST(futex(&words[0], FUTEX_WAKE_OP, 1, 1, &words[3], FUTEX_OP(FUTEX_OP_ADD, 2, FUTEX_OP_CMP_EQ, 40)));
    if (!woken) sched_yield();
  }
  CHECK(words[3] == 40u + 2 * (unsigned)rounds);
  MUST0(pthread_join(id, NULL));
}

static void several(void) {
  struct futex_waitv waiters[2] = {
      {.val = 1, .uaddr = (uintptr_t)&words[0], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
      {.val = words[1], .uaddr = (uintptr_t)&words[1], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG}};
  struct timespec now;
  MUST(clock_gettime(CLOCK_MONOTONIC, &now));
  FAILS(syscall(SYS_futex_waitv, waiters, 2, 0, &now, CLOCK_MONOTONIC), EAGAIN);
  waiters[0].val = words[0];
  FAILS(syscall(SYS_futex_waitv, waiters, 2, 0, &now, CLOCK_MONOTONIC), ETIMEDOUT);
}

static void* sleep_anew(void* unused) {
  __atomic_add_fetch(&sleepers, 1, __ATOMIC_SEQ_CST);
  MUST(syscall(455, &words[0], 0L, 0xffffffffL, FUTEX_32 | FUTEX_PRIVATE_FLAG, NULL, CLOCK_MONOTONIC));
  return unused;
}

// futex_wake, futex_wait and futex_requeue (Linux 6.7).
static void new_calls(void) {
  if (!MAY(syscall(454, &words[0], 0xffffffffL, 1, FUTEX_32 | FUTEX_PRIVATE_FLAG))) {
    FAILS(syscall(455, &words[0], 1L, 0xffffffffL, FUTEX_32, NULL, CLOCK_MONOTONIC), ENOSYS);
    FAILS(syscall(456, NULL, 0, 0, 0), ENOSYS);
    return;
  }
  pthread_t id;
  MUST0(pthread_create(&id, NULL, sleep_anew, NULL));
  struct futex_waitv pair[2] = {{.val = 0, .uaddr = (uintptr_t)&words[0], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
                                {.val = 0, .uaddr = (uintptr_t)&words[2], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG}};
  do {  // as in requeue()
    while (MUST(syscall(456, pair, 0, 0, 1)) == 0) sched_yield();
  } while (MUST(syscall(454, &words[2], 0xffffffffL, 1, FUTEX_32 | FUTEX_PRIVATE_FLAG)) == 0);
  CHECK(syscall(454, &words[0], 0xffffffffL, 1, FUTEX_32 | FUTEX_PRIVATE_FLAG) == 0);
  MUST0(pthread_join(id, NULL));
}

int main(void) {
  requeue();
  wake_op();
  several();
  new_calls();
  void *head = NULL, *other = NULL;
  size_t length = 0;
  MUST(syscall(SYS_get_robust_list, 0, &head, &length));
  CHECK(head && length == 24);
  MUST(syscall(SYS_get_robust_list, getpid(), &other, &length));
  CHECK(other == head);
  return ok("%d sleepers", sleepers);
}
