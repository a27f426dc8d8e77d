// Lets stopped threads run user code, and reads and writes their registers as if no instruction had been replaced: its
// users know nothing of trampolines. What the code inside a tracee must know is put into its slot before it runs.
#pragma once

#include <set>

#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class ThreadControl {
 public:
  ThreadControl(Tracer& tracer) : tracer_(tracer) {}

  // False if it was killed.
  bool get_regs(const Thread& thread, user_regs_struct& regs) const;
  bool set_regs(const Thread& thread, const user_regs_struct& regs) const;
  void resume(const Thread& thread, Resume how, int signal = 0);
  // Lets the thread run user code from there; `rewound`: as in Thread::User.
  void resume_user(Thread& thread, const user_regs_struct& regs, bool rewound = false);
  // Lets a thread that has stopped between its events run on. `ignored`: a signal that is not to stop it any more on
  // the way to the next one; 0: none.
  void run_on(Thread& thread, int ignored = 0);
  // The thread is about to be resumed there.
  void runs_from(Thread& thread, const user_regs_struct& regs, bool rewound = false);
  // Lets the thread enter again the syscall at whose entry (or cancelled entry) it is stopped.
  void rewind(Thread& thread, const user_regs_struct& entry);
  // What the code inside the thread's address space must know before the thread runs user code.
  void set_slot(Thread& thread);

  // From now on threads that are about to run user code stay stopped instead.
  void park_all() { parks_ = true; }
  bool parks() const { return parks_; }
  void park(const Thread& thread) { parked_.insert(thread.tid); }
  bool is_parked(const Thread& thread) const { return parked_.contains(thread.tid); }

 private:
  bool has_faulted(const Thread& thread);

  Tracer& tracer_;
  bool parks_ = false;
  std::set<pid_t> parked_;
};

// The slot of the thread's address space; null if nothing is served there.
gate::Slot* slot_of(const Thread& thread);
// Whether the code inside the tracee has stopped the thread because it spins.
bool spins(const Thread& thread);
// Whether the kernel executes a call of the thread that is served. The thread is not interrupted for its turn then:
// some calls would end with a part of what they do, although they do not sleep.
bool in_served_call(const Thread& thread);
// Has the thread's next call stop, even where it could be served.
void ask_to_stop(Thread& thread);
bool in_gate(const Thread& thread, Address ip);
// The thread is about to run user code, with these registers, or to make the call before which it stands: what others
// have written into its memory becomes an event, like a signal that has no handler.
void add_written(Thread& thread, const user_regs_struct& regs, SignalPoint where);
TraceeCalls::Caller caller_of(Thread& thread);

}  // namespace redrive
