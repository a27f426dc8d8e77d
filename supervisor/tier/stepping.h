// Running a stopped thread over one instruction after the other, when a recording leaves a place in user code and when
// a replay looks for it.
#pragma once

#include <span>

#include "base/remote.h"
#include "interceptors/instruction_kind.h"

namespace redrive {

// So far after its last event a thread may hand the baton over, in instructions (Preempted::stepped).
inline constexpr unsigned kMostSteps = 512;

// What is executed there. Code that cannot be read counts as an event.
inline InstructionAt instruction_at(const InstructionReader& reader, const Memory& memory, Address ip) {
  uint8_t code[kLongestInstruction] = {};
  const std::span bytes(code, memory.read_some(ip, code, sizeof code));
  return bytes.empty() ? InstructionAt{InstructionKind::event, 0} : reader.read(bytes);
}

// Has a thread that stands at a repeated instruction execute it whole, which single steps would do one repetition at a
// time: a breakpoint is put behind it. `run`: lets the thread run until it stops, and says whether that was a
// breakpoint. `get`, `set`: the thread's registers. False if something else has stopped it, or no breakpoint can be put
// there.
template <typename Run, typename Get, typename Set>
bool run_past(const Memory& memory, Address behind, user_regs_struct& regs, const Run& run, const Get& get,
              const Set& set) {
  constexpr uint8_t kBreakpoint = 0xcc;
  uint8_t was = 0;
  if (!memory.get(behind, was) || !memory.put(behind, kBreakpoint)) return false;
  const bool stopped = run();
  memory.put(behind, was);
  if (!stopped || !get(regs) || regs.rip != behind + sizeof kBreakpoint) return false;
  regs.rip = behind;
  return set(regs);
}

}  // namespace redrive
