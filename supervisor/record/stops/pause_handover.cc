#include "supervisor/record/stops/pause_handover.h"

#include <algorithm>
#include <iterator>

#include "interceptors/instruction_kind.h"
#include "supervisor/record/stops/code_patching.h"
#include "supervisor/record/stops/preempter.h"
#include "supervisor/record/stops/served_calls.h"
#include "supervisor/record/stops/steps.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr auto kLong = std::chrono::milliseconds(1);  // a thread has had the baton, and may wait for others
constexpr unsigned kLoopSteps = 32;                   // in search of a loop

}  // namespace

void PauseHandover::watch(Unit& unit) {
  Thread& holder = *unit.baton.holder();
  const auto now = tracer_.now();
  if (!unit.baton.is_awaited() || holder.preempting || !slot_of(holder)) return;
  if (now - unit.baton.since() > kLong && unit.pause_looks.is_due(now)) {
    holder.looked_at = tracer_.interrupt(holder.tid);
  }
}

bool PauseHandover::look(Thread& thread) {
  Unit& unit = *thread.process->unit;
  if (unit.baton.holder() != &thread || !slot_of(thread)) return false;
  const auto began = tracer_.now();
  user_regs_struct regs;
  bool handled = false;
  const std::vector<Address> loop = find_loop(thread, regs, handled);
  if (!loop.empty()) {
    thread.entry = regs;
    thread.entry.orig_rax = ~0ull;
  }
  const bool found = std::any_of(loop.begin(), loop.end(), [&](Address at) {
    patching_.patch_instruction(thread, at, SiteKind::loop);
    return slot_of(thread) && thread.process->gate->patched(at);
  });
  unit.pause_looks.took(began, tracer_.now(), found);
  if (loop.empty()) return handled;
  control_.set_regs(thread, thread.entry);
  // It has come there before.
  if (gate::Slot* const slot = slot_of(thread)) slot->uncounted |= found;
  control_.run_on(thread);
  return true;
}

// Has the thread execute some instructions of its program until it comes to a pause, and back to that. Returns the
// addresses of the instructions of this loop, the pause first: only that, if it has not come back.
std::vector<Address> PauseHandover::find_loop(Thread& thread, user_regs_struct& regs, bool& handled) {
  const Gate& gate = *thread.process->gate;
  std::vector<Address> loop;
  if (!tracer_.get_regs(thread.tid, regs)) return {};
  for (unsigned step = 0; step < kLoopSteps; ++step) {
    const bool in_call = static_cast<int64_t>(regs.orig_rax) >= 0 && restarts(static_cast<int64_t>(regs.rax));
    if (regs.cs != kCodeSegment || in_call || gate.touches(regs.rip, regs.rip + 1)) break;
    if (!loop.empty() && regs.rip == loop.front()) return loop;
    uint8_t code[std::size(kPause)] = {};
    thread.process->memory.read_some(regs.rip, code, sizeof code);
    if (!loop.empty() || std::equal(std::begin(code), std::end(code), std::begin(kPause))) loop.push_back(regs.rip);
    const InstructionAt instruction = steps_.instruction_at(thread, regs.rip);
    if (instruction.kind == InstructionKind::event || (regs.eflags & kTrapFlag)) break;
    if (!steps_.step(thread, instruction, regs, handled)) break;
  }
  if (loop.size() > 1) loop.resize(1);
  return handled ? std::vector<Address>() : loop;
}

void PauseHandover::paused(Thread& thread, user_regs_struct regs, uint64_t times) {
  Unit& unit = *thread.process->unit;
  RecordedGate& gate = *thread.process->gate;
  const PatchedSite* const site = gate.come_by(gate.slot()->site);
  if (!site || site->kind != SiteKind::loop) {
    served_.check_taken_back();
    served_.break_gate(gate);
    return control_.run_on(thread);
  }
  regs = in_loop(*gate.slot(), regs);
  if (!unit.baton.is_awaited()) {
    tracer_.set_regs(thread.tid, regs);
    return control_.run_on(thread);
  }
  gate.make_canonical(regs);
  control_.set_regs(thread, regs);  // it comes there again, and is counted
  add_preemption(thread, regs, Preempted::paused, times);
  unit.clock.add_replay(limits_.replayed_stop_ns);
  thread.turns.got_on();
  thread.pause_patience.gave_way(unit.preemptions);
  turns_.give_way(thread, regs);
}

}  // namespace redrive
