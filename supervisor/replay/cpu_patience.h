// How much CPU time a re-driven process may use until it comes to what is awaited: a stop, or, in a search, what it
// looks for. A thread that never gets there must not hang a replay: it has diverged, or the place is not found. Only
// CPU time counts, so neither a busy machine nor a wait for messages has this effect. Stubs have a limit of CPU time
// (RLIMIT_CPU), so the kernel stops them about once per second of it, which is a tick.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "logstore/event.h"

namespace redrive {

class CpuPatience {
 public:
  // `recorded_ns`: the CPU time of the recording for all that is executed.
  explicit CpuPatience(uint64_t recorded_ns);

  // At a tick of a process, which has used this much CPU time by now, when the unit's threads have come to this many
  // stops: whether it takes too long.
  bool is_over(ProcessSerial process, uint64_t stops, uint64_t cpu_ns);

  // This process begins a search, in which it is not a stop that is awaited, or has ended it.
  void begin_search(ProcessSerial process, uint64_t cpu_ns);
  void end_search() { since_.reset(); }

  // "10 s of CPU time (0.001 s when recorded)".
  std::string text() const;

 private:
  struct Since {
    ProcessSerial process = 0;
    std::optional<uint64_t> stops;  // after this many stops; none: since a search began
    uint64_t cpu_ns = 0;            // of the process, as far as is known
  };

  const uint64_t recorded_ns_;
  std::optional<Since> since_;
};

}  // namespace redrive
