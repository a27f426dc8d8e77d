// What a process that runs already has, and a recorded one must not have: clocks that are read without a system call,
// counters that do not trap, an area in which the kernel writes the processor's number (rseq(2)). All this is taken
// away when the process is attached to (Attacher), and given back when it is let go.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <utility>

#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class CodePatching;
class Ends;
class FileCopies;
class Tracees;

class NativeState {
 public:
  NativeState(Tracer& tracer, TraceeCalls& calls, const RecorderLimits& limits, Tracees& tracees, FileCopies& files,
              CodePatching& patching, Ends& ends)
      : tracer_(tracer),
        calls_(calls),
        limits_(limits),
        tracees_(tracees),
        files_(files),
        patching_(patching),
        ends_(ends) {}

  // What takes long and can be done before the process is stopped: its files are copied and searched.
  // `changeable`: the objects, by device and inode, that it has mapped shared and could write to.
  void prepare(pid_t pid, const std::set<std::pair<uint64_t, uint64_t>>& changeable);

  // Has a thread that was stopped amid a call make that call anew, as the kernel would do unless a handler ran. A
  // handler that is to run first is started. Other signals that come are held. Fails if the thread cannot be recorded.
  Result<void> settle(Thread& thread);
  // Takes it all away from a process. All its threads must have settled.
  Result<void> take(Process& process);
  // A process that was attached to, or a child of it, has begun another program, with these registers. False if it was
  // killed.
  bool take_program(Thread& thread, user_regs_struct& regs);
  // Gives it back, and lets the process run untraced. All its threads must be stopped, but not amid a call.
  void let_go(Process& process);

  // The thread registers its area for restartable sequences. It would end if that failed, because it was told before
  // its process was attached to that it could. It has the area when it is let go. False if this is not such a call.
  bool answers_rseq(Thread& thread) const;

 private:
  enum class Others : uint8_t { held, delivered };  // signals without a handler

  Result<int64_t> call(Thread& thread, long number, std::initializer_list<uint64_t> args);
  // ... where an argument names memory, which has this size and is read after the call.
  Result<int64_t> call_reading(Thread& thread, void* to, size_t size,
                               const std::function<Result<int64_t>(Address memory)>& call);
  Result<void> start_handler(Thread& thread, Others others);
  Result<void> leave_vdso(Thread& thread);
  Result<void> take_vdso(Process& process);
  Result<void> take(Thread& thread);
  Result<void> take_area(Thread& thread);
  Result<void> read_process(Process& process, Thread& thread);
  void give_back(Process& process);
  void give_back(Thread& thread);
  void deliver_signals(Thread& thread);

  Tracer& tracer_;
  TraceeCalls& calls_;
  const RecorderLimits& limits_;
  Tracees& tracees_;
  FileCopies& files_;
  CodePatching& patching_;
  Ends& ends_;
};

// The threads of a process that have not ended.
std::vector<Thread*> threads_of(const Process& process);

}  // namespace redrive
