#include "supervisor/record/stops/loop_handover.h"

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

void LoopHandover::watch(Unit& unit) {
  constexpr auto kLong = std::chrono::milliseconds(1);  // it has had the baton, and may wait for others
  Thread& holder = *unit.baton.holder();
  const auto now = tracer_.now();
  if (!unit.baton.is_awaited() || holder.is_interrupted() || now - unit.baton.since() < kLong) return;
  if (!slot_of(holder) || in_served_call(holder)) return;
  const unsigned instructions = unit.loop_looks.due(now, unit.preemptions);
  if (instructions && tracer_.interrupt(holder.tid)) holder.looked_at = instructions;
}

bool LoopHandover::look(Thread& thread, unsigned instructions) {
  Unit& unit = *thread.process->unit;
  // A handler may have to see the end of the call that the thread comes out of.
  const bool signal = !thread.signals.empty() || tracer_.signal_masks(thread.tid).deliverable();
  if (unit.baton.holder() != &thread || !slot_of(thread) || signal) return false;
  const auto began = tracer_.now();
  user_regs_struct regs;
  bool handled = false;
  const LoopSearch::Loop loop = find_loop(thread, instructions, regs, handled);
  const bool any = !handled && !loop.instructions.empty();
  const bool found = any && precede(thread, regs, loop);
  unit.loop_looks.took(instructions, began, tracer_.now(), unit.preemptions, found);
  if (!any) return handled;
  control_.set_regs(thread, thread.entry);
  // It has come there before.
  if (gate::Slot* const slot = slot_of(thread)) slot->uncounted |= found;
  control_.run_on(thread);
  return true;
}

// Has the thread execute so many instructions of its program, or until it is known in which loop it waits.
LoopSearch::Loop LoopHandover::find_loop(Thread& thread, unsigned instructions, user_regs_struct& regs, bool& handled) {
  const Gate& gate = *thread.process->gate;
  LoopSearch search;
  if (!tracer_.get_regs(thread.tid, regs)) return {};
  for (unsigned executed = 0; executed < instructions; ++executed) {
    const bool in_call = static_cast<int64_t>(regs.orig_rax) >= 0;
    if (regs.cs != kCodeSegment || in_call || gate.touches(regs.rip, regs.rip + 1)) break;
    uint8_t code[std::size(kPause)] = {};
    thread.process->memory.read_some(regs.rip, code, sizeof code);
    const bool is_pause = std::equal(std::begin(code), std::end(code), std::begin(kPause));
    if (search.comes_to(regs, is_pause, [&] { return tracer_.get_xstate(thread.tid); })) break;
    const InstructionAt instruction = steps_.instruction_at(thread, regs.rip);
    if (instruction.kind == InstructionKind::event || (regs.eflags & kTrapFlag)) break;
    if (!steps_.step(thread, instruction, regs, handled)) break;
  }
  return search.loop();
}

// Has one of the loop's instructions preceded by a jump to the tier. The thread, which has these registers, has to have
// them set then. False if no jump fits.
bool LoopHandover::precede(Thread& thread, const user_regs_struct& regs, const LoopSearch::Loop& loop) {
  constexpr size_t kMostTried = 32;
  const auto end =
      loop.instructions.begin() + static_cast<std::ptrdiff_t>(std::min(kMostTried, loop.instructions.size()));
  thread.entry = regs;
  thread.entry.orig_rax = ~0ull;
  return std::any_of(loop.instructions.begin(), end, [&](Address at) {
    patching_.patch_instruction(thread, at, loop.kind);
    return slot_of(thread) && thread.process->gate->patched(at);
  });
}

void LoopHandover::waits(Thread& thread, user_regs_struct regs, uint64_t times) {
  Unit& unit = *thread.process->unit;
  RecordedGate& gate = *thread.process->gate;
  const PatchedSite* const site = gate.come_by(gate.slot()->site);
  if (!site || !is_loop(site->kind)) {
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
  add_preemption(thread, regs, Preempted::waiting, times);
  unit.clock.add_replay(limits_.replayed_stop_ns);
  thread.loop_patience.gave_way(unit.preemptions);
  turns_.give_way(thread, regs);
}

}  // namespace redrive
