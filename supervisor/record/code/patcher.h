// Decides which instructions of a program are replaced by jumps to code that serves them
// (interceptors/inprocess/DESIGN.md): instructions that stop the program again and again, and those that did so in
// other programs that map the same file.
//
// The plans hold what is known about a site in a file, and RecordedGate what is known about it in an address space. The
// patcher brings both together. It maps no memory for trampolines, and does not know where other threads are: the
// caller has to see to both.
#pragma once

#include <optional>

#include "supervisor/record/code/patch_plans.h"
#include "supervisor/record/code/recorded_gate.h"
#include "supervisor/record/code/trap_replacement.h"

namespace redrive {

class Patcher {
 public:
  // Both must outlive it.
  Patcher(PatchPlans& plans, const TrapReplacement& cpuid) : plans_(plans), cpuid_(cpuid) {}

  // An address space, and a process that runs in it.
  struct Space {
    pid_t pid = -1;
    const Memory& memory;
    RecordedGate& gate;
  };
  // An instruction that RecordedGate::replace() can replace.
  struct Replacement {
    CodeSite* site = nullptr;
    AddressRange window;  // what is overwritten: no other thread may be inside it or at its end
  };
  // Call this when the instruction has stopped a thread. Nullopt if it cannot be replaced, or is not worth it yet.
  std::optional<Replacement> stopped(const Space& space, Address at, SiteKind kind);
  // Call this when code was mapped and nothing has run it yet. Replaces the instructions that were worth it in other
  // programs, except in a program's own file. Sites without memory for trampolines in reach are left to their stops.
  void apply_plan(const Space& space, const Mapping& mapping, const MappedFile& file);

 private:
  RecordedGate::StoppingSite& stopping_site(const Space& space, Address at, SiteKind kind);

  PatchPlans& plans_;
  const TrapReplacement& cpuid_;
};

}  // namespace redrive
