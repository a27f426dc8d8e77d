#include "supervisor/record/tracees/thread_control.h"

#include <algorithm>

#include "supervisor/tier/registers.h"

namespace redrive {

void ThreadControl::resume(const Thread& thread, Resume how, int signal) { tracer_.resume(thread.tid, how, signal); }

void ThreadControl::resume_user(Thread& thread, const user_regs_struct& regs, bool rewound) {
  runs_from(thread, regs, rewound);
  run_on(thread);
}

// Whether an instruction has caused a signal that the thread has yet to stop for. It may be one that traps only while
// the thread is recorded.
bool ThreadControl::has_faulted(const Thread& thread) {
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  return masks.deliverable() & kCausedByInstructions;
}

void ThreadControl::run_on(Thread& thread, int ignored) {
  if (parks_ && !has_faulted(thread)) return park(thread);
  thread.signals.keep_off(tracer_, thread.tid, ignored);
  resume(thread, Resume::cont);
}

void ThreadControl::runs_from(Thread& thread, const user_regs_struct& regs, bool rewound) {
  if (!thread.process->written.empty()) {
    add_written(thread, after_restart(regs), rewound ? SignalPoint::before_syscall : SignalPoint::boundary);
  }
  thread.state = Thread::User{regs, rewound};
  set_slot(thread);
}

void ThreadControl::rewind(Thread& thread, const user_regs_struct& entry) {
  const user_regs_struct regs = before_syscall(entry);
  set_regs(thread, regs);
  resume_user(thread, regs, true);
}

bool ThreadControl::get_regs(const Thread& thread, user_regs_struct& regs) const {
  if (!tracer_.get_regs(thread.tid, regs)) return false;
  if (const Gate* gate = thread.process->tier()) gate->make_canonical(regs);
  return true;
}

bool ThreadControl::set_regs(const Thread& thread, const user_regs_struct& regs) const {
  user_regs_struct physical = regs;
  if (const Gate* gate = thread.process->tier()) physical.rip = gate->physical(regs.rip);
  return tracer_.set_regs(thread.tid, physical);
}

TraceeCalls::Caller caller_of(Thread& thread) { return {thread.tid, thread.signals}; }

gate::Slot* slot_of(const Thread& thread) {
  const Gate* gate = thread.process->gate.get();
  return gate ? gate->slot() : nullptr;
}

bool spins(const Thread& thread) {
  const gate::Slot* const slot = slot_of(thread);
  return slot && (read_once(slot->spins) >= gate::kMostSpins || read_once(slot->traps) >= gate::kMostTraps);
}

bool in_served_call(const Thread& thread) {
  const gate::Slot* const slot = slot_of(thread);
  return slot && read_once(slot->phase) == gate::Phase::kernel;
}

void ThreadControl::set_slot(Thread& thread) {
  gate::Slot* const slot = slot_of(thread);
  if (!slot) return;
  const Process& process = *thread.process;
  const Unit& unit = *process.unit;
  process.gate->use_table(thread.fds);
  slot->thread = thread.serial;
  slot->others_wait = unit.baton.is_awaited();
  slot->stop_at_wake = unit.lock_turns.in_vain();
  slot->spins = slot->traps = 0;
  gate::forget_loops(*slot);
  slot->loop_patience = thread.loop_patience.times();
  slot->uncounted = std::exchange(thread.amid, false);
  slot->tests = slot->waits = 0;
  const auto& restricted = thread.confinement.restricted();
  std::copy(restricted.begin(), restricted.end(), slot->restricted);
  const bool nothing = process.gate->broken || process.opens_memory || !process.packet_rings.empty();
  const bool at_call = !thread.signals.empty() || !process.copies_to_reap.empty() || !unit.joining.empty() ||
                       !unit.writers.empty() || unit.checkpoint_first || unit.checkpoint_wanted ||
                       thread.asked_to_stop || !process.attached.empty();
  slot->want_stop = (nothing ? gate::kServeNothing : 0) | (at_call ? gate::kStopAtCall : 0);
}

void ask_to_stop(Thread& thread) {
  thread.asked_to_stop = true;
  if (gate::Slot* slot = slot_of(thread)) slot->want_stop |= gate::kStopAtCall;
}

bool in_gate(const Thread& thread, Address ip) { return thread.process->gate && Gate::executes_at(ip); }

void add_written(Thread& thread, const user_regs_struct& regs, SignalPoint where) {
  Process& process = *thread.process;
  Event event;
  event.kind = EventKind::signal;
  event.thread = thread.serial;
  event.ip = regs.rip;
  event.args[0] = static_cast<uint64_t>(where);
  event.writes = std::exchange(process.written, {});
  event.registers = RegisterFile{as_bytes(regs), {}};
  process.unit->log.add(std::move(event));
}

}  // namespace redrive
