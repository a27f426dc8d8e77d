// Calls that read or write the memory of processes. What they write into the memory of another process
// (process_vm_writev(2), write(2) and the like to proc_pid_mem(5), or to a file of which that process has a private
// view) must be found by a replay at an event of that process. So the kernel makes the call while no thread of that
// process's unit runs user code: if one does, the unit is asked to stop, and the caller waits at its entry. What was
// written becomes an event there before a thread runs user code again, in the form of a signal without number: at the
// thread's boundary or before its system call, with memory and unchanged registers. What the calls read is in their own
// events, and shows code as it was before instructions were replaced.
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;
class Findings;
class ThreadControl;
class CallEvents;
class Ends;
class StopHandler;

class ForeignMemory {
 public:
  ForeignMemory(Tracer& tracer, Tracees& tracees, Findings& findings, ThreadControl& control, CallEvents& events,
                Ends& ends, StopHandler& handler)
      : tracer_(tracer),
        tracees_(tracees),
        findings_(findings),
        control_(control),
        events_(events),
        ends_(ends),
        handler_(handler) {}

  // The unit of the process into whose memory the call writes. Null if that process is not recorded, or is the thread's
  // own and is written to through a descriptor.
  Unit* written_unit(const Thread& thread);
  // At the entry of such a call: makes it, or waits until the unit whose memory it would change is at an event.
  void enter_write(Thread& thread, Unit* unit);
  // The unit is at an event.
  void let_write(Unit& unit);
  // Such a call has ended: what it has written is an output of its own, or waits for an event of the other process.
  void note_write(Thread& thread, int64_t result, Event& event);
  // Such a call has put `length` bytes that it has read into `outputs`: replaced instructions among them are shown as
  // they were.
  void show_own_code(Thread& thread, uint64_t length, std::span<const Span> outputs);
  // A call that may have given the process files has ended. If memory of a process is among them, the writes of all
  // that have the thread's descriptors are examined from now on, and none of their calls is served in process.
  void note_descriptors(Thread& thread, int64_t result);
  // The call may have written to the memory of a process through a descriptor.
  void note_written_memory(Thread& thread, uint64_t written, Event& event);

 private:
  void make_write(Thread& thread);
  // A thread of the process whose memory is behind a descriptor (proc_pid_mem(5)); null if none is, or if that is not
  // recorded.
  Thread* owner_of(const Thread& thread, uint64_t fd);
  std::vector<AddressRange> read_by(const Thread& thread, uint64_t length, const Process** source);

  Tracer& tracer_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  CallEvents& events_;
  Ends& ends_;
  StopHandler& handler_;
};

// Where in its file a call that has written `length` bytes ended. `size`: the file's, where a write with O_APPEND ends.
uint64_t end_of_write(const Thread& thread, uint64_t length, uint64_t size);
// At its entry: where it will write, if that is the position of its descriptor, which others may share.
std::optional<uint64_t> position_written(const Thread& thread);

}  // namespace redrive
