#include "supervisor/interrupts.h"

#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>

namespace redrive {
namespace {

std::atomic<int> g_signal{0};
std::atomic<int> g_count{0};
std::atomic<bool> g_from_terminal{false};

void note(int signal, siginfo_t* info, void*) {
  g_from_terminal = info->si_code == SI_KERNEL;
  g_signal = signal;
  ++g_count;
}

void nothing(int) {}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_sigaction = note;
  action.sa_flags = SA_SIGINFO;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaction(signal, &action, nullptr);
  struct sigaction tick {};
  tick.sa_handler = nothing;
  sigaction(SIGALRM, &tick, nullptr);
  wake_within(kTick);
}

void wake_within(std::chrono::microseconds time) {
  const itimerval timer{{0, kTick.count()}, {0, std::min(time, kTick).count()}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void release_interrupts() {
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM}) ::signal(signal, SIG_DFL);
}

int pass_on_interrupts(pid_t root) {
  const int signal = g_signal.exchange(0);
  if (!signal) return 0;
  if (g_count == 1 && !g_from_terminal) kill(root, signal);
  return g_count;
}

}  // namespace redrive
