// Signals that a process has queued to itself and that look as if an instruction had caused them: for itself a process
// chooses any si_code (rt_sigqueueinfo(2)), as crash reporters do when they raise a fault anew. The kernel does not say
// where such a signal comes from, so what was queued is noted at the call, and compared.
//
// What is taken without a stop (sigtimedwait(2)) stays noted. If an instruction then causes exactly that, its fault is
// taken for the queued signal once, and happens again.
#pragma once

#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "base/remote.h"

namespace redrive {

class QueuedToSelf {
 public:
  // At the entry of a call; `memory` is its thread's.
  void note(int64_t number, const std::array<uint64_t, 6>& args, const Memory& memory) {
    const bool to_thread = number == SYS_rt_tgsigqueueinfo;
    if (!to_thread && number != SYS_rt_sigqueueinfo && number != SYS_pidfd_send_signal) return;
    siginfo_t info{};
    if (!memory.get(args[to_thread ? 3 : 2], info)) return;
    info.si_signo = static_cast<int>(args[to_thread ? 2 : 1]);
    if (!redrive::caused_by_instruction(info) || find(info) != noted_.end()) return;
    noted_.push_back(info);
    if (noted_.size() > kMost) noted_.pop_front();
  }
  // Whether an instruction has caused a signal for which a thread of the process has stopped.
  bool caused_by_instruction(const siginfo_t& info) const {
    return redrive::caused_by_instruction(info) && find(info) == noted_.end();
  }
  // This one has come.
  void take(const siginfo_t& info) {
    if (const auto found = find(info); found != noted_.end()) noted_.erase(found);
  }

 private:
  static constexpr size_t kMost = 64;
  static constexpr size_t kKnownSize = 48;  // what the kernel keeps (struct kernel_siginfo)

  std::deque<siginfo_t>::const_iterator find(const siginfo_t& info) const {
    return std::find_if(noted_.begin(), noted_.end(),
                        [&](const siginfo_t& noted) { return std::memcmp(&noted, &info, kKnownSize) == 0; });
  }

  std::deque<siginfo_t> noted_;
};

}  // namespace redrive
