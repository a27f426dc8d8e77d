// Signals that look as if an instruction had caused them, although none has. The kernel does not say where such a
// signal comes from, so what leads to it is noted, and compared:
// - what a process queues to itself, for which it chooses any si_code (rt_sigqueueinfo(2)), as crash reporters do when
//   they raise a fault anew;
// - the end of a child that sends a fault's signal (clone(2)), because CLD_EXITED and its like are the numbers of
//   causes, too;
// - what the kernel forces on a thread whose signal frame it cannot read (sigreturn(2)).
//
// What is taken without a stop (sigtimedwait(2)) stays noted. If an instruction then causes exactly that, its fault is
// taken for the other signal once, and happens again.
#pragma once

#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "base/remote.h"

namespace redrive {

class FalseFaults {
 public:
  // At the entry of a call; `memory` is its thread's.
  void note_queued(int64_t number, const std::array<uint64_t, 6>& args, const Memory& memory) {
    const bool to_thread = number == SYS_rt_tgsigqueueinfo;
    if (!to_thread && number != SYS_rt_sigqueueinfo && number != SYS_pidfd_send_signal) return;
    siginfo_t info{};
    if (!memory.get(args[to_thread ? 3 : 2], info)) return;
    info.si_signo = static_cast<int>(args[to_thread ? 2 : 1]);
    note(info);
  }
  // The process has got a child, which has this number for it, and whose end sends it this signal.
  void note_child(int signal, pid_t child) {
    siginfo_t end{};
    end.si_signo = signal;
    end.si_code = CLD_EXITED;
    if (!redrive::caused_by_instruction(end)) return;
    children_.push_back({signal, child});
    if (children_.size() > kMost) children_.pop_front();
  }
  // The kernel could not read a signal frame of one of its threads.
  void note_bad_frame() {
    siginfo_t info{};
    info.si_signo = SIGSEGV;
    info.si_code = SI_KERNEL;
    note(info);
  }

  // Whether an instruction has caused a signal for which a thread of the process has stopped.
  bool caused_by_instruction(const siginfo_t& info) const {
    return redrive::caused_by_instruction(info) && find(info) == noted_.end() && !is_end_of_child(info);
  }
  // This one has come.
  void take(const siginfo_t& info) {
    if (const auto found = find(info); found != noted_.end()) noted_.erase(found);
  }

 private:
  static constexpr size_t kMost = 64;
  static constexpr size_t kKnownSize = 48;  // what the kernel keeps (struct kernel_siginfo)
  struct Child {
    int signal;
    pid_t number;
  };

  void note(const siginfo_t& info) {
    if (!redrive::caused_by_instruction(info) || find(info) != noted_.end()) return;
    noted_.push_back(info);
    if (noted_.size() > kMost) noted_.pop_front();
  }
  std::deque<siginfo_t>::const_iterator find(const siginfo_t& info) const {
    return std::find_if(noted_.begin(), noted_.end(),
                        [&](const siginfo_t& noted) { return std::memcmp(&noted, &info, kKnownSize) == 0; });
  }
  bool is_end_of_child(const siginfo_t& info) const {
    if (info.si_code < CLD_EXITED || info.si_code > CLD_CONTINUED) return false;
    return std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
      return child.signal == info.si_signo && child.number == info.si_pid;
    });
  }

  std::deque<siginfo_t> noted_;
  std::deque<Child> children_;
};

}  // namespace redrive
