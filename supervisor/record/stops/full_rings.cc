#include "supervisor/record/stops/full_rings.h"

#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/served_calls.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {

bool FullRings::serve_again(Thread& thread) {
  RecordedGate* const gate = thread.process->gate.get();
  if (!served_.has_maker() || !gate || !gate->slot() || !thread.is<Thread::User>()) return false;
  const gate::Slot& slot = *gate->slot();
  const bool full = slot.phase == gate::Phase::outside && !slot.want_stop && slot.head >= gate::kRingSize / 2;
  user_regs_struct regs;
  if (!full || !tracer_.get_regs(thread.tid, regs)) return false;
  const Address stop = regs.rip - kSyscallSize;
  // Patches may be forgotten meanwhile: the slot knows from which trampoline it comes.
  if (stop != slot.site) return false;
  if (served_.idle()) {  // else the next tick looks
    const TakenBack taken_back(served_);
    if (wants_stop(*thread.process->unit)) return false;
  }
  served_.make_events_behind();
  served_.empty_ring(thread);
  regs.rip = arena_->header().entry;
  regs.rcx = stop;
  regs.rax = regs.orig_rax;
  regs.orig_rax = ~0ull;
  tracer_.set_regs(thread.tid, regs);
  control_.set_slot(thread);
  control_.resume(thread, Resume::cont);
  return true;
}

// Whether a checkpoint may be due, or wanted here.
bool FullRings::wants_stop(Unit& unit) {
  if (messages_.looks_for_place()) return true;
  if (!checkpointer_.is_due(unit)) return false;
  unit.last_clock_check = {};  // so that it is asked again at once
  return true;
}

}  // namespace redrive
