// Which instructions of a program are replaced by jumps to code that serves them (interceptors/inprocess/DESIGN.md):
// those of mapped code that stop it again and again, and those of which other programs that map the same file have
// shown that.
//
// What is known of a site in a file is in the plans, and what is known of it in an address space is in that one's tier.
// The patcher brings both together. It makes no room for trampolines and stops nobody: whether another thread is amid
// the instructions is up to the caller.
#pragma once

#include <optional>

#include "supervisor/record/cpuid_replacement.h"
#include "supervisor/record/patch_plans.h"
#include "supervisor/record/recorded_gate.h"

namespace redrive {

class Patcher {
 public:
  // Both must outlive it.
  Patcher(PatchPlans& plans, const CpuidReplacement& cpuid) : plans_(plans), cpuid_(cpuid) {}

  // An address space, and a process that runs in it.
  struct Space {
    pid_t pid = -1;
    const Memory& memory;
    RecordedGate& gate;
  };
  // An instruction that can be replaced, by RecordedGate::replace().
  struct Replacement {
    CodeSite* site = nullptr;
    AddressRange window;  // that is written over: nobody may go on inside, or right behind it
  };
  // The instruction has stopped a thread. Nothing if it cannot be replaced, or has not proved worth it.
  std::optional<Replacement> stopped(const Space& space, Address at, SiteKind kind);
  // Code was mapped that nothing has run yet: replaces what has proved worth it in other programs, but for what a
  // program's own file holds. What needs more memory for trampolines is left to the sites' stops.
  void apply_plan(const Space& space, const Mapping& mapping, const MappedFile& file);

 private:
  RecordedGate::StoppingSite& stopping_site(const Space& space, Address at, SiteKind kind);

  PatchPlans& plans_;
  const CpuidReplacement& cpuid_;
};

}  // namespace redrive
