// What events do to the memory of a re-driven unit beside the calls that change its layout.
#pragma once

#include "supervisor/replay/redriving.h"
#include "supervisor/replay/unit_messages.h"

namespace redrive {

class EventEffects {
 public:
  EventEffects(const Redriving& redriving, UnitMessages& messages) : redriving_(redriving), messages_(messages) {}

  // Writes what the kernel wrote. Waits for what the event receives.
  Result<Step> write_memory(const RedrivenThread& thread, EventIndex index, const Event& event) const;
  // What the event says of shared objects: from then on they, and what it maps so that it can be written, are no copies
  // of the trace's, and all that is mapped of them is made anew.
  Result<void> change_objects(const Event& event) const;
  // If the call has set how far the stack of a process may grow: so far it grows here.
  void limit_stack(const RedrivenThread& thread, const Event& event) const;

 private:
  Result<void> change_pages(const RedrivenThread& thread, const MemoryWrite& write) const;
  Result<void> make_writable(uint64_t object) const;

  const Redriving& redriving_;
  UnitMessages& messages_;
};

}  // namespace redrive
