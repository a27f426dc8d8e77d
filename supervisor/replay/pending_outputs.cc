#include "supervisor/replay/pending_outputs.h"

#include <set>

#include "interceptors/syscall_table.h"

namespace redrive {

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

}  // namespace redrive
