// A thread that wakes another one by trying until it sleeps, without sleeping itself.
#include "test.h"

#include <linux/futex.h>

enum { kRounds = 200 };

static uint32_t word;
static int woken;

static void* sleeper(void* unused) {
  for (int i = 0; i < kRounds; i++) {
    while (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL) != 0) continue;
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
  }
  return unused;
}

int main(void) {
  pthread_t id;
  MUST0(pthread_create(&id, NULL, sleeper, NULL));
  for (int i = 0; i < kRounds; i++) {
    while (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) != 1) continue;
  }
  MUST0(pthread_join(id, NULL));
  CHECK(woken == kRounds);
  return ok("%d rounds", woken);
}
