#include "supervisor/record/checkpoints/intervals.h"

#include <algorithm>

#include "base/units.h"
#include "checkpoint/address_space.h"
#include "supervisor/plan/restore_cost.h"
#include "supervisor/tier/end_state.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kAskedBefore = 8;    // a checkpoint is asked for T/8 early
constexpr uint64_t kStoppedAfter = 32;  // ... and the unit is stopped for it T/32 later

}  // namespace

void Intervals::begin(Unit& unit, CheckpointKind kind, Process& process, uint64_t pause_ns) {
  unit.log.flush();  // no series and no call extends from one interval into the next
  unit.in_interval = true;
  unit.end_state.clear();
  unit.interval = unit.next_interval++;
  unit.clock.begin();
  unit.checkpoint_requested = false;
  unit.received = false;
  unit.interval_began = tracer_.now();
  IntervalRecord record;
  record.unit = unit.id;
  record.interval = unit.interval;
  record.kind = kind;
  record.first_event = unit.log.next();
  record.pid = process.pid;
  record.command = process.command;
  record.pause_ns = pause_ns;
  record.began_ns = since_boot_ns(unit.interval_began);
  record.threads = unit.threads.size();
  writer_.add(record);
  unit.interval_record = record;
  unit.period_ns = limits_.checkpoint_period_ns;
  messages_.begin_interval(unit.id, unit.ended_ns);
  messages_.note_restore(unit.id, start_ns(unit, 0, 0), 0);
}

void Intervals::note_image(Unit& unit, const UnitState& state, uint64_t memory_bytes) {
  unit.period_ns = period_ns(unit, memory_bytes);
  size_t mappings = 0;
  for (const auto& process : state.processes) mappings += process.mappings.size();
  messages_.note_restore(unit.id, start_ns(unit, mappings, memory_bytes), memory_bytes);
}

void Intervals::note_birth(Unit& unit, bool of_thread) const {
  unit.clock.add_replay(nanoseconds(of_thread ? threads_s(limits_.spawn_s, 1) : limits_.spawn_s));
}

uint64_t Intervals::start_ns(const Unit& unit, size_t mappings, uint64_t memory_bytes) const {
  return nanoseconds(start_s(limits_.spawn_s, mappings, unit.threads.size(), memory_bytes));
}

uint64_t Intervals::period_ns(const Unit& unit, uint64_t memory_bytes) const {
  const uint64_t whole = limits_.checkpoint_period_ns;
  const double restored_s = threads_s(limits_.spawn_s, unit.threads.size()) + restore_s(memory_bytes);
  const double left_s = limits_.restore_budget_s - restored_s;
  if (left_s <= 0) return whole;
  return std::max(whole / 4, static_cast<uint64_t>(static_cast<double>(whole) * left_s / limits_.restore_budget_s));
}

void Intervals::end(Unit& unit) {
  if (!unit.in_interval) return;
  unit.in_interval = false;
  unit.ended_ns = unit.clock.interval_ns();
  writer_.add(IntervalEnd{unit.id, unit.interval, unit.ended_ns, unit.log.next(), std::exchange(unit.end_state, {}),
                          unit.clock.clock_error_ns(), since_boot_ns(tracer_.now())});
}

void Intervals::note_end_state(const Thread& thread, const user_regs_struct& regs) const {
  const Process& process = *thread.process;
  Unit& unit = *process.unit;
  if (unit.processes.size() > 1 || !unit.in_interval) return;
  std::vector<AddressRange> except{process.vdso};
  if (limits_.attached) except.push_back(unused_stack(regs.rsp));  // where XSAVE leaves what is not determined
  for (const auto& [serial, other] : unit.threads) {
    if (other == &thread || !other->call.row) continue;
    for (const Span& span : possible_outputs(other->call.output_args, other->call.sizes)) {
      except.push_back({span.address, span.address + span.length});
    }
  }
  std::vector<Address> pages = sample_pages(process.shown_as(), regs.rsp, except);
  if (const Gate* gate = process.tier()) {
    std::erase_if(pages, [&](Address page) { return gate->touches(page, page + kPageSize); });
  }
  const auto state = read_end_state(regs, tracer_.get_xstate(thread.tid), process.memory, std::move(pages));
  if (state) unit.end_state = encode(*state);
}

uint64_t Intervals::checkpoint_at_ns(const Unit& unit) const {
  return std::min(unit.period_ns - unit.period_ns / kAskedBefore, messages_.checkpoint_by_ns(unit.id));
}

uint64_t Intervals::stop_at_ns(const Unit& unit) const {
  return checkpoint_at_ns(unit) + unit.period_ns / kStoppedAfter;
}

uint64_t Intervals::until_due_ns(Unit& unit) const {
  if (unit.period_ns == 0) return UINT64_MAX;
  const uint64_t at_ns = unit.clock.interval_ns(), asked_ns = checkpoint_at_ns(unit);
  const uint64_t due_ns = at_ns < asked_ns ? asked_ns : stop_at_ns(unit);
  return due_ns - std::min(due_ns, at_ns);
}

}  // namespace redrive
