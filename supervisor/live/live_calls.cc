#include "supervisor/live/live_calls.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstring>

#include "checkpoint/stub.h"
#include "supervisor/live/keeper.h"
#include "supervisor/tier/registers.h"

namespace redrive {

Result<int64_t> LiveCalls::call(long number, std::initializer_list<uint64_t> args) {
  user_regs_struct regs{};
  if (!get_regs(tid_, regs)) return Error{"a process that was to live was killed"};
  regs.rip = kLiveGate;
  regs.rax = static_cast<uint64_t>(number);
  regs.orig_rax = ~0ull;
  int i = 0;
  for (const uint64_t value : args) syscall_arg(regs, i++) = value;
  made_ = -1;
  if (!set_regs(tid_, regs)) return Error{"a process that was to live was killed"};
  constexpr int kStopsOfCall = 2;  // entry and exit
  for (int stops = 0; stops < kStopsOfCall;) {
    int status = 0;
    if (!resume(tid_, PTRACE_SYSCALL) || !wait_for(tid_, status) || !WIFSTOPPED(status)) {
      return Error{"a process that was to live was killed"};
    }
    constexpr int kSyscallStop = SIGTRAP | 0x80;
    if (WSTOPSIG(status) == kSyscallStop) ++stops;
    if (WSTOPSIG(status) == SIGSEGV) return Error{"a process that was to live cannot make calls"};
    if (status >> 16 == PTRACE_EVENT_CLONE) made_ = static_cast<pid_t>(event_message(tid_));
  }
  if (!get_regs(tid_, regs)) return Error{"a process that was to live was killed"};
  return static_cast<int64_t>(regs.rax);
}

Result<int64_t> LiveCalls::must(const std::string& doing, long number, std::initializer_list<uint64_t> args) {
  ASSIGN_OR_RETURN(const int64_t result, call(number, args));
  if (is_error(result)) return errno_error("cannot " + doing, static_cast<int>(-result));
  return result;
}

Result<uint64_t> LiveCalls::put(const void* bytes, size_t size) {
  constexpr uint64_t kPlace = kLiveGate + kPageSize;
  if (!memory_.write(kPlace, bytes, size)) return errno_error("cannot write to a process that is to live");
  return kPlace;
}

}  // namespace redrive
