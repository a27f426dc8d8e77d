// What events do to the memory of a re-driven unit, apart from calls that change its layout.
#pragma once

#include "supervisor/replay/redriving.h"
#include "supervisor/replay/unit_messages.h"

namespace redrive {

class EventEffects {
 public:
  EventEffects(const Redriving& redriving, UnitMessages& messages) : redriving_(redriving), messages_(messages) {}

  // Writes what the kernel wrote. Waits for what the event receives.
  Result<Step> write_memory(const RedrivenThread& thread, EventIndex index, const Event& event) const;
  // Does what the event says about shared objects. From then on these, and what it maps writable, are no longer the
  // trace's copies, and everything that is mapped of them is mapped anew.
  Result<void> change_objects(const Event& event) const;
  // If the call has set how far the stack of a process may grow, lets it grow that far here.
  void limit_stack(const RedrivenThread& thread, const Event& event) const;

 private:
  Result<void> change_pages(const RedrivenThread& thread, const MemoryWrite& write) const;
  Result<void> make_writable(uint64_t object) const;

  const Redriving& redriving_;
  UnitMessages& messages_;
};

}  // namespace redrive
