// The in-process tier in replay (interceptors/inprocess/DESIGN.md): events that a patched site will make are put into
// the ring of its address space, and the code there answers them. What differs, and all else, stops.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "checkpoint/address_space.h"
#include "supervisor/replay/memory_change.h"
#include "supervisor/replay/replayer.h"
#include "supervisor/replay/ring_entry.h"
#include "supervisor/tier/code_file.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {

// Calls that the code inside tracees makes, from the ring.
class RingCalls final : public Calls {
 public:
  Result<void> add(std::string, long number, std::initializer_list<uint64_t> args) override {
    gate::InjectedCall call{static_cast<uint64_t>(number), {}};
    std::copy(args.begin(), args.end(), call.args);
    if (is_forbidden(number, call.args)) return Error{"a trace changes the replay's own memory", Status::damaged};
    calls_.push_back(call);
    return {};
  }
  Result<void> map_file(const std::string&, Address, uint64_t, int, int, uint64_t) override {
    CHECK(!"a file is not mapped from the ring");
    return {};
  }
  const std::vector<gate::InjectedCall>& all() const { return calls_; }

 private:
  std::vector<gate::InjectedCall> calls_;
};

Gate* Replayer::gate_of(const Thread& thread) const {
  const auto found = gates_.find(thread.process);
  return found == gates_.end() ? nullptr : found->second.get();
}

// Maps the tier into the address space of these processes, unless the program has something there.
Result<void> Replayer::map_gate(const std::vector<ProcessSerial>& sharing, pid_t tid) {
  if (!tier_ || sharing.empty()) return {};
  const Stub& stub = unit_.processes.at(sharing.front()).stub;
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid()));
  const bool taken = std::any_of(mappings.begin(), mappings.end(),
                                 [](const Mapping& m) { return m.start < gate::kEnd && gate::kCode < m.end; });
  auto gate = std::make_shared<Gate>(*tier_->arena);
  if (taken || !gate->take_slot()) return {};
  gate->slot()->replay = 1;
  StubCalls calls(stub, tid);
  TRY(calls.map_file(tier_->arena->code().path(), gate::kCode, gate::kCommonSize, PROT_READ | PROT_EXEC,
                     MAP_SHARED_VALIDATE, 0));
  TRY(calls.map_file(gate->slot_memory().path(), gate::kSlot, gate::kSlotSize, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
  gate->slot()->processor = static_cast<uint32_t>(processor_);
  ASSIGN_OR_RETURN(gate->slot()->messages, map_messages(calls, mappings));
  TRY(calls.run());
  gate->slot_memory().close();
  gate->messages = {gate->slot()->messages, gate->slot()->messages + store_.size()};
  for (const ProcessSerial serial : sharing) gates_[serial] = gate;
  return {};
}

// In each address space.
Result<void> Replayer::map_gates() {
  for (const auto& [serial, process] : unit_.processes) {
    const ProcessSerial owner = memory_owner(serial);
    if (owner == serial) {
      TRY(map_gate({serial}, process.stub.pid()));
    } else if (const auto gate = gates_.find(owner); gate != gates_.end()) {
      gates_[serial] = gate->second;  // it runs on the memory of another, and finds the tier there
    }
  }
  return {};
}

// The first process alive that runs on the memory of this one. The one that had it first may be gone.
ProcessSerial Replayer::memory_owner(ProcessSerial serial) const {
  const auto memory = [](const auto& entry) { return entry.second.memory_of.value_or(entry.first); };
  const auto own = memory(*unit_.processes.find(serial));
  return std::find_if(unit_.processes.begin(), unit_.processes.end(),
                      [&](const auto& entry) { return memory(entry) == own; })
      ->first;
}

// Maps the messages that the intervals of the replay set need of each other where nothing else is.
Result<Address> Replayer::map_messages(StubCalls& calls, const std::vector<Mapping>& mappings) {
  if (store_.size() == 0) return Address{0};
  constexpr Address kLowest = 1ull << 36, kStep = 1ull << 36;  // where neither heaps nor the kernel's choices are
  const uint64_t length = page_up(store_.size());
  Address at = kLowest;
  const auto overlaps = [&](const Mapping& m) { return m.start < at + length && at < m.end; };
  while (std::any_of(mappings.begin(), mappings.end(), overlaps)) at += kStep;
  TRY(calls.map_file(store_.path(), at, length, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
  return at;
}

// The tier of a forked child, which has its parent's patches and slot mapped.
Result<std::shared_ptr<Gate>> Replayer::inherit_gate(const Gate& parent, const Stub& child) {
  auto gate = std::make_shared<Gate>(*tier_->arena, parent);
  if (!gate->take_slot()) return Error{"no memory for the calls of a forked process"};
  gate->slot()->replay = 1;
  gate->slot()->processor = static_cast<uint32_t>(processor_);
  gate->slot()->messages = parent.slot()->messages;
  TRY(child.map_file(child.pid(), gate->slot_memory().path(), gate::kSlot, gate::kSlotSize, PROT_READ | PROT_WRITE,
                     MAP_SHARED, 0));
  gate->slot_memory().close();
  return gate;
}

// Moves a stopped thread from where one state of the tier has its instruction to where another has it; null: none.
void Replayer::reseat(const Thread& thread, const Gate& before, const Gate* after) const {
  user_regs_struct regs;
  if (!get_regs(thread.tid, regs)) return;
  const user_regs_struct stopped = regs;
  before.make_canonical(regs);
  if (after) regs.rip = after->physical(regs.rip);
  if (regs.rip != stopped.rip || regs.rcx != stopped.rcx) redrive::set_regs(thread.tid, regs);
}

// Leaves the address space as the program would have it. Returns the processes that share it.
std::vector<ProcessSerial> Replayer::remove_gate(ProcessSerial serial) {
  const auto found = gates_.find(serial);
  if (found == gates_.end()) return {};
  const std::shared_ptr<Gate> gate = found->second;
  const Stub& stub = unit_.processes.at(serial).stub;
  for (const auto& [unused, thread] : threads_) {
    if (gate_of(thread) == gate.get()) reseat(thread, *gate, nullptr);
  }
  for (const auto& site : gate->sites) stub.memory().write(site.start, site.original.data(), site.original.size());
  for (const auto& area : gate->trampolines) {
    static_cast<void>(stub.unmap(stub.pid(), area.start, kTrampolinesSize));
  }
  static_cast<void>(stub.unmap(stub.pid(), gate::kCode, gate::kEnd - gate::kCode));
  if (gate->messages.start) {
    static_cast<void>(stub.unmap(stub.pid(), gate->messages.start, page_up(store_.size())));
  }
  std::vector<ProcessSerial> sharing;
  for (const auto& [process, its] : gates_) {
    if (its == gate) sharing.push_back(process);
  }
  for (const ProcessSerial process : sharing) gates_.erase(process);
  return sharing;
}

// The code that a process has mapped, read again when that has changed.
Result<const std::vector<Mapping>*> Replayer::code_of(ProcessSerial serial) {
  auto [known, fresh] = code_.try_emplace(serial);
  if (fresh) {
    auto read = code_mappings(unit_.processes.at(serial).stub.pid());
    if (!read) {
      code_.erase(known);
      return read.error();
    }
    known->second = std::move(*read);
  }
  return &known->second;
}

// Of the process, behind a call that may map, unmap or protect it.
Result<Replayer::CodeAfter> Replayer::code_after(ProcessSerial process, const Event& event, Special special,
                                                 Address brk) {
  const auto ranges = changed_memory(event, special, brk);
  if (ranges.empty()) return CodeAfter::same;
  if (makes_code(event, special)) return CodeAfter::changed;
  ASSIGN_OR_RETURN(const auto* code, code_of(process));
  return overlap(ranges, *code) ? CodeAfter::changed : CodeAfter::same;
}

// An instruction makes the thread's next event, or several: replaces it if that is worth it. The memory there is as it
// will be then: what changes code is in no batch.
Result<void> Replayer::patch_ahead(const Thread& thread, Address site, SiteKind kind, uint64_t times) {
  if (unpatchable_.contains({thread.process, site})) return {};
  ASSIGN_OR_RETURN(const auto* code, code_of(thread.process));
  const Mapping* found = mapping_at(*code, site);
  if (!found) return {};
  const Mapping mapping = *found;
  // What the batch will map may lie where trampolines would.
  if (batch_.changes_memory && !gate_of(thread)->trampolines_near(site)) return {};
  if (tier_->code.is_program(mapping)) {
    if ((own_calls_[{thread.process, site}] += times) < kOwnCodeWorthPatching) return {};
  }
  const auto window = tier_->code.window(memory(thread), mapping, site, kind, times);
  if (!window) return {};
  TRY(replace(thread.process, thread.tid, {site, *window, {}, kind}));
  if (!gate_of(thread)->patched(site)) unpatchable_.insert({thread.process, site});
  return {};
}

Result<void> Replayer::replace(ProcessSerial process, pid_t tid, const SitePatch& patch) {
  Gate* const gate = gates_.at(process).get();
  const Stub& stub = unit_.processes.at(process).stub;
  if (!gate->trampolines_near(patch.site)) {
    ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid()));
    const auto at = Gate::gap_near(mappings, patch.site);
    if (!at) return {};
    TRY(stub.map_anonymous(tid, *at, kTrampolinesSize, PROT_READ | PROT_EXEC, MAP_PRIVATE));
    gate->add_trampolines(stub.memory(), *at);
  }
  gate->patch(stub.memory(), {patch});
  for (const auto& [serial, other] : threads_) {
    if (gate_of(other) == gate) reseat(other, *gate, gate);
  }
  return {};
}

// Whether the call changes memory where the tier lies, or code that it has replaced.
bool Replayer::is_in_the_way(const Gate& gate, const Event& event, Special special, Address brk) const {
  const auto ranges = changed_memory(event, special, brk);
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const AddressRange& range) { return gate.touches(range.start, range.end); });
}

// Before the program's mappings change: if the tier is in the way, it is removed. Returns whose it was.
std::vector<ProcessSerial> Replayer::make_room(Thread& thread, const Event& event, Special special) {
  const Gate* const gate = gate_of(thread);
  const bool removed = gate && is_in_the_way(*gate, event, special, unit_.processes.at(thread.process).brk);
  return removed ? remove_gate(thread.process) : std::vector<ProcessSerial>();
}

// Takes the next event: executes it, or has it executed together with those that follow.
Result<Step> Replayer::visit(EventIndex index, const Event& event) {
  if (event.receive && store_.keeps_order()) return receive_in_turn(index, event);
  ASSIGN_OR_RETURN(Answer answer, expect(index, event));
  if (answer == Answer::in_ring) return Step::as_recorded();
  if (batch_.ends.empty()) return step(index, event);
  // What follows may happen right behind the last of them, or while its thread stands there.
  const bool own =
      event.thread == batch_.thread && event.kind != EventKind::signal && event.kind != EventKind::preemption;
  const bool behind = event.kind == EventKind::signal && event.thread == batch_.thread &&
                      (event.args[0] == static_cast<uint64_t>(SignalPoint::before_syscall) ||
                       event.args[0] == static_cast<uint64_t>(SignalPoint::fault));
  TRY_STEP(run_batch(own || behind));
  ASSIGN_OR_RETURN(answer, expect(index, event));
  return answer == Answer::in_ring ? Step::as_recorded() : step(index, event);
}

// The total order: a receive happens at a stop, when all that came before it have happened. What was sent before it has
// been sent by then.
Result<Step> Replayer::receive_in_turn(EventIndex index, const Event& event) {
  TRY_STEP(run_batch(event.thread == batch_.thread));
  TRY(store_.await_turn(event.receive->arrival));
  auto received = step(index, event);
  if (received) store_.turn_taken(event.receive->arrival);
  return received;
}

// Puts the event into the ring of its thread, unless it must stop, or does not fit to those that are there.
Result<Replayer::Answer> Replayer::expect(EventIndex index, const Event& event) {
  if (batch_.ends.empty()) {
    const auto found = threads_.find(event.thread);
    batch_.gate = found == threads_.end() ? nullptr : gate_of(found->second);
  } else if (batch_.thread != event.thread) {
    return Answer::at_stop;
  }
  if (!batch_.gate) return Answer::at_stop;
  const uint64_t start = batch_.ends.empty() ? 0 : batch_.ends.back();
  const uint64_t rounds = event.repeat / event.cycle + 1;
  ASSIGN_OR_RETURN(auto end, put_expected(index, event, start, rounds));
  if (!end) return Answer::at_stop;
  auto& expected = *reinterpret_cast<gate::Expected*>(ring(*batch_.gate->slot()) + start);
  if (event.repeat > 1 && event.cycle > 1) {
    expected.repeat = event.repeat;
    expected.cycle = event.cycle;
    ASSIGN_OR_RETURN(const auto cycle, read_cycle(index, event));
    for (uint32_t turn = 0; turn + 1 < event.cycle; ++turn) {
      ASSIGN_OR_RETURN(end, put_expected(index - (event.cycle - 1 - turn), cycle[turn], *end, rounds));
      if (!end) return Answer::at_stop;
    }
    expected.size = static_cast<uint32_t>(*end - start);
  }
  if (batch_.ends.empty()) {
    batch_.thread = event.thread;
    batch_.first = index;
  }
  batch_.ends.push_back(*end);
  const SyscallRow* const row = event.kind == EventKind::syscall ? find_row(event.number, event.args) : nullptr;
  if (row && is_made(*row)) {
    batch_.changes_memory = true;
    if (row->special == Special::brk) batch_.breaks.push_back({batch_.ends.size(), static_cast<Address>(event.result)});
  }
  return Answer::in_ring;
}

// Puts an event there, which stands for a single call or a series of the same, whose instruction makes so many. Where
// it ends; none if it must stop.
Result<std::optional<uint64_t>> Replayer::put_expected(EventIndex index, const Event& event, uint64_t start,
                                                       uint64_t times) {
  using End = std::optional<uint64_t>;
  const SyscallRow* const row = event.kind == EventKind::syscall ? find_row(event.number, event.args) : nullptr;
  if (!fits_ring(event, row, options_.output)) return End();
  Gate* const gate = batch_.gate;
  const SiteKind kind = kind_of(event);
  const Address at = site_of(event);
  const PatchedSite* site = gate->patched(at);
  if (!site) {
    TRY(patch_ahead(threads_.at(event.thread), at, kind, times));
    site = gate->patched(at);
  }
  if (!site || site->kind != kind) return End();
  RingCalls calls;
  if (row && is_made(*row)) {
    ASSIGN_OR_RETURN(const Answer answer, make_in_ring(event, row->special, calls));
    if (answer == Answer::at_stop) return End();
  }
  RingEntry entry{site->stop, messages_.sent_by(index), {}, calls.all()};
  if (event.receive && !event.receive->logged) {
    auto parts = messages_.places_of(*event.receive);
    if (!parts) return End();
    entry.parts = std::move(*parts);
  }
  return put_entry({ring(*gate->slot()), gate::kRingSize}, start, event, row, entry);
}

// Adds what the tracee does to its memory in place of the call, unless the supervisor has to do it.
Result<Replayer::Answer> Replayer::make_in_ring(const Event& event, Special special, RingCalls& calls) {
  const bool shows_file = event.map && (event.map->shared_object || event.map->file);  // a stub is sent its file
  if (event.repeat != 1 || shows_file || may_have_changed(event, special)) return Answer::at_stop;
  const Thread& thread = threads_.at(event.thread);
  const RestoredProcess& process = unit_.processes.at(thread.process);
  Address brk = batch_.breaks.empty() ? process.brk : batch_.breaks.back().second;
  ASSIGN_OR_RETURN(const CodeAfter code, code_after(thread.process, event, special, brk));
  if (code == CodeAfter::changed || is_in_the_way(*batch_.gate, event, special, brk)) return Answer::at_stop;
  TRY(replay_memory_call(event, special, process.stub, brk, calls, unit_.shared, file_path_));
  return Answer::in_ring;
}

// A thread that stands at a call which the ring answers goes on with the code there.
void Replayer::send_to_gate(Thread& thread) const {
  if (thread.ahead != StopKind::syscall) return;
  const PatchedSite* const site = gate_of(thread)->patched(thread.regs.rip - kSyscallSize);
  if (!site || site->kind != SiteKind::syscall) return;
  user_regs_struct regs = thread.regs;
  regs.rip = tier_->arena->header().entry;
  regs.rcx = site->stop;
  regs.rax = regs.orig_rax;
  regs.orig_rax = ~0ull;
  if (!redrive::set_regs(thread.tid, regs)) return;
  thread.stopped_at_syscall = false;
  thread.ahead.reset();
}

// Executes the events in the ring. The thread goes on to its next stop; unless `onward`, it stands right behind the
// last event instead.
Result<Step> Replayer::run_batch(bool onward) {
  if (batch_.ends.empty()) return Step::as_recorded();
  const Batch batch = std::exchange(batch_, {});
  store_.got_on();
  Thread& thread = threads_.at(batch.thread);
  gate::Slot& slot = *gate_of(thread)->slot();
  // Behind the last event's last call the thread can only stand if that stops.
  const uint64_t last_start = batch.ends.size() > 1 ? batch.ends[batch.ends.size() - 2] : 0;
  uint64_t& last_repeat = reinterpret_cast<gate::Expected*>(ring(slot) + last_start)->repeat;
  const bool last_stops = !onward && last_repeat > 1;
  if (last_stops) --last_repeat;
  const size_t answered = batch.ends.size() - (onward || last_stops ? 0 : 1);
  slot.taken = slot.repeated = 0;
  slot.head = answered ? batch.ends[answered - 1] : 0;
  if (answered) send_to_gate(thread);
  const auto make = [&](EventIndex index, const auto& made) {
    Result<Step> step_made = Step::as_recorded();
    const auto make_one = [&](EventIndex, const Event& event) {
      step_made = step(index, event, made(event));
      return true;
    };
    const bool is_previous = previous_ && index == batch.first + batch.ends.size() - 1;
    if (is_previous) return make_one(index, *previous_), std::move(step_made);
    const auto read = trace_.for_each_event(what_.unit, index, index + 1, make_one);
    return read ? std::move(step_made) : Result<Step>(read.error());
  };
  for (size_t done = 0; done < batch.ends.size();) {
    if (done < answered) {
      ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
      thread.ahead = stop;
      const auto taken = std::upper_bound(batch.ends.begin(), batch.ends.end(), slot.taken);
      const size_t now = std::max(done, static_cast<size_t>(taken - batch.ends.begin()));
      executed_ += now - done;
      done = now;
      for (const auto& [events, brk] : batch.breaks) {
        if (events <= done) unit_.processes.at(thread.process).brk = brk;
      }
      if (done == batch.ends.size()) break;
    }
    const EventIndex index = batch.first + done;
    const uint64_t repeated = std::exchange(slot.repeated, 0);
    // The ring answers nothing meanwhile: the rest of a series could look like the event that follows.
    slot.taken = batch.ends[done++];
    const uint64_t head = std::exchange(slot.head, slot.taken);
    TRY_STEP(make(index, [&](const Event&) { return repeated; }));
    slot.head = head;
    if (last_stops && done == batch.ends.size()) {
      slot.head = slot.taken = 0;
      return Step::as_recorded();
    }
  }
  slot.head = slot.taken = 0;
  if (last_stops) {
    --executed_;
    return make(batch.first + batch.ends.size() - 1, [](const Event& last) { return last.repeat - 1; });
  }
  return Step::as_recorded();
}

}  // namespace redrive
