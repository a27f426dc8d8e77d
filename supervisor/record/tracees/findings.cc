#include "supervisor/record/tracees/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "checkpoint/stub.h"

namespace redrive {

void Findings::add_unsure(Unit& unit, const std::string& reason) { add_unsure(unit, reason, unit.log.next()); }

void Findings::add_unsure(Unit& unit, const std::string& reason, EventIndex from) {
  const bool said = std::any_of(unsure_.begin(), unsure_.end(),
                                [&](const Unsure& u) { return u.unit == unit.id && u.reason == reason; });
  if (said) return;
  if (!writer_.write_behind()) return;  // the trace ends before this event
  unsure_.push_back({unit.id, from, reason});
  writer_.add(unsure_.back());
}

void Findings::add_calls(const Unit& unit) {
  writer_.add(Interception{unit.id, unit.served_calls, unit.stopped_calls});
  for (const auto& [what, refusal] : unit.refusals) {
    writer_.add(refusal);
    if (refusal.common) continue;
    Refused& sum = refused_[what + " (" + refusal.answer + ")"];
    sum.count += refusal.count;
    if (sum.units++ < Refused::kNamed) sum.first.push_back(unit.id);
  }
}

void Findings::count_refusal(Unit& unit, const std::string& what, const std::string& answer, bool common) {
  Unit::Refused& refusal = unit.refusals[what];
  refusal.common = common;
  refusal.unit = unit.id;
  refusal.what = what;
  refusal.answer = answer;
  ++refusal.count;
}

void Findings::count_refusal(const Thread& thread, const SyscallRow* row, int error) {
  count_refusal(*thread.process->unit, call_name(static_cast<int64_t>(thread.entry.orig_rax), thread.call.args),
                std::string(error_name(error)), row && row->common);
}

void Findings::count_foreign_calls(const Process& process) {
  count_refusal(*process.unit, "the calls of 32-bit program " + process.command, std::string(error_name(ENOSYS)),
                false);
}

void Findings::note_mapped(Unit& unit, AddressRange range) {
  static const Address lowest = [] {
    Address least = 0;
    std::ifstream("/proc/sys/vm/mmap_min_addr") >> least;
    return least;
  }();
  if (range.start < lowest) add_unsure(unit, "it has mapped memory below vm.mmap_min_addr, which a replay may not map");
  if (range.start < kGateEnd && kGateStart < range.end)
    add_unsure(unit, fmt::format("it has mapped memory at {:#x}, where a replay has code of its own", kGateStart));
}

}  // namespace redrive
