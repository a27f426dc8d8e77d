#include "supervisor/record/stops/step_handover.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/unit_state.h"
#include "supervisor/record/stops/preempter.h"
#include "supervisor/record/stops/steps.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {

void StepHandover::go_on(Thread& thread, const user_regs_struct& from) {
  Unit& unit = *thread.process->unit;
  control_.runs_from(thread, from);
  bool handled = false;
  const auto place = find_place(thread, from.rip, handled);
  unit.step_turns.took_until(tracer_.now());
  if (handled) return;
  if (!place) return control_.run_on(thread);
  add_preemption(thread, place->regs, Preempted::stepped, place->times);
  unit.clock.add_replay(place->steps * limits_.replayed_stop_ns);
  turns_.give_way(thread, place->regs);
}

// Has the thread, which stands at `from` or in the trampoline of the call before that, execute some instructions of its
// program. Nothing if an event comes before.
std::optional<StepHandover::Place> StepHandover::find_place(Thread& thread, Address from, bool& handled) {
  StepTurns& turns = thread.process->unit->step_turns;
  const unsigned steps = turns.steps();
  const Gate* const gate = thread.process->gate.get();
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return {};
  bool out = false;
  std::vector<Address> came_to;
  const auto is_steppable = [&] { return regs.cs == kCodeSegment && !(regs.eflags & kTrapFlag); };
  const auto is_moved = [&](Address ip) { return gate && gate->touches(ip, ip + 1); };
  while (is_steppable() && !in_gate(thread, regs.rip)) {
    // In the tier's copies of instructions it may not stay, and a replay need not come by them.
    if (came_to.size() >= steps && !is_moved(regs.rip)) {
      const auto times = std::count(came_to.begin(), came_to.end(), regs.rip);
      return Place{regs, came_to.size(), static_cast<uint64_t>(times)};
    }
    const InstructionAt instruction = steps_.instruction_at(thread, regs.rip);
    if (instruction.kind == InstructionKind::event || came_to.size() == kMostSteps) break;
    const user_regs_struct before = regs;
    if (!steps_.step(thread, instruction, regs, handled)) return {};
    const bool comes_out = !std::exchange(out, true) && same_registers(before, regs);  // of the kernel
    // A replay, which stands at `from`, does not come there.
    const bool leaves_trampoline = regs.rip == from && std::all_of(came_to.begin(), came_to.end(), is_moved);
    if (!comes_out && !leaves_trampoline) came_to.push_back(regs.rip);
  }
  turns.came_to_event(came_to.size());
  return {};
}

}  // namespace redrive
