#include "supervisor/replay/ring_batch.h"

#include "base/assert.h"
#include "supervisor/replay/event_cycle.h"
#include "supervisor/replay/ring_entry.h"
#include "supervisor/tier/memory_calls.h"

namespace redrive {
namespace {

// Calls that the code inside tracees makes, from the ring.
class RingCalls final : public Calls {
 public:
  Result<void> add(std::string, long number, std::initializer_list<uint64_t> args) override {
    gate::InjectedCall call{static_cast<uint64_t>(number), {}};
    std::copy(args.begin(), args.end(), call.args);
    if (is_forbidden(number, call.args)) return forbidden_call();
    calls_.push_back(call);
    return {};
  }
  Result<void> map_file(const std::string&, Address, uint64_t, int, int, uint64_t) override {
    ASSERT(!"a file is not mapped from the ring");
    return {};
  }
  std::vector<gate::InjectedCall> take() { return std::move(calls_); }

 private:
  std::vector<gate::InjectedCall> calls_;
};

}  // namespace

Result<Answer> RingBatch::add(EventIndex index, const Event& event) {
  if (empty()) {
    const RedrivenThread* const thread = redriving_.unit.find(event.thread);
    events_.gate = thread ? redriving_.gates.of(*thread) : nullptr;
  } else if (events_.thread != event.thread) {
    return Answer::at_stop;
  }
  if (!events_.gate) return Answer::at_stop;
  const uint64_t start = empty() ? 0 : events_.ends.back();
  const uint64_t rounds = event.repeat / event.cycle + 1;
  ASSIGN_OR_RETURN(auto end, put(index, event, start, rounds));
  if (!end) return Answer::at_stop;
  auto& expected = *reinterpret_cast<gate::Expected*>(ring(*events_.gate->slot()) + start);
  if (event.repeat > 1 && event.cycle > 1) {
    expected.repeat = event.repeat;
    expected.cycle = static_cast<uint16_t>(event.cycle);
    ASSIGN_OR_RETURN(const auto cycle, read_cycle(redriving_.trace, redriving_.what.unit, index, event));
    for (uint32_t turn = 0; turn + 1 < event.cycle; ++turn) {
      ASSIGN_OR_RETURN(end, put(index - (event.cycle - 1 - turn), cycle[turn], *end, rounds));
      if (!end) return Answer::at_stop;
    }
    expected.size = static_cast<uint32_t>(*end - start);
  }
  if (empty()) {
    events_.thread = event.thread;
    events_.first = index;
  }
  events_.ends.push_back(*end);
  const SyscallRow* const row = event.kind == EventKind::syscall ? find_row(event.number, event.args) : nullptr;
  if (row && is_made(*row)) {
    events_.changes_memory = true;
    if (row->special == Special::brk) {
      events_.breaks.push_back({events_.ends.size(), static_cast<Address>(event.result)});
    }
  }
  return Answer::in_ring;
}

// Puts an event at `start`, which stands for a single call or for a series of identical ones; its instruction makes
// `times` calls. Returns where the entry ends; none if it must stop.
Result<std::optional<uint64_t>> RingBatch::put(EventIndex index, const Event& event, uint64_t start, uint64_t times) {
  using End = std::optional<uint64_t>;
  const SyscallRow* const row = event.kind == EventKind::syscall ? find_row(event.number, event.args) : nullptr;
  if (!fits_ring(event, row, shows_sends_)) return End();
  if (watch_ && watch_->wants({redriving_.what.unit, index})) return End();
  Gate* const gate = events_.gate;
  const SiteKind kind = kind_of(event);
  const Address at = site_of(event);
  const PatchedSite* site = gate->patched(at);
  if (!site) {
    TRY(patcher_.patch_ahead(redriving_.unit.thread(event.thread), at, kind, times, events_.changes_memory));
    site = gate->patched(at);
  }
  if (!site || site->kind != kind) return End();
  RingEntry entry{site->stop, std::nullopt, {}, {}};
  std::vector<gate::InjectedCall> calls;
  if (row && is_made(*row)) {
    ASSIGN_OR_RETURN(auto made, calls_of(event, row->special));
    if (!made) return End();
    calls = std::move(*made);
    entry.calls = calls;
  }
  entry.sends = messages_.sent_by(index);
  if (event.receive && !event.receive->logged) {
    auto parts = messages_.places_of(*event.receive);
    if (!parts) return End();
    entry.parts = std::move(*parts);
  }
  return put_entry({ring(*gate->slot()), gate::kRingSize}, start, event, row, entry);
}

// What the tracee does to its memory in place of the call; none if the supervisor has to do it: if the call maps a
// file, which the supervisor opens, if it changes code, in which the sites of all that lies in the ring were looked
// for, and if it concerns the tier's memory or a patch, because the tier is then taken out of the address space first.
Result<std::optional<std::vector<gate::InjectedCall>>> RingBatch::calls_of(const Event& event, Special special) const {
  using Made = std::optional<std::vector<gate::InjectedCall>>;
  const bool shows_file = event.map && (event.map->shared_object || event.map->file);  // a stub is sent its file
  if (event.repeat != 1 || shows_file || may_have_changed(event, special)) return Made();
  const RedrivenThread& thread = redriving_.unit.thread(event.thread);
  const RestoredProcess& process = redriving_.unit.process(thread.process);
  Address brk = events_.breaks.empty() ? process.brk : events_.breaks.back().second;
  ASSIGN_OR_RETURN(const auto changed_code, patcher_.code_changes(thread.process, event, special, brk));
  if (!changed_code.empty() || UnitGates::is_in_the_way(*events_.gate, event, special, brk)) {
    return Made();
  }
  RingCalls calls;
  TRY(replay_memory_call(event, special, process.stub, brk, calls, redriving_.unit.shared(), redriving_.file_path));
  return Made(calls.take());
}

}  // namespace redrive
