// Real-time signals with values that a thread queues for itself and that another one queues for it: handlers see them in the order in
// which they were sent, at system calls, in computations and in other handlers.
#include "test.h"

enum { kBursts = 40, kBurst = 5 };

static volatile sig_atomic_t own_seen, others_seen;
static pthread_t receiver;

static void on_own(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  CHECK(info->si_value.sival_int == own_seen + 1);
  own_seen++;
}

static void on_others(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  CHECK(getppid() > 0);
  CHECK(info->si_value.sival_int == others_seen + 1);
  others_seen++;
  CHECK(getppid() > 0);
}

static void queue(pthread_t thread, int signal, int value) {
  MUST0(pthread_sigqueue(thread, signal, (union sigval){.sival_int = value}));
}

static void* sender(void* unused) {
  for (int i = 1; i <= kBursts * kBurst; i++) {
    queue(receiver, SIGRTMIN + 1, i);
    if (i % kBurst == 0) compute(1, 1);
  }
  return unused;
}

int main(void) {
  struct sigaction own = {.sa_sigaction = on_own, .sa_flags = SA_SIGINFO | SA_RESTART}, others = own;
  others.sa_sigaction = on_others;
  MUST(sigaction(SIGRTMIN, &own, NULL));
  MUST(sigaction(SIGRTMIN + 1, &others, NULL));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN);
  receiver = pthread_self();
  pthread_t thread;
  MUST0(pthread_create(&thread, NULL, sender, NULL));
  for (int burst = 0; burst < kBursts; burst++) {
    const int pending = burst % 2;  // until all are there
    if (pending) MUST0(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 1; i <= kBurst; i++) queue(receiver, SIGRTMIN, burst * kBurst + i);
    if (pending) MUST0(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    CHECK(own_seen == (burst + 1) * kBurst);
    noted += compute(2, 1);
  }
  while (others_seen < kBursts * kBurst) noted += compute(3, 1) & 0;
  MUST0(pthread_join(thread, NULL));
  return ok("%d and %d, %016llx", own_seen, others_seen, (unsigned long long)noted);
}
