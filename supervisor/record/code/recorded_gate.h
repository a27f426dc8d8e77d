// The in-process tier of an address space in which a recorded program runs: apart from the patches, what the recorder
// has read of the ring, whose descriptors are known there, and what the patched sites are in the plans.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "interceptors/channels.h"
#include "supervisor/record/code/patch_plans.h"
#include "supervisor/record/code/ring_reader.h"
#include "supervisor/tier/code_file.h"
#include "supervisor/tier/gate.h"

namespace redrive {

struct Unit;

class RecordedGate : public Gate {
 public:
  RecordedGate(GateArena& arena, Unit* unit) : Gate(arena), unit(unit) {}
  // The tier of a forked child, before it has a slot.
  RecordedGate(GateArena& arena, const RecordedGate& parent, Unit* unit);

  // Gate::patch() for sites that are in the plans.
  void patch_code(const Memory& memory, const std::vector<PlannedPatch>& patches);
  // A site that is not patched, and what is known of it; nothing if it is in no file.
  struct StoppingSite {
    CodePlan* plan = nullptr;
    CodeSite* site = nullptr;
    bool own = false;    // in the file of a program that is linked with libraries
    uint64_t stops = 0;  // in this address space

    // Counts a stop. Returns whether it is worth replacing the instruction by now.
    bool stopped();
  };
  // What was noted of a site that has stopped a thread; null if nothing was. Valid until it is replaced or forgotten.
  StoppingSite* stopping(Address at);
  StoppingSite& note_stopping(Address at, const StoppingSite& site) { return stopping_[at] = site; }
  // Replaces the instruction of such a site, which has a window, and memory for a trampoline nearby. This is tried only
  // once.
  void replace(const Memory& memory, Address at, CodeSite& site);
  // Whether a call that changes mappings would change the tier's.
  bool is_changed_by(Special call, std::span<const uint64_t, 6> args) const;
  // Code that the program is about to move (mremap(2)) gets its instructions back: the jumps in their place lead from
  // there only.
  void put_back_moved(const Memory& memory, std::span<const uint64_t, 6> args);
  // The program executes its code step by step, and would see the steps of what stands in for it: all instructions are
  // put back, and stay. A replay does the same before such a trap.
  void put_back_all(const Memory& memory);
  // Whether a thread that is there has come by a jump, and has executed nothing since.
  bool begins_trampoline(Address ip) const;
  // Such a call has ended: what was patched in mappings that are gone is forgotten.
  void forget_changed(Special call, std::span<const uint64_t, 6> args, int64_t result);
  // The site whose trampoline has its instruction there; null if there is none. Notes that the program has executed the
  // site. Programs call from few sites, and gates have many, so the last answers are kept; only one thread may ask.
  // Valid until something is patched or forgotten.
  const PatchedSite* come_by(Address stop);

  // From now on the code inside the tracee closes descriptors of this table: those that are known, and stay so until it
  // closes them. None are known if another address space has the same descriptors.
  void use_table(const std::shared_ptr<FdCache>& table);
  // What is behind one of these descriptors has become known, or is not known any more.
  void set_known(const FdCache& table, int descriptor, bool known);
  // Descriptors that were fresh sockets (gate::Slot) may be something else by now.
  void forget_fresh(uint32_t first, uint32_t last);

  Unit* unit;
  Program* program = nullptr;  // that is executed there
  RingReader reader;           // of its slot's ring
  // The unit's CPU time when the slot's ring had this many bytes of complete records.
  struct Look {
    uint64_t head = 0;
    uint64_t cpu_ns = 0;
  };
  std::vector<Look> looks;  // since records were taken the last time
  bool rests = false;       // nothing has changed between two looks
  // The program has written into its slot: nothing is served any more.
  std::atomic<bool> broken = false;

 private:
  // What is known of the sites goes with them.
  using Gate::forget;
  using Gate::patch;

  // What is known of one patched site.
  struct Known {
    CodeSite* site = nullptr;
    bool used = false;  // by the program
  };
  struct Stop {
    Address stop = 0;
    const PatchedSite* site = nullptr;
  };

  void put_back(const Memory& memory, Address start, Address end);
  void forget_code(Address start, Address end);

  std::shared_ptr<FdCache> table_;
  std::unordered_map<Address, StoppingSite> stopping_;
  std::unordered_map<Address, Known> known_;  // by the address of the site
  std::array<Stop, 64> last_stops_;           // by trampoline
  bool patches_nothing_ = false;              // since put_back_all()
};

}  // namespace redrive
