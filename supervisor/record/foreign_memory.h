// Calls that reach into the memory of processes. What they write into another one's (process_vm_writev(2), write(2) and
// its like to proc_pid_mem(5), or to a file of which that has a private view) a replay must find at an event of the
// process that they wrote to: the kernel makes the call while nobody runs user code in that process's unit, and before
// anybody does again, what was written becomes an event there. What they read shows code as it was before instructions
// were replaced.
#pragma once

#include "supervisor/record/tracee.h"
#include "supervisor/record/tracer.h"

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

  // The unit of the process into whose memory the call writes. Null if that is not recorded, or is the thread's own and
  // written by a descriptor.
  Unit* written_unit(const Thread& thread);
  // At the entry of such a call: makes it, or waits until the unit whose memory it would change is at an event.
  void enter_write(Thread& thread, Unit* unit);
  // The unit is at an event.
  void let_write(Unit& unit);
  // Such a call has ended: what it has written is an output of its own, or waits for an event of the process's.
  void note_write(Thread& thread, int64_t result, Event& event);
  // Such a call has put `length` bytes that it has read into `outputs`: replaced instructions among them are shown as
  // they were.
  void show_own_code(Thread& thread, uint64_t length, std::span<const Span> outputs);
  // The process whose memory is behind a descriptor (proc_pid_mem(5)); 0 if none is.
  pid_t memory_behind(const Process& process, uint64_t fd) const;
  // The call may have written to the memory of a process by a descriptor.
  void note_written_memory(Thread& thread, uint64_t written, Event& event);

 private:
  void make_write(Thread& thread);
  std::vector<AddressRange> read_by(const Thread& thread, uint64_t length, const Process** source);

  Tracer& tracer_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  CallEvents& events_;
  Ends& ends_;
  StopHandler& handler_;
};

// Where in its file a call ended that has written `length` bytes; `size`: the file's, which O_APPEND writes up to.
uint64_t end_of_write(const Thread& thread, uint64_t length, uint64_t size);

}  // namespace redrive
