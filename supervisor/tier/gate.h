// The in-process tier of one address space: the memory that it shares with the supervisor, and its patched sites.
#pragma once

#include <bitset>
#include <optional>
#include <span>
#include <vector>

#include "base/remote.h"
#include "checkpoint/address_space.h"
#include "interceptors/inprocess/layout.h"
#include "supervisor/tier/gate_arena.h"
#include "supervisor/tier/shared_memory.h"
#include "supervisor/tier/trampoline.h"

namespace redrive {

// The ring of a slot that is mapped in this process.
inline uint8_t* ring(gate::Slot& slot) { return reinterpret_cast<uint8_t*>(&slot) + (gate::kRing - gate::kSlot); }

// A thread has stopped at the boundary, with these registers, because of a loop: its registers in the trampoline.
user_regs_struct in_loop(const gate::Slot& slot, user_regs_struct stopped);

// The tier in one address space. Processes that share the memory share it.
class Gate {
 public:
  explicit Gate(GateArena& arena) : arena_(arena) {}
  // The tier of a forked child, before it has a slot.
  Gate(GateArena& arena, const Gate& parent);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  GateArena& arena() const { return arena_; }
  bool take_slot();
  gate::Slot* slot() const { return slot_; }  // null before it is set, or if there was no memory for it
  SharedMemory& slot_memory() { return *memory_; }

  // Translates between addresses as the program knows them and as they are while it is patched.
  Address canonical(Address ip) const;
  Address physical(Address ip) const;
  // For a stopped thread, which may stand right after a trampoline's system call. That leaves its address in rcx.
  void make_canonical(user_regs_struct& regs) const;
  const PatchedSite* patched(Address site) const;  // null if it is not patched

  struct Trampolines {
    explicit Trampolines(Address start) : start(start) { used.set(0); }
    Address start;
    std::bitset<kTrampolinesSize / kTrampolineSize> used;  // the first one holds the addresses of the entries
  };
  // Trampoline memory within reach of the site that has room; null if there is none.
  Trampolines* trampolines_near(Address site);
  // Where such memory could be mapped: in a gap below `near`; if it can be, so much below what lies above the gap,
  // where the program will map memory next. Nullopt if there is no gap.
  static std::optional<Address> gap_near(const std::vector<AddressRange>& mapped, Address near, uint64_t below = 0);
  // Such memory was mapped there.
  void add_trampolines(const Memory& memory, Address start);
  // Replaces the instructions of windows by jumps to new trampolines, in memory that is mapped for them. A site stays
  // as it is if its window does not hold what it should, or if there is no such memory nearby. A thread inside a window
  // must not continue except through `physical`.
  void patch(const Memory& memory, std::vector<SitePatch> patches);
  // Restores the original bytes of windows in a copy of the memory from `address` on.
  void undo_patches(Address address, std::span<uint8_t> copy) const;
  // Whether the address is in the code inside tracees.
  static bool executes_at(Address ip) { return ip >= gate::kCode && ip < gate::kCode + gate::kCodeSize; }
  // The pages that a replay's stub has for itself (checkpoint/stub.h) were mapped here, so that the program cannot.
  void reserve_stub();
  // Whether a range overlaps memory that is not the program's.
  bool owns(Address start, Address end) const;
  // ... or one where the program's own code was changed.
  bool touches(Address start, Address end) const;
  // The program has unmapped this range, or mapped something else there.
  void forget(Address start, Address end);

  struct {
    Address start = 0, end = 0;
  } messages;                      // in replay: memory with messages that its calls send and receive
  std::vector<PatchedSite> sites;  // sorted by address
  std::vector<Trampolines> trampolines;

 private:
  void release(const PatchedSite& site);  // another site can use its trampoline
  void list_areas();

  GateArena& arena_;
  std::optional<SharedMemory> memory_;
  gate::Slot* slot_ = nullptr;  // in this process
  bool stub_is_reserved_ = false;
};

}  // namespace redrive
