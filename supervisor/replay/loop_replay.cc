#include "supervisor/replay/loop_replay.h"

#include <fmt/format.h>

#include "supervisor/replay/divergence.h"
#include "supervisor/tier/registers.h"
#include "supervisor/tier/stepping.h"

namespace redrive {
namespace {

// As the tier counts it. False if the thread has come to something else.
bool run_counted(const Redriving& redriving, RedrivenThread& thread, const Event& event, ThreadStop& came_to) {
  const Gate& gate = *redriving.gates.of(thread);
  gate::Slot& slot = *gate.slot();
  slot.awaited_loop = gate.patched(event.ip)->stop;
  slot.loops_left = event.args[1];
  came_to = redriving.runner.run(thread);
  const uint64_t left = std::exchange(slot.loops_left, 0);
  const Address boundary = gate.arena().header().boundary;
  if (came_to != ThreadStop::syscall || left != 0 || thread.regs.rip != boundary) return false;
  thread.regs = in_loop(slot, thread.regs);
  thread.regs.rip = event.ip;
  thread.stopped_at_syscall = false;
  return true;
}

// By a breakpoint there, over which the thread steps each time.
bool run_stopping(const Redriving& redriving, RedrivenThread& thread, const Event& event, ThreadStop& came_to) {
  const InstructionReader reader;
  const Memory memory = redriving.unit.memory(thread);
  const InstructionAt instruction = instruction_at(reader, memory, event.ip);
  if (instruction.kind == InstructionKind::event) return false;
  const auto run = [&] {
    came_to = redriving.runner.run(thread);
    return came_to == ThreadStop::fault;
  };
  const auto get = [&](user_regs_struct& regs) {
    regs = thread.regs;
    return true;
  };
  const auto set = [&](const user_regs_struct& regs) {
    thread.regs = regs;
    return redriving.gates.set_regs(thread, regs);
  };
  user_regs_struct regs = thread.regs;
  for (uint64_t times = 1; run_past(memory, event.ip, regs, run, get, set); ++times) {
    if (times >= event.args[1]) return true;
    if (!redriving.runner.step(thread, instruction)) return false;
  }
  return false;
}

}  // namespace

Result<Step> run_to_loop(const Redriving& redriving, SitePatcher& patcher, RedrivenThread& thread, EventIndex index,
                         const Event& event) {
  const auto expected = [&] { return fmt::format("to come to {:#x} {} times", event.ip, event.args[1]); };
  const Gate* const gate = redriving.gates.of(thread);
  if (gate) TRY(patcher.patch_ahead(thread, event.ip, SiteKind::pausing, event.args[1], false));
  const PatchedSite* const patched = gate ? gate->patched(event.ip) : nullptr;
  const bool counted = patched && is_loop(patched->kind);
  // What was moved to a trampoline is not executed where it was.
  const bool removed = !counted && gate && gate->touches(event.ip, event.ip + 1);
  if (removed) redriving.gates.remove_all();
  ThreadStop came_to = ThreadStop::gone;
  const bool came =
      counted ? run_counted(redriving, thread, event, came_to) : run_stopping(redriving, thread, event, came_to);
  if (!came) return diverged(thread, index, expected(), redriving.runner.came_to(thread, came_to));
  if (!event.regs_hash.agrees(comparable_registers_hash(thread.regs))) {
    return diverged(thread, index, expected(), "there with other registers");
  }
  thread.regs.orig_rax = ~0ull;
  if (!redriving.gates.set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  if (removed) TRY(redriving.gates.map_all());
  return Step::as_recorded();
}

}  // namespace redrive
