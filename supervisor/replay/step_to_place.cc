#include "supervisor/replay/step_to_place.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/unit_state.h"
#include "supervisor/replay/divergence.h"
#include "supervisor/tier/registers.h"
#include "supervisor/tier/stepping.h"

namespace redrive {

Result<Step> step_to_place(const Redriving& redriving, RedrivenThread& thread, EventIndex index, const Event& event) {
  const auto never_came = [&](const std::string& came_to) {
    return diverged(thread, index, fmt::format("to come to {:#x} {} times", event.ip, event.args[1]), came_to);
  };
  redriving.gates.remove_all();
  if (!get_regs(thread.tid, thread.regs)) return never_came("the process ended");
  const InstructionReader reader;
  uint64_t times = 0;
  bool out = false;
  for (unsigned steps = 0; times != event.args[1];) {
    if (steps == kMostSteps) return never_came(fmt::format("{} times in {} instructions", times, steps));
    const auto instruction = instruction_at(reader, redriving.unit.memory(thread), thread.regs.rip);
    const user_regs_struct before = thread.regs;
    if (instruction.kind == InstructionKind::event || !redriving.runner.step(thread, instruction)) {
      return never_came(fmt::format("an event at {:#x}", thread.regs.rip));
    }
    const bool comes_out = !std::exchange(out, true) && same_registers(before, thread.regs);  // of the kernel
    if (comes_out) continue;
    ++steps;
    if (thread.regs.rip == event.ip) ++times;
  }
  if (!event.regs_hash.agrees(preserved_registers_hash(thread.regs))) return never_came("there with other registers");
  thread.regs.orig_rax = ~0ull;
  TRY(redriving.gates.map_all());
  return Step::as_recorded();
}

}  // namespace redrive
