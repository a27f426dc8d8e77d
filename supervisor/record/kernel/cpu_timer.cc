#include "supervisor/record/kernel/cpu_timer.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace redrive {
namespace {

timespec timespec_of(std::chrono::nanoseconds time) {
  constexpr std::chrono::nanoseconds kSecond = std::chrono::seconds(1);
  return {time / kSecond, (time % kSecond).count()};
}

}  // namespace

clockid_t cpu_clock_of(pid_t pid) {
  constexpr clockid_t kSched = 2;
  return (~static_cast<clockid_t>(pid) << 3) | kSched;
}

// The calls themselves, because the C library's timers are pointers, of which it says nothing else.
std::optional<CpuTimer> CpuTimer::make(pid_t pid) {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = gettid();
  int id = -1;
  if (syscall(SYS_timer_create, cpu_clock_of(pid), &event, &id) != 0) return {};
  return CpuTimer(id);
}

CpuTimer::~CpuTimer() {
  if (id_ >= 0) syscall(SYS_timer_delete, id_);
}

bool CpuTimer::set(std::chrono::nanoseconds cpu) {
  const itimerspec time{timespec_of(kAgain), timespec_of(cpu)};
  return syscall(SYS_timer_settime, id_, 0, &time, nullptr) == 0;
}

}  // namespace redrive
