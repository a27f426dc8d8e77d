// Signals that come while the program does nothing but jump: it is stopped in loops of every kind, and the replay finds the place again.
// images: 4
#include "test.h"

#include <setjmp.h>
#include <sys/time.h>

static sigjmp_buf out;
static volatile sig_atomic_t signals;
static volatile int never;

static void leave(int signal) {
  (void)signal;
  signals++;
  siglongjmp(out, 1);
}

static void spin(int kind) {
  switch (kind) {
    case 0:
      __asm__ volatile("1: jmp 1b");
      break;
    case 1:
      __asm__ volatile("1: pause\n jmp 1b");
      break;
    case 2:
      __asm__ volatile("xor %%eax, %%eax\n 1: inc %%rax\n jmp 1b" ::: "rax");
      break;
    case 3:
      __asm__ volatile("mov $-1, %%rcx\n 1: add $3, %%rdx\n loop 1b" ::: "rcx", "rdx");
      break;
    case 4:
      __asm__ volatile("1: cmpl $0, %0\n je 1b" ::"m"(never));
      break;
    case 5:
      __asm__ volatile("1: jmp 2f\n 2: jmp 1b");
      break;
    case 6:
      __asm__ volatile("lea 1f(%%rip), %%rax\n 1: jmp *%%rax" ::: "rax");
      break;
  }
}

int main(void) {
  CHECK(signal(SIGVTALRM, leave) != SIG_ERR);
  const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
  for (volatile int kind = 0; kind < 7; kind++) {
    for (int i = 0; i < 5; i++) CHECK(getppid() >= 0);
    if (sigsetjmp(out, 1)) continue;
    MUST(setitimer(ITIMER_VIRTUAL, &soon, NULL));
    spin(kind);
  }
  return ok("%d signals", signals);
}
