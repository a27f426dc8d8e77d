// Signals wait for the thread or the process that they were sent to, with what their sender has said, until they are unblocked.
#include "test.h"

#include <stdbool.h>

enum { TO_THREAD = 7, TO_PROCESS = 8, NEVER = -1 };

static volatile int thread_number = NEVER, by_child = NEVER, to_thread = NEVER, to_process = NEVER, stray;
static pid_t main_thread;

static void on_signal(int signal, siginfo_t* info, void* unused) {
  (void)unused;
  const bool mine = syscall(SYS_gettid) == main_thread;
  if (signal == SIGUSR1) by_child = info->si_code == SI_USER ? info->si_pid : NEVER;
  if (signal == SIGUSR2 && mine) thread_number = info->si_code == SI_TKILL ? info->si_pid : NEVER;
  if (signal == SIGUSR2 && !mine) stray++;
  if (signal == SIGRTMIN) to_thread = mine ? info->si_value.sival_int : NEVER;
  if (signal == SIGRTMIN + 1) to_process = info->si_value.sival_int;
}

static volatile bool done;
static void* disturb(void* unused) {
  sigset_t taken;  // if they were sent to the process
  sigemptyset(&taken);
  sigaddset(&taken, SIGUSR2);
  sigaddset(&taken, SIGRTMIN);
  MUST0(pthread_sigmask(SIG_UNBLOCK, &taken, NULL));
  while (!done) usleep(1000);
  return unused;
}

int main(void) {
  main_thread = getpid();
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  sigset_t set;
  sigemptyset(&set);
  const int signals[] = {SIGUSR1, SIGUSR2, SIGRTMIN, SIGRTMIN + 1};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    MUST(sigaction(signals[i], &action, NULL));
    sigaddset(&set, signals[i]);
  }
  MUST0(pthread_sigmask(SIG_BLOCK, &set, NULL));
  pthread_t other;
  MUST0(pthread_create(&other, NULL, disturb, NULL));

  MUST0(pthread_kill(pthread_self(), SIGUSR2));
  MUST0(pthread_sigqueue(pthread_self(), SIGRTMIN, (union sigval){.sival_int = TO_THREAD}));
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(kill(getppid(), SIGUSR1));
    MUST(sigqueue(getppid(), SIGRTMIN + 1, (union sigval){.sival_int = TO_PROCESS}));
    _exit(0);
  }
  CHECK(MUST(waitpid(child, NULL, 0)) == child);
  for (int i = 0; i < 100; i++) getppid();
  CHECK(thread_number == NEVER && by_child == NEVER && to_thread == NEVER && to_process == NEVER);
  MUST0(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
  CHECK(thread_number == main_thread && by_child == child && to_thread == TO_THREAD && to_process == TO_PROCESS && stray == 0);
  done = true;
  MUST0(pthread_join(other, NULL));
  return ok("signals with their senders");
}
