// A thread makes its calls only while it holds a lock, so that it lets others run some instructions after one. After each
// of its system calls it calls a function, so that what stands in for it is put before the call.
#include <sched.h>

#include "test.h"

enum { kTurns = 5 };

static pthread_spinlock_t spin;
static int stop;
static uint64_t calls, turns;

__attribute__((noinline, noclone)) static void count(void) {
  calls++;
  asm volatile("");
}

static void* take_always(void* unused) {
  for (int stopped = 0; !stopped;) {
    pthread_spin_lock(&spin);
    for (int i = 0; i < 3; i++) {
      asm volatile(
          "mov %0, %%eax\n"
          "syscall\n"
          "call *%1"
          :
          : "i"(SYS_getppid), "r"(count)
          : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
    }
    stopped = stop;
    pthread_spin_unlock(&spin);
  }
  return unused;
}

int main(void) {
  pthread_t other;
  MUST0(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
  MUST0(pthread_create(&other, NULL, take_always, NULL));
  while (turns < kTurns) {
    while (pthread_spin_trylock(&spin)) sched_yield();
    turns++;
    stop = turns == kTurns;
    pthread_spin_unlock(&spin);
    sched_yield();
  }
  MUST0(pthread_join(other, NULL));
  CHECK(calls % 3 == 0);
  return ok("%d turns", kTurns);
}
