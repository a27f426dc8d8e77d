#include "supervisor/record/front/interrupts.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "supervisor/record/front/front.h"

namespace redrive {
namespace {

// What came since the last look, by signal. Handlers run in any thread.
struct Came {
  std::atomic<unsigned> count{0};
  std::atomic<unsigned> in_all{0};  // since the beginning, whoever it was for
};
std::array<Came, kSignals> g_came;
std::array<struct sigaction, kSignals> g_before;

void note(int signal, siginfo_t* info, void*) {
  Came& came = g_came[static_cast<size_t>(signal)];
  // Timers (also those of CPU time) and writes into closed pipes are our own.
  if (signal == SIGALRM && (info->si_code == SI_KERNEL || info->si_code == SI_TIMER)) return;
  if (info->si_code != SI_KERNEL && info->si_pid == getpid()) return;
  ++came.in_all;
  if (!has_front()) ++came.count;
}

}  // namespace

bool is_for_program(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGABRT:
    case SIGSYS:
    case SIGCHLD:
    case SIGKILL:
    case SIGSTOP:
      return false;
    default:
      return signal <= SIGSYS || (signal >= SIGRTMIN && signal <= SIGRTMAX);
  }
}

void catch_interrupts() {
  for (int signal = 1; signal < kSignals; ++signal) {
    if (!is_for_program(signal)) continue;
    struct sigaction action {};
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO;
    if (signal == SIGTTOU) action.sa_handler = SIG_IGN;  // it may write while the program is in the background
    sigaction(signal, &action, &g_before[static_cast<size_t>(signal)]);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  wake_within(kTick);
}

void wake_within(std::chrono::microseconds time) {
  constexpr std::chrono::microseconds kSecond{1'000'000};
  const auto value = [&](std::chrono::microseconds of) { return timeval{of / kSecond, (of % kSecond).count()}; };
  const itimerval timer{value(std::max(time, kTick)), value(time)};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void wake_thread(pid_t tid) { tgkill(getpid(), tid, SIGALRM); }

void give_back_interrupts() {
  for (int signal = 1; signal < kSignals; ++signal) {
    if (is_for_program(signal)) sigaction(signal, &g_before[static_cast<size_t>(signal)], nullptr);
  }
  sigaction(SIGCHLD, &inherited_child_action(), nullptr);
  sigprocmask(SIG_SETMASK, &inherited_mask(), nullptr);
}

std::vector<int> take_interrupts() {
  std::vector<int> due;
  for (int signal = 1; signal < kSignals; ++signal) {
    Came& came = g_came[static_cast<size_t>(signal)];
    const unsigned passed_on = take_from_front(signal);
    came.in_all += passed_on;
    const unsigned own = came.count == 0 ? 0 : came.count.exchange(0);
    if (const unsigned times = passed_on + own) due.insert(due.end(), times, signal);
  }
  return due;
}

unsigned times_interrupted_by(int signal) { return g_came.at(static_cast<size_t>(signal)).in_all; }

}  // namespace redrive
