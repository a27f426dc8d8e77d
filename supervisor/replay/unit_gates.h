// The in-process tier in the address spaces of a re-driven unit (interceptors/inprocess/DESIGN.md): where it is mapped,
// and how it is taken away so that code, registers and stacks are the program's.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "supervisor/replay/message_store.h"
#include "supervisor/replay/redriven_unit.h"
#include "supervisor/tier/code_segments.h"
#include "supervisor/tier/gate.h"

namespace redrive {

// The in-process tier, as all intervals that are re-driven share it.
struct ReplayTier {
  explicit ReplayTier(std::unique_ptr<GateArena> made) : arena(std::move(made)) {}

  const std::unique_ptr<GateArena> arena;
  CodeSegments code;
};

class UnitGates {
 public:
  // `tier`: null if every call is to stop.
  UnitGates(RedrivenUnit& unit, ReplayTier* tier, const MessageStore& store)
      : unit_(unit), tier_(tier), store_(store) {}

  // The gate of a process; null if it has none.
  Gate* of(ProcessSerial process) const;
  Gate* of(const RedrivenThread& thread) const { return of(thread.process); }
  std::shared_ptr<Gate> shared(ProcessSerial process) const;
  // What a stub that is restored may do for it.
  StubTier stub_tier() const { return tier_ ? tier_->arena->stub_tier() : StubTier{}; }

  // Maps it into the memory that these processes share, unless the program has something there. `tid`: a thread of the
  // first, which is stopped.
  Result<void> map(const std::vector<ProcessSerial>& sharing, pid_t tid);
  // Maps it into each address space.
  Result<void> map_all();
  // The process has a gate mapped: because it runs on the memory of another process, or because it was forked.
  void add(ProcessSerial process, std::shared_ptr<Gate> gate) { gates_[process] = std::move(gate); }
  // The gate of a forked child, which has its parent's patches and slot mapped.
  Result<std::shared_ptr<Gate>> inherit(const Gate& parent, const Stub& child) const;

  // Leaves the address space as the program would have it. Returns the processes that share it.
  std::vector<ProcessSerial> remove(ProcessSerial process);
  std::vector<std::vector<ProcessSerial>> remove_all();
  // Does what remove() does if the tier is in the way of a call that changes the program's mappings.
  std::vector<ProcessSerial> make_room(const RedrivenThread& thread, const Event& event, Special special);
  // Whether such a call changes memory where it lies, or code that it has replaced.
  static bool is_in_the_way(const Gate& gate, const Event& event, Special special, Address brk);
  // The process has ended.
  void forget(ProcessSerial process) { gates_.erase(process); }

  // Replaces an instruction, if there is room near it.
  Result<void> replace(const RedrivenThread& thread, const SitePatch& patch);

  // Lets the thread continue with these registers, as the program knows them, and without a call.
  bool set_regs(const RedrivenThread& thread, const user_regs_struct& regs) const;
  // A thread that was stopped in the tier's own code leaves the call that it answers to a stop. False if it is gone.
  bool leave(const RedrivenThread& thread, user_regs_struct regs) const;
  // A thread that stands at a call that the ring answers, or right before it, continues with the tier's code.
  void enter(RedrivenThread& thread) const;

 private:
  Result<Address> map_messages(StubCalls& calls, pid_t pid) const;
  void reseat(const RedrivenThread& thread, const Gate& before, const Gate* after) const;

  RedrivenUnit& unit_;
  ReplayTier* const tier_;
  const MessageStore& store_;
  std::map<ProcessSerial, std::shared_ptr<Gate>> gates_;
};

}  // namespace redrive
