// Signals that look as if an instruction had caused them: those that children send that were cloned with a fault's signal for their end,
// and the one that the kernel forces if it cannot read a signal frame (sigreturn(2)).
#include "test.h"

#include <setjmp.h>
#include <time.h>

static volatile sig_atomic_t count;
static volatile siginfo_t last;

static void note(int signal, siginfo_t* info, void* unused) {
  (void)signal, (void)unused;
  last = *info;
  count++;
}

enum wait { kSleeps, kCalls, kComputes, kWaits, kWays };

static void wait_for_signal(enum wait how, pid_t child) {
  const struct timespec moment = {.tv_nsec = 1000000};
  if (how == kWaits) CHECK(waitpid(child, NULL, __WALL) == child);
  while (!count) {
    if (how == kSleeps) nanosleep(&moment, NULL);
    if (how == kCalls) getppid();
  }
  if (how != kWaits) CHECK(waitpid(child, NULL, __WALL) == child);
}

static sigjmp_buf before;
static char stack[65536];

static void leave(int signal, siginfo_t* info, void* unused) {
  (void)signal, (void)unused;
  last = *info;
  siglongjmp(before, 1);
}

int main(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGUSR1};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    MUST(sigaction(signals[i], &(struct sigaction){.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART}, NULL));
    for (enum wait how = 0; how < kWays; how++) {
      count = 0;
      const pid_t child = (pid_t)MUST(syscall(SYS_clone, signals[i], 0, 0, 0, 0));
      if (child == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        _exit(5);
      }
      wait_for_signal(how, child);
      CHECK(count == 1 && last.si_signo == signals[i] && last.si_code == CLD_EXITED && last.si_pid == child && last.si_status == 5);
    }
  }

  MUST(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL));
  MUST(sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = leave, .sa_flags = SA_SIGINFO | SA_ONSTACK}, NULL));
  for (int times = 0; times < 3; times++) {
    if (sigsetjmp(before, 1) == 0) {
      // What follows the call is executed only if no signal comes.
      __asm__ volatile("mov $0x1000, %%rsp; mov $15, %%eax; syscall; nop; mov $39, %%eax; syscall; ud2" ::: "memory");
    }
    const int code = last.si_code;
    CHECK(code == SI_KERNEL);
    NOTE(code);
  }
  return ok("noted %llx", (unsigned long long)noted);
}
