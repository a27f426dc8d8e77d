// What a recording tells its user at the end: which calls were refused, and what a replay may fail at. Each is written
// into the trace when it is found. Findings does not print.
#pragma once

#include "checkpoint/address_space.h"
#include "logstore/trace.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings {
 public:
  Findings(TraceWriter& writer) : writer_(writer) {}

  // A call that was refused, and not only because all programs try it.
  struct Refused {
    static constexpr size_t kNamed = 8;
    uint64_t count = 0;
    uint64_t units = 0;         // that asked for it
    std::vector<UnitId> first;  // ... at most kNamed of them
  };

  // A replay of the unit may fail, or show something else, from its next event on, or from this one.
  void add_unsure(Unit& unit, const std::string& reason);
  void add_unsure(Unit& unit, const std::string& reason, EventIndex from);
  // A call is refused, or something else that a program has asked for. `common`: as in SyscallRow.
  void count_refusal(const Thread& thread, const SyscallRow* row, int error);
  static void count_refusal(Unit& unit, const std::string& what, const std::string& answer, bool common);
  // The calls of this program, which is not a 64-bit one, are refused.
  static void count_foreign_calls(const Process& process);
  // The unit has mapped memory there, which a replay may not be able to map.
  void note_mapped(Unit& unit, AddressRange range);
  // A unit has ended: how its calls were recorded, and which were refused, goes into the trace.
  void add_calls(const Unit& unit);

  // The refusals in units that have ended, by call and answer.
  const std::map<std::string, Refused>& refused() const { return refused_; }
  const std::vector<Unsure>& unsure() const { return unsure_; }

 private:
  TraceWriter& writer_;
  std::map<std::string, Refused> refused_;
  std::vector<Unsure> unsure_;
};

}  // namespace redrive
