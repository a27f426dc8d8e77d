// Memory that a thread could not access because it was not there, although a replay may have it: the file system was
// full, or a limit, which another process may have set, kept a stack from growing. The event of the signal says which
// memory that was (args[1]), and why (args[2]), so that it is missing in a replay, too.
#pragma once

#include <signal.h>

#include <optional>

#include "base/remote.h"
#include "logstore/event.h"

namespace redrive {

struct MissingMemory {
  Address address = 0;
  int code = 0;  // si_code (sigaction(2))

  // Below this, where null pointers lead, no kernel maps anything (vm.mmap_min_addr), so a replay need not see to it.
  static constexpr Address kLowest = 1 << 16;
  bool may_be_there() const { return address >= kLowest; }

  // What a fault was about; none if the cause was another one.
  static std::optional<MissingMemory> of(const siginfo_t& info) {
    const bool missing = (info.si_signo == SIGBUS && info.si_code == BUS_ADRERR) ||
                         (info.si_signo == SIGSEGV && info.si_code == SEGV_MAPERR);
    if (!missing) return std::nullopt;
    return MissingMemory{reinterpret_cast<Address>(info.si_addr), info.si_code};
  }
  // As the event of a signal has it; none up to format 17.
  static std::optional<MissingMemory> of(const Event& event) {
    const bool fault =
        event.kind == EventKind::signal && event.args[0] == static_cast<uint64_t>(SignalPoint::fault) && event.args[2];
    if (!fault) return std::nullopt;
    return MissingMemory{event.args[1], static_cast<int>(event.args[2])};
  }
  void note(Event& event) const {
    event.args[1] = address;
    event.args[2] = static_cast<uint64_t>(code);
  }
};

}  // namespace redrive
