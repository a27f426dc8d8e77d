// Replaces instructions of a re-driven unit before it comes to them: those whose events the code inside tracees can
// answer, if it is worth it.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "supervisor/replay/redriving.h"

namespace redrive {

class SitePatcher {
 public:
  // `tier`: null if the unit has no in-process tier.
  SitePatcher(const Redriving& redriving, ReplayTier* tier) : redriving_(redriving), tier_(tier) {}

  // The thread's instruction there is to make `times` calls. The code there must be as it will be then: what changes
  // code is executed before. `keeps_gaps`: what is to be executed before that maps memory, so trampolines go only where
  // memory for them is mapped already.
  Result<void> patch_ahead(const RedrivenThread& thread, Address site, SiteKind kind, uint64_t times, bool keeps_gaps);

  // Where a call changes the process's code, by mapping, unmapping or protecting memory; nowhere if it changes none.
  Result<std::vector<AddressRange>> code_changes(ProcessSerial process, const Event& event, Special special,
                                                 Address brk);
  // The process's code has changed in these ranges.
  Result<void> read_code_again(ProcessSerial process, const std::vector<AddressRange>& changed);

 private:
  Result<std::vector<Mapping>*> code_of(ProcessSerial process);

  using Site = std::pair<ProcessSerial, Address>;
  const Redriving& redriving_;
  ReplayTier* const tier_;
  std::map<ProcessSerial, std::vector<Mapping>> code_;  // kept up to date; named where it matters
  std::map<Site, uint64_t> own_calls_;                  // by sites in programs' own files
  std::set<Site> unpatchable_;                          // where a jump did not fit: not to be tried again
};

}  // namespace redrive
