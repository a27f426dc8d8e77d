#include "supervisor/record/stops/served_calls.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/parallel.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/kernel/event_clock.h"
#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/trap_answers.h"
#include "supervisor/record/tracees/findings.h"

namespace redrive {
namespace {

constexpr size_t kBatches = 2;  // of events to be made; stretch_copies_ holds the records of this many

static_assert(gate::kLongestCycle == kLongestCycle);

void set_at_exit(user_regs_struct& regs, const gate::Record& record, Address site) {
  const gate::Registers& r = record.regs;
  regs.rip = site + kSyscallSize;
  regs.rcx = regs.rip;
  regs.orig_rax = r.rax;
  regs.rax = static_cast<uint64_t>(record.result);
  regs.rdi = r.rdi, regs.rsi = r.rsi, regs.rdx = r.rdx, regs.r10 = r.r10, regs.r8 = r.r8, regs.r9 = r.r9;
  regs.rbx = r.rbx, regs.rbp = r.rbp, regs.rsp = r.rsp;
  regs.r12 = r.r12, regs.r13 = r.r13, regs.r14 = r.r14, regs.r15 = r.r15;
  regs.eflags = regs.r11 = r.flags;
  regs.fs_base = record.fs_base, regs.gs_base = record.gs_base;
}

// How many calls it stands for. Every record of the tier stands for some.
uint32_t calls_of(const gate::Record& record) { return read_once(record.repeat) & ~gate::kTaken; }

// The looks at the unit's clock while the stretch, which was just taken, was written, and one now.
std::vector<RecordedGate::Look> take_looks(RecordedGate& gate, const RingStretch& stretch) {
  IntervalClock& clock = gate.unit->clock;
  const uint64_t end = gate.reader.taken(), first = end - stretch.complete_bytes();
  std::vector<RecordedGate::Look> looks = std::exchange(gate.looks, {});
  for (auto& look : looks) {
    look.head = std::clamp(look.head, first, end) - first;
    look.cpu_ns = clock.interval_cpu_ns(look.cpu_ns);
  }
  looks.push_back({end - first, clock.interval_cpu_ns()});
  return looks;
}

std::vector<IntervalClock::Reading> readings_of(const ServedCalls::Served& served) {
  std::vector<uint64_t> places;
  for (const auto& look : served.looks) places.push_back(look.head);
  const std::vector<uint64_t> calls = served.stretch.calls_before(places);
  std::vector<IntervalClock::Reading> readings;
  for (size_t i = 0; i < calls.size(); ++i) readings.push_back({calls[i], served.looks[i].cpu_ns});
  return readings;
}

}  // namespace

ServedCalls::ServedCalls(const RecorderLimits& limits, GateArena* arena, EventClock& event_clock, CpuidAnswers& answers,
                         Findings& findings, CallEvents& events, FileCopies& files, TrapAnswers& traps)
    : limits_(limits),
      arena_(arena),
      event_clock_(event_clock),
      answers_(answers),
      findings_(findings),
      events_(events),
      files_(files),
      traps_(traps) {
  if (!arena_ || processor_count() == 1) return;
  event_maker_ = std::make_unique<WriteBehind<std::vector<Served>>>(
      kBatches, [this](std::vector<Served>& sources) REQUIRES(recorded) { make_events(sources); });
}

void ServedCalls::settle() {
  if (event_maker_) {
    event_clock_.end_served();
  } else {
    drain();
  }
}

void ServedCalls::take_back() {
  if (event_maker_) event_maker_->wait_until_idle();
}

void ServedCalls::break_gate(RecordedGate& gate) {
  gate.broken = true;
  gate.slot()->want_stop = gate::kServeNothing;
  findings_.add_unsure(*gate.unit,
                       "the program wrote into the memory that it shares with the recorder: calls are missing");
}

// Takes what was served off the rings. It stays there until empty_ring().
ServedCalls::Taken ServedCalls::take() {
  std::erase_if(gates_, [](const auto& gate) { return gate.expired(); });
  Taken all;
  const uint64_t now = arena_ ? arena_->now() : 0;
  if (arena_) event_clock_.look(now);
  for (const auto& known : gates_) {
    std::shared_ptr<RecordedGate> gate = known.lock();
    if (!gate || gate->broken) continue;
    gate->rests = false;
    auto taken = gate->reader.take(*gate->slot(), now);
    if (auto* const stretch = std::get_if<RingStretch>(&taken)) {
      auto looks = take_looks(*gate, *stretch);
      all.served.push_back({std::move(gate), std::move(*stretch), std::move(looks), nullptr});
    } else if (std::holds_alternative<RingReader::Broken>(taken)) {
      all.broken.push_back(std::move(gate));
    } else if (!gate->looks.empty()) {
      gate->looks = {gate->looks.back()};
    }
  }
  return all;
}

void ServedCalls::break_gates(const Taken& taken) {
  for (const auto& gate : taken.broken) break_gate(*gate);
}

// What happens between two looks at which nothing has changed is not looked for: most programs rest.
bool ServedCalls::look_at_clocks() {
  bool busy = false;
  for (const auto& known : gates_) {
    const std::shared_ptr<RecordedGate> gate = known.lock();
    if (!gate || gate->broken || gate->rests) continue;
    const RecordedGate::Look look{read_once(gate->slot()->head), gate->unit->clock.cpu_ns()};
    auto& looks = gate->looks;
    const size_t count = looks.size();
    gate->rests = count > 0 && looks.back().head == look.head && looks.back().cpu_ns == look.cpu_ns;
    busy |= !gate->rests;
    // Of those between the same two records, the first and the last count.
    const bool between = count > 1 && looks[count - 2].head == look.head && looks.back().head == look.head;
    if (between) {
      looks.back() = look;
    } else {
      looks.push_back(look);
    }
  }
  return busy;
}

void ServedCalls::empty_ring(const Thread& thread) {
  RecordedGate* const gate = thread.process->gate.get();
  if (gate && gate->slot() && thread.process->unit->baton.holder() == &thread) gate->reader.empty(*gate->slot());
}

void ServedCalls::next_record(Served& served) {
  const auto next = served.stretch.next();
  if (next == RingStretch::Next::end) return;
  if (next == RingStretch::Next::record) {
    const ThreadSerial serial = served.stretch.thread();
    if (served.thread && served.thread->serial == serial) return;
    const auto& threads = served.gate->unit->threads;
    const auto known = threads.find(serial);
    if (known != threads.end()) {
      served.thread = known->second;
      return;
    }
  }
  drop(served);
}

// The program has written where this was read.
void ServedCalls::drop(Served& served) {
  served.stretch.drop();
  break_gate(*served.gate);
}

Address ServedCalls::Served::site() const {
  const Address stop = stretch.record().site;
  const PatchedSite* const site = gate->come_by(stop);
  return site ? site->site : stop;
}

void ServedCalls::make_events(std::vector<Served>& sources) {
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Served& a, const Served& b) { return a.gate->unit->id < b.gate->unit->id; });
  for (auto first = sources.begin(), last = first; first != sources.end(); first = last) {
    last =
        std::find_if(first, sources.end(), [&](const Served& other) { return other.gate->unit != first->gate->unit; });
    begin_served({first, last});
  }
  if (!sources.empty()) event_clock_.begin_served();
  for (Served& served : sources) next_record(served);
  for (;;) {
    Served* first = nullptr;
    for (Served& served : sources) {
      if (served.stretch.at_end()) continue;
      if (!first || served.stretch.stamp() < first->stretch.stamp()) first = &served;
    }
    if (!first) break;
    RingStretch& stretch = first->stretch;
    const gate::Record& record = stretch.record();
    event_clock_.at_record(stretch.stamp(), stretch.complete() ? read_once(record.time_ns) : 0);
    if (stretch.complete() && calls_of(record) == 0) {
      drop(*first);
      continue;
    }
    const bool trap = record.counter || record.regs.rax == gate::kCpuidNumber;
    if (trap && stretch.complete()) {
      add_served_trap(*first);
    } else if (!stretch.take_begun() && !open_served(*first)) {
      drop(*first);
      continue;
    } else if (stretch.complete()) {
      close_served(*first);
    }
    next_record(*first);
  }
  for (const Served& served : sources) served.gate->unit->clock.end_served();
}

void ServedCalls::drain() {
  Taken taken = take();
  break_gates(taken);
  make_events(taken.served);
  event_clock_.end_served();
}

void ServedCalls::make_events_behind() {
  event_maker_->wait_for_room();
  Taken taken = take();
  uint64_t size = 0;
  for (const Served& served : taken.served) size += gate::padded(served.stretch.bytes());
  const bool much = size > StretchCopies::kMost;
  if (much || !taken.broken.empty()) {
    const TakenBack taken_back(*this);
    break_gates(taken);
    if (much) make_events(taken.served);
  }
  if (much || taken.served.empty()) return;
  stretch_copies_.begin_batch();
  for (Served& served : taken.served) stretch_copies_.add(served.stretch);
  event_maker_->add(std::move(taken.served));
}

// Address spaces of one unit run in turn, and which of them a reading of the unit's clock is about is not known.
void ServedCalls::begin_served(std::span<const Served> of_unit) {
  std::vector<IntervalClock::Reading> readings = readings_of(of_unit.front());
  for (const Served& other : of_unit.subspan(1)) {
    const IntervalClock::Reading end = readings_of(other).back();
    readings = {{readings.back().calls + end.calls, std::max(readings.back().cpu_ns, end.cpu_ns)}};
  }
  of_unit.front().gate->unit->clock.begin_served(std::move(readings), limits_.replayed_call_ns);
}

bool ServedCalls::open_served(Served& served) {
  Unit& unit = *served.gate->unit;
  const gate::Record& record = served.stretch.record();
  unit.clock.next_served();
  Thread& thread = *served.thread;
  set_at_exit(thread.entry, record, served.site());
  thread.moves_on();
  thread.call.args = syscall_args(thread.entry);
  thread.call.row = find_row(static_cast<int64_t>(thread.entry.orig_rax), thread.call.args);
  if (!thread.call.row || !thread.call.row->in_process) return false;
  const bool maps_file = thread.call.row->memory == MemoryChange::maps && !(thread.call.args[3] & MAP_ANONYMOUS);
  if (maps_file && !files_.served(record.file - 1u)) return false;
  if (thread.call.row->treat == Treat::special) unit.clock.add_replay(limits_.replayed_stop_ns);
  events_.open_call(thread, Memory::of(served.stretch.read()));
  return true;
}

// cpuid, rdtsc and rdtscp are not calls.
void ServedCalls::add_served_trap(Served& served) {
  Unit& unit = *served.gate->unit;
  const gate::Record& record = served.stretch.record();
  unit.clock.next_served();
  Thread& thread = *served.thread;
  thread.moves_on();
  const Address at = served.site();
  user_regs_struct before{};
  before.rip = at;
  if (!record.counter) {
    before.rax = record.regs.rdi;
    before.rcx = record.regs.rsi;
    user_regs_struct after = before;
    answer(cpuid_instruction(), after, answers_);
    traps_.add_trap(thread, cpuid_instruction(), before, after);
    return;
  }
  before.rax = record.regs.rax, before.rbx = record.regs.rbx;
  before.rcx = record.regs.rcx, before.rdx = record.regs.rdx;
  const PatchedSite* const patched = served.gate->come_by(record.site);
  const auto instruction = counter_instruction(instruction_size(patched ? patched->kind : SiteKind::rdtsc));
  user_regs_struct after = before;
  answer_counter(instruction, static_cast<uint64_t>(record.result), after);
  traps_.add_trap(thread, instruction, before, after);
}

void ServedCalls::close_served(const Served& served) {
  const gate::Record& record = served.stretch.record();
  const uint32_t times = calls_of(record);
  served.gate->unit->served_calls += times;
  served.gate->unit->clock.skip_served(times - 1);
  const SyscallRow* const row = served.thread->call.row;
  if (row->treat == Treat::refuse) findings_.count_refusal(*served.thread, row, row->refusal);
  served.gate->forget_changed(row->special, served.thread->call.args, record.result);
  events_.close_served(*served.thread, record, times, read_once(record.cycle), Memory::of(served.stretch.pieces()));
}

}  // namespace redrive
