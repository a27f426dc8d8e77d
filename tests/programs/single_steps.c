// A program that executes its code step by step (the trap flag), as some protections and emulators do: through system calls that were made
// often before, and from where a handler returns to.
#include "test.h"

#include <ucontext.h>

enum { kRounds = 200, kTrapFlag = 0x100, kPerRound = 5, kMostSteps = 300 };

static volatile sig_atomic_t steps, most;
static void count(int signal, siginfo_t* info, void* context) {
  greg_t* const flags = &((ucontext_t*)context)->uc_mcontext.gregs[REG_EFL];
  (void)info;
  CHECK(signal == SIGTRAP);
  steps++;
  if (most) *flags = steps < most ? *flags | kTrapFlag : *flags & ~kTrapFlag;
}

// getppid(2) with these flags set before and taken away afterwards: five steps if the trap flag is among them.
static int stepped_call(unsigned long set) {
  long result;
  __asm__ volatile(
      "lea -128(%%rsp), %%rsp; pushf; or %1, (%%rsp); popf; mov $110, %%eax; syscall; nop; pushf; andq $~0x100, (%%rsp); popf; lea 128(%%rsp), %%rsp"
      : "=&a"(result)
      : "r"(set)
      : "rcx", "r11", "memory", "cc");
  return (int)result;
}

int main(void) {
  MUST(sigaction(SIGTRAP, &(struct sigaction){.sa_sigaction = count, .sa_flags = SA_SIGINFO}, NULL));
  const pid_t parent = getppid();
  for (int i = 0; i < kRounds; i++) CHECK(stepped_call(0) == parent && getppid() == parent);
  CHECK(steps == 0);
  for (int i = 0; i < kRounds; i++) CHECK(stepped_call(kTrapFlag) == parent && getppid() == parent);
  CHECK(steps == kRounds * kPerRound);

  steps = 0;
  most = kMostSteps;
  __asm__ volatile("int3");
  uint64_t sum = 0;
  for (int i = 0; i < 10; i++) CHECK(getppid() == parent), sum += compute((uint64_t)i, 1);
  CHECK(steps == kMostSteps);
  NOTE(sum);
  return ok("%d steps", (int)steps);
}
