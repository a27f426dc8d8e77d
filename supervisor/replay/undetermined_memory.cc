#include "supervisor/replay/undetermined_memory.h"

#include <algorithm>
#include <set>

#include "interceptors/syscall_table.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Whether the program that executes this event was not started under redrive. An interval without an image begins with
// a program, or with the birth of a process that goes on with its parent's.
bool ran_before(const Trace& trace, EventRef event) {
  for (;;) {
    const auto& intervals = trace.intervals(event.unit);
    const auto later = std::partition_point(intervals.begin(), intervals.end(), [&](const IntervalRecord& interval) {
      return interval.first_event <= event.event;
    });
    const auto is_start = [](const IntervalRecord& interval) { return interval.kind == CheckpointKind::exec; };
    if (std::any_of(intervals.begin(), later, is_start)) return false;
    const auto born = std::find_if(trace.units().begin(), trace.units().end(),
                                   [&](const UnitRecord& record) { return record.unit == event.unit; });
    // A unit has a lower number than those that it bears.
    const bool has_parent = born != trace.units().end() && born->parent.unit && born->parent.unit < event.unit;
    if (!has_parent) return later != intervals.begin();
    event = born->parent;
  }
}

void add_unused_stack(const UnitState& state, std::vector<AddressRange>& ranges) {
  for (const auto& thread : state.threads) {
    const ProcessSerial memory = state.memory_of(thread.process);
    const auto process = std::find_if(state.processes.begin(), state.processes.end(),
                                      [&](const ProcessState& found) { return found.process == memory; });
    if (process == state.processes.end()) continue;
    const Mapping* const stack = mapping_at(process->mappings, thread.regs.rsp);
    if (!stack) continue;
    AddressRange unused = unused_stack(thread.regs.rsp);
    unused.start = std::max(unused.start, stack->start);
    if (unused.start < unused.end) ranges.push_back(unused);
  }
}

Result<std::vector<AddressRange>> pending_outputs(const Redriving& redriving, const UnitState& state, EventIndex from) {
  const UnitId unit = redriving.what.unit;
  const Trace& trace = redriving.trace;
  std::set<ThreadSerial> pending;
  for (const auto& thread : state.threads) {
    if (thread.in_syscall) pending.insert(thread.thread);
  }
  std::vector<AddressRange> ranges;
  const auto visit = [&](EventIndex, const Event& event) {
    if (event.kind == EventKind::exit && pending.erase(event.thread)) {
      for (const auto& write : event.writes) ranges.push_back({write.address, write.address + write.length});
    }
    return !pending.empty();
  };
  if (!pending.empty()) TRY(trace.for_each_event(unit, from, trace.event_count(unit), visit));
  for (const auto& saved : state.threads) {
    const RedrivenThread* const thread = redriving.unit.find(saved.thread);
    if (!pending.contains(saved.thread) || !thread) continue;
    user_regs_struct regs = saved.regs;
    const auto args = syscall_args(regs);
    const SyscallRow* const row = find_row(static_cast<int64_t>(regs.orig_rax), args);
    if (!row) continue;
    for (const Span& span : possible_outputs(args, entry_sizes(*row, args, redriving.unit.memory(*thread)))) {
      ranges.push_back({span.address, span.address + span.length});
    }
  }
  return ranges;
}

}  // namespace

Result<std::vector<AddressRange>> undetermined_memory(const Redriving& redriving, const UnitState& state,
                                                      EventIndex from) {
  ASSIGN_OR_RETURN(auto ranges, pending_outputs(redriving, state, from));
  const PlannedInterval& what = redriving.what;
  const EventIndex first = redriving.trace.intervals(what.unit)[what.interval].first_event;
  if (ran_before(redriving.trace, {what.unit, first})) add_unused_stack(state, ranges);
  return ranges;
}

}  // namespace redrive
