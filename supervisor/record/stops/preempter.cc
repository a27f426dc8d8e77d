#include "supervisor/record/stops/preempter.h"

#include <sched.h>
#include <sys/syscall.h>

#include <algorithm>

#include "checkpoint/address_space.h"
#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/checkpoints/state_capture.h"
#include "supervisor/record/kernel/page_faults.h"
#include "supervisor/record/stops/checkpoint_copies.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/steps.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr unsigned kSteps = 256;           // looked at for a place that is cheap to find
constexpr uint64_t kCodeSegment32 = 0x23;  // in which 32-bit code runs (asm/segment.h)

// The loop in whose place a thread that is there executes code of the tier; null if it executes other code. It comes
// out of this without an event, unless it stops there, and may do hardly anything else.
const PatchedSite* loop_at(RecordedGate& gate, Address ip) {
  if (Gate::executes_at(ip)) {
    const PatchedSite* const site = gate.come_by(gate.slot()->site);
    const bool within = gate.slot()->phase == gate::Phase::after;
    return site && is_loop(site->kind) && within ? site : nullptr;
  }
  const auto site = std::find_if(gate.sites.begin(), gate.sites.end(), [&](const PatchedSite& each) {
    const bool replaced = ip >= each.start && ip < each.end();
    return is_loop(each.kind) && (replaced || ip / kTrampolineSize * kTrampolineSize == each.trampoline());
  });
  return site == gate.sites.end() ? nullptr : &*site;
}

}  // namespace

void Preempter::watch(Unit& unit, bool checkpoint_due) {
  Thread& holder = *unit.baton.holder();
  const auto now = tracer_.now();
  const bool others_wait = (unit.baton.is_awaited() || !unit.joining.empty() || !unit.writers.empty()) &&
                           now - unit.baton.since() > kBatonSlice;
  const bool signal_waits = !holder.signals.empty() && now - holder.signals.since() > kBatonSlice;
  const bool stops_for_checkpoint = unit.period_ns && !limits_.virtual_checkpoints && unit.in_interval;
  const bool late =
      stops_for_checkpoint && (unit.checkpoint_requested || unit.clock.interval_ns() > intervals_.stop_at_ns(unit));
  if (checkpoint_due || others_wait) ask_to_stop(holder);
  if (!late && !others_wait && !signal_waits) {
    unit.patience.reset();
    return;
  }
  if (!late && in_served_call(holder)) return ask_to_stop(holder);
  const bool can_stop = checkpointer_.can_copy();
  const auto due = late ? Patience::Due::at_once : Patience::Due::soon;
  const auto answer = unit.patience.look(due, unit.clock.cpu_ns(), can_stop);
  if (answer.gave_up) findings_.add_unsure(unit, "a thread that makes no system call could not be stopped where it is");
  if (answer.interrupt) holder.preempting = tracer_.interrupt(holder.tid);
}

bool Preempter::preempt(Thread& thread, bool& handled) {
  const auto stopped_at = tracer_.now();
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  if (unit.baton.holder() != &thread || !unit.in_interval || births_unseen(unit)) return false;
  user_regs_struct regs;
  if (!settle(thread, regs, handled)) return false;
  const bool signal = !thread.signals.empty() || tracer_.signal_masks(thread.tid).deliverable();
  const bool others = unit.baton.is_awaited() || !unit.joining.empty() || !unit.writers.empty();
  // Without the tier nothing can make a call from here: its memory is read while it is stopped.
  const bool copied =
      unit.processes.size() == 1 && process.gate && process.gate->slot() && !forks_into_namespace(process.pid);
  auto captured = capture_.take(unit, thread, false, copied);
  if (!captured) {
    checkpointer_.note_skipped(unit);
    return false;
  }
  if (copied) {
    pid_t copy = -1;
    const auto made = calls_.make(*arena_, caller_of(thread), regs,
                                  {{SYS_clone, {CLONE_FILES, 0, 0, 0, 0, CheckpointCopies::kMark}}}, &copy);
    if (!made) {
      if (copy >= 0) copies_.end(copy);
      return handled = true, false;
    }
    tracer_.set_regs(thread.tid, regs);
    if (!copies_.give(*captured, copy, thread)) {
      checkpointer_.note_skipped(unit);
      return false;
    }
  }
  intervals_.end(unit);
  intervals_.begin(unit, CheckpointKind::image, process, static_cast<uint64_t>((tracer_.now() - stopped_at).count()));
  captured->interval = unit.interval;
  add_preemption(thread, regs, signal || others ? Preempted::turn : Preempted::checkpoint);
  checkpointer_.add_image(unit, std::move(*captured));
  if (signal || others) note_cost(unit, tracer_.now() - stopped_at);
  unit.patience.reset();
  // Others have waited longer than a signal that is held, and more signals may come at once.
  if (others) {
    ++unit.preemptions;
    turns_.give_way(thread, regs);
  } else {
    thread.entry = regs;
    thread.amid = !signal;  // a replay that passes the checkpoint does not stop there
    go_on(thread, signal);
  }
  return true;
}

void Preempter::note_cost(Unit& unit, Clock::duration pause) {
  Patience::Used used{unit.clock.cpu_ns()};
  for (const auto& process : unit.processes) used.faults_ns += page_faults_ns(process->pid);
  unit.patience.stopped(used, static_cast<uint64_t>(pause.count()));
}

void add_preemption(Thread& thread, const user_regs_struct& regs, Preempted why, uint64_t times) {
  Event event;
  event.kind = EventKind::preemption;
  event.thread = thread.serial;
  event.ip = regs.rip;
  const bool all = why == Preempted::waiting;
  event.regs_hash = RegistersHash::whole(all ? comparable_registers_hash(regs) : preserved_registers_hash(regs));
  event.args = {static_cast<uint64_t>(why), times};
  thread.process->unit->log.add(std::move(event));
  thread.turns.got_on();
}

void Preempter::go_on(Thread& thread, bool signals) {
  const bool comes = signals && (signals_.raise_held(thread) || tracer_.signal_masks(thread.tid).deliverable());
  control_.resume_user(thread, thread.entry);
  if (!comes) thread.moves_on();
}

// Has the thread, which executes code of the tier in the place of a loop, or what was moved there, execute some of
// that.
bool Preempter::leave(Thread& thread, const PatchedSite& loop, user_regs_struct& regs, bool& handled) {
  if (in_gate(thread, regs.rip)) return steps_.run_to(thread, loop.moved, regs, handled);
  const InstructionAt instruction = steps_.instruction_at(thread, regs.rip);
  return instruction.kind != InstructionKind::event && steps_.step(thread, instruction, regs, handled);
}

// Brings a thread that was interrupted to a place that a replay can find cheaply: where a jump can stand, if there is
// one within some instructions; never in the middle of a repeated one, nor in the tier's code. False if it is about to
// make an event, or was stopped by something else, which is handled then.
bool Preempter::settle(Thread& thread, user_regs_struct& regs, bool& handled) {
  const Memory& memory = thread.process->memory;
  const Gate* const gate = thread.process->gate.get();
  const auto mapped = code_mappings(thread.process->shown_as());
  if (!mapped) return false;
  if (!tracer_.get_regs(thread.tid, regs)) return false;
  for (unsigned step = 0;; ++step) {
    if (regs.cs != kCodeSegment && regs.cs != kCodeSegment32) return false;  // addresses mean something else there
    // It has come out of a call only to be sent into it again by the kernel.
    if (static_cast<int64_t>(regs.orig_rax) >= 0 && restarts(static_cast<int64_t>(regs.rax))) return false;
    if (gate && gate->touches(regs.rip, regs.rip + 1)) {
      const PatchedSite* const loop = loop_at(*thread.process->gate, regs.rip);
      if (!loop) return false;
      if (regs.rip == loop->start) break;
      if (step >= kSteps || !leave(thread, *loop, regs, handled)) return false;
      continue;
    }
    const InstructionAt instruction = steps_.instruction_at(thread, regs.rip);
    if (instruction.kind == InstructionKind::event) return false;
    if (instruction.kind != InstructionKind::repeated) {
      const Mapping* mapping = mapping_at(*mapped, regs.rip);
      // No jump fits in 32-bit code. Instructions at which no thread may be left are the same there.
      const bool cheap = regs.cs == kCodeSegment32 || (mapping && code_.window_at(memory, *mapping, regs.rip));
      if (cheap || step >= kSteps) break;
    }
    if (!steps_.step(thread, instruction, regs, handled)) return false;
  }
  regs.orig_rax = ~0ull;
  return true;
}

}  // namespace redrive
