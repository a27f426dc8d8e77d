// The processes and threads of a unit that is re-driven, and the objects that they have mapped shared. What the
// in-process tier adds to them is in unit_gates.h.
#pragma once

#include <map>
#include <optional>

#include "checkpoint/restore.h"
#include "logstore/event.h"
#include "supervisor/replay/balancer.h"
#include "supervisor/tier/first_processor.h"

namespace redrive {

// Where a thread that was let run has come to.
enum class ThreadStop : uint8_t {
  syscall,  // the entry of a system call
  fault,    // an instruction that caused a signal
  gone,     // nowhere: its process has ended
  overdue   // nowhere in time
};

struct RedrivenThread {
  ThreadSerial serial = 0;
  ProcessSerial process = 0;
  pid_t tid = -1;
  bool stopped_at_syscall = false;  // entered, its result not given yet
  user_regs_struct regs{};          // as at the last stop
  std::optional<ThreadStop> ahead;  // it is at its next stop already
  int fault_signal = 0;             // that its last fault has raised
  bool reseated = false;            // it may stand right before a call that was replaced (UnitGates::replace())
};

class RedrivenUnit {
 public:
  // `seat`: of the thread that traces its processes.
  explicit RedrivenUnit(Seat& seat) : seat_(seat) {}

  // The unit at a checkpoint, with the state that the checkpoint has.
  void take(RestoredUnit restored, const UnitState& state);
  // The unit of a process that was forked, with its only thread.
  void take_first(RestoredProcess process, const user_regs_struct& regs);

  // Adds a process, or a thread of one. What was there before does not move.
  ProcessSerial add(RestoredProcess process);
  void add(const RedrivenThread& thread);
  // Ends a process, with its threads.
  void forget_process(ProcessSerial process);
  void forget_thread(ThreadSerial thread) { threads_.erase(thread); }

  // Call this where it may write code that executes cpuid, which does not trap (tier/first_processor.h).
  void stay_on_first_processor() { seat_.stay_on_first(kReplayedCodeSettles_ns); }

  const std::map<ProcessSerial, RestoredProcess>& processes() const { return restored_.processes; }
  bool has(ProcessSerial process) const { return restored_.processes.contains(process); }
  RestoredProcess& process(ProcessSerial process) { return restored_.processes.at(process); }
  const Stub& stub(ProcessSerial process) const { return restored_.processes.at(process).stub; }
  const Memory& memory(const RedrivenThread& thread) const { return stub(thread.process).memory(); }
  // The first living process that runs on the memory of this one. The one that had it first may be gone.
  ProcessSerial memory_owner(ProcessSerial process) const;

  std::map<ThreadSerial, RedrivenThread>& threads() { return threads_; }
  const std::map<ThreadSerial, RedrivenThread>& threads() const { return threads_; }
  RedrivenThread* find(ThreadSerial thread);  // null: there is none
  RedrivenThread& thread(ThreadSerial thread) { return threads_.at(thread); }

  SharedObjects& shared() { return restored_.shared; }
  const SharedObjects& shared() const { return restored_.shared; }

  // Serials that have not been used.
  ProcessSerial next_process() const { return next_process_; }
  ThreadSerial next_thread() const { return next_thread_; }

  // Whether something else has killed a process of it: what is re-driven cannot end itself by SIGKILL.
  bool was_killed() const;

 private:
  Seat& seat_;
  RestoredUnit restored_;
  std::map<ThreadSerial, RedrivenThread> threads_;
  ProcessSerial next_process_ = 0;
  ThreadSerial next_thread_ = 0;
};

}  // namespace redrive
