// The in-process tier (interceptors/inprocess/DESIGN.md): maps the code into address spaces, patches syscall sites, and
// turns the records of served calls into events. Registers are translated where stops are read and written, so nothing
// else knows of trampolines.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "checkpoint/address_space.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

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

static_assert(gate::kLongestCycle == kLongestCycle);

}  // namespace

bool Recorder::get_regs(const Thread& thread, user_regs_struct& regs) const {
  if (!tracer_.get_regs(thread.tid, regs)) return false;
  if (const Gate* gate = thread.process->tier()) gate->make_canonical(regs);
  return true;
}

bool Recorder::set_regs(const Thread& thread, const user_regs_struct& regs) const {
  user_regs_struct physical = regs;
  if (const Gate* gate = thread.process->tier()) physical.rip = gate->physical(regs.rip);
  return tracer_.set_regs(thread.tid, physical);
}

TraceeCalls::Caller Recorder::caller_of(Thread& thread) { return {thread.tid, thread.signals}; }

TierMapper::Tracee Recorder::tracee_of(Thread& thread) {
  const Process& process = *thread.process;
  return {caller_of(thread), process.pid, process.pidfd.get(), process.memory};
}

// Maps the tier into the address space of a new program (TierMapper::map()).
Result<void> Recorder::map_gate(Thread& thread, const user_regs_struct& regs, Address vdso,
                                const std::vector<Mapping>& mappings) {
  Process& process = *thread.process;
  ASSIGN_OR_RETURN(auto mapped, tier_mapper_.map(tracee_of(thread), *arena_, process.unit, regs, vdso, mappings));
  if (!mapped.gate) return {};
  process.brk = mapped.brk;
  process.gate = std::move(mapped.gate);
  gates_.push_back(process.gate);
  return {};
}

// Gives a forked child a slot of its own in place of its parent's (TierMapper::inherit()).
Result<void> Recorder::inherit_gate(Thread& thread, const user_regs_struct& regs, std::shared_ptr<RecordedGate> gate) {
  thread.process->gate = gate;
  ASSIGN_OR_RETURN(const auto slot, tier_mapper_.inherit(tracee_of(thread), *gate, regs));
  if (slot == TierMapper::Slot::own) gates_.push_back(gate);
  return {};
}

// Of the thread's address space; null if nothing is served there.
gate::Slot* Recorder::slot_of(const Thread& thread) {
  const Gate* gate = thread.process->gate.get();
  return gate ? gate->slot() : nullptr;
}

// What the code inside the thread's address space must know before the thread runs user code.
void Recorder::set_slot(Thread& thread) {
  gate::Slot* const slot = slot_of(thread);
  if (!slot) return;
  const Process& process = *thread.process;
  const Unit& unit = *process.unit;
  process.gate->use_table(process.fds);
  slot->thread = thread.serial;
  slot->alone = alone(unit);
  slot->others_wait = unit.baton.is_awaited();
  const auto& restricted = thread.confinement.restricted();
  std::copy(restricted.begin(), restricted.end(), slot->restricted);
  const bool nothing = process.gate->broken || process.opens_memory;
  const bool at_call = !thread.signals.empty() || !process.copies_to_reap.empty() || !unit.joining.empty() ||
                       !unit.writers.empty() || unit.checkpoint_first || unit.checkpoint_wanted ||
                       thread.asked_to_stop || !process.attached.empty();
  slot->want_stop = (nothing ? gate::kServeNothing : 0) | (at_call ? gate::kStopAtCall : 0);
}

void Recorder::ask_to_stop(Thread& thread) {
  thread.asked_to_stop = true;
  if (gate::Slot* slot = slot_of(thread)) slot->want_stop |= gate::kStopAtCall;
}

bool Recorder::in_gate(const Thread& thread, Address ip) { return thread.process->gate && Gate::executes_at(ip); }

// The kernel may have written before a signal ended the call that is being served: it will find what it found before.
void Recorder::undo_writes(const Process& process) {
  auto current = RingReader::current(*process.gate->slot());
  if (!current || current->next() != RingStretch::Next::record) return;
  if (!process.unit->threads.contains(current->thread())) return;
  for (const auto& piece : current->pieces()) {
    Bytes now(piece.data.size());
    const bool read = process.memory.read(piece.address, now.data(), now.size());
    if (read && !std::equal(now.begin(), now.end(), piece.data.begin())) {
      process.memory.write(piece.address, piece.data.data(), piece.data.size());
    }
  }
}

// At a stop amid a served call: if nothing has come of it yet, it is left to a stop.
void Recorder::leave_gate(Thread& thread) {
  user_regs_struct regs;
  RecordedGate* const gate = thread.process->gate.get();
  if (!gate || !gate->slot() || !tracer_.get_regs(thread.tid, regs) || !in_gate(thread, regs.rip)) return;
  gate::Slot& slot = *gate->slot();
  const bool ended_by_signal = restarts(static_cast<int64_t>(regs.rax)) || static_cast<int64_t>(regs.rax) == -EINTR;
  const gate::Header& at = arena_->header();
  const bool tried = regs.rip == at.executed && ended_by_signal;
  const bool executed = regs.rip >= at.executed && regs.rip < at.finished && !tried;
  if (slot.phase != gate::Phase::before && (slot.phase != gate::Phase::kernel || executed)) return;
  if (slot.phase == gate::Phase::kernel && tried) undo_writes(*thread.process);
  slot.asleep = slot.pending = 0;
  cancel_pending(thread);
  slot.target = slot.site;
  regs.rip = at.leave;
  regs.orig_rax = ~0ull;
  tracer_.set_regs(thread.tid, regs);
}

// The send that was about to be served is left to a stop.
void Recorder::cancel_pending(Thread& thread) {
  RecordedGate& gate = *thread.process->gate;
  if (!gate.reader.cancel_entry()) return;
  messages_.end_send(thread.sending, -EINTR);
  gate.unit->log.cancel();
}

// ---- Served calls that sleep, in units of several threads

// Another thread of the unit could run: it gets the baton if the holder sleeps in a served call. From then on that is a
// call like those that stop: its entry is logged, and it will have to wait for the baton.
void Recorder::take_from_sleeper(Unit& unit) {
  Thread* const holder = unit.baton.holder();
  gate::Slot* const slot = holder ? slot_of(*holder) : nullptr;
  if (!slot) return;
  __atomic_store_n(&slot->others_wait, 1, __ATOMIC_SEQ_CST);
  if (holder->run != Thread::Run::user) return;
  uint64_t asleep = read_once(slot->asleep);
  if (!asleep || !__atomic_compare_exchange_n(&slot->asleep, &asleep, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    return;
  }
  RecordedGate& gate = *holder->process->gate;
  drain();
  if (gate.broken || !open_in_slot(*holder)) return;
  holder->asleep = true;
  holder->run = Thread::Run::blocked;
  unit.baton.give_up();
}

// Looks from time to time whether a thread sleeps in a served call, and notes since when: not earlier than it does.
void Recorder::note_sleep(Thread& thread) {
  const gate::Slot* const slot = slot_of(thread);
  if (!slot || slot->phase != gate::Phase::kernel) return;
  const uint64_t sleep = read_once(slot->sleeps);
  if (std::exchange(thread.seen_sleep, sleep) != sleep) thread.seen_asleep_at = tracer_.now();
}

// The call that the thread makes in the gate, with all before it drained, becomes one that stops: its entry is logged,
// and the slot is free. False if the program has written there.
bool Recorder::open_in_slot(Thread& thread) {
  RecordedGate& gate = *thread.process->gate;
  gate::Slot& slot = *gate.slot();
  Unit& unit = *thread.process->unit;
  if (auto entry = gate.reader.take_entry(slot)) {
    Served served{thread.process->gate, std::move(*entry), unit.clock.interval_cpu_ns(), nullptr};
    begin_served(served);
    next_record(served);
    const bool opened = !served.stretch.at_end() && served.thread == &thread && open_served(served);
    unit.clock.end_served();
    if (!opened) {
      break_gate(gate);
      return false;
    }
  }
  thread.timeout.entered_at(thread.seen_sleep == slot.sleeps ? thread.seen_asleep_at : tracer_.now());
  slot.phase = gate::Phase::outside;
  slot.pending = slot.series = 0;
  user_regs_struct& entry = thread.entry;
  const user_regs_struct& resumed = thread.resumed;
  entry.cs = resumed.cs, entry.ss = resumed.ss;
  entry.ds = resumed.ds, entry.es = resumed.es, entry.fs = resumed.fs, entry.gs = resumed.gs;
  entry.rax = static_cast<uint64_t>(-ENOSYS);
  Messages::forget_closed(message_call(thread, thread.process->memory), false);
  return true;
}

// Whether the thread is stopped right behind the instruction that has made its call, and a signal or we have ended
// that: the result says what the kernel does now. Not the gate's own calls, nor one that it has tried without a
// timeout.
bool Recorder::is_cut_short(const Thread& thread, const user_regs_struct& regs) const {
  const auto result = static_cast<int64_t>(regs.rax);
  if (!in_gate(thread, regs.rip) || regs.rip != arena_->header().executed) return false;
  if (thread.asleep) return restarts(result) || result == -EINTR;
  const gate::Slot* const slot = slot_of(thread);
  if (!slot || slot->phase != gate::Phase::kernel || thread.process->gate->broken) return false;
  user_regs_struct at_call = regs;
  const auto made = syscall_args(at_call);
  const bool same_args = std::equal(made.begin(), made.end(), &slot->regs.rdi);
  if (!same_args || (regs.orig_rax != slot->regs.rax && regs.orig_rax != SYS_restart_syscall)) return false;
  const auto* const row = find_row(static_cast<int64_t>(slot->regs.rax), made);
  return restarts(result) || (result == -EINTR && row && row->may_block);
}

// A served call was cut short: it ends like one that stops, with the kernel's result, so that the kernel enters it
// again or makes it EINTR as it would have. `signal`: that the thread is stopped for, which is delivered then; 0: none.
// False if it is not there. The thread has the baton, or waits for it from now on.
bool Recorder::end_cut_short(Thread& thread, int signal) {
  user_regs_struct stopped;
  if (!tracer_.get_regs(thread.tid, stopped) || !is_cut_short(thread, stopped)) return false;
  const bool had_baton = !thread.asleep;
  if (had_baton) {
    if (!open_in_slot(thread)) return false;
    thread.process->gate->slot()->asleep = 0;
  }
  thread.asleep = false;
  thread.woken = true;
  thread.in_hand = signal;
  user_regs_struct regs = thread.entry;
  regs.rax = stopped.rax;
  set_regs(thread, regs);
  if (had_baton) {
    leave(thread);
  } else {
    take_or_queue(thread, Thread::Stop::exit);
  }
  return true;
}

// A thread that the baton was taken from in its sleep reports the result of its call.
void Recorder::woke(Thread& thread, const user_regs_struct& stopped) {
  thread.asleep = false;
  user_regs_struct regs = thread.entry;
  regs.rax = stopped.rdi;
  regs.orig_rax = ~0ull;
  set_regs(thread, regs);
  take_or_queue(thread, Thread::Stop::exit);
}

// A signal or the recorder has stopped such a thread. If it `comes_out`, its call ends; else the kernel goes on with
// it, unless it is one of those that end then, which is entered again.
void Recorder::disturb(Thread& thread, bool comes_out, int signal) {
  if (comes_out && end_cut_short(thread, signal)) return;
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return;
  thread.woken |= is_cut_short(thread, regs);
  if (siginfo_t info{}; comes_out && signal && tracer_.get_siginfo(thread.tid, info)) {
    thread.signals.hold(info, tracer_.now());
  }
  resume(thread, Resume::cont, comes_out ? 0 : signal);
}

// A served call ended while a stop was wanted: the thread is right behind it.
void Recorder::at_boundary(Thread& thread, user_regs_struct regs) {
  gate::Slot& slot = *thread.process->gate->slot();
  slot.phase = gate::Phase::outside;
  regs.rax = slot.regs.rax;
  regs.orig_rax = ~0ull;
  regs.rip = regs.rcx = slot.site + kSyscallSize;
  regs.eflags = regs.r11 = slot.regs.flags;
  tracer_.set_regs(thread.tid, regs);
  thread.process->gate->make_canonical(regs);
  thread.rewound = false;
  raise_held(thread);
  resume_user(thread, regs);
}

// ---- Patching

// An instruction has stopped the thread, whose address space has a slot: how it can be replaced now.
std::optional<Patcher::Replacement> Recorder::replacement(const Thread& thread, Address at, SiteKind kind) {
  const Process& process = *thread.process;
  auto replacement = patcher_.stopped({process.pid, process.memory, *process.gate}, at, kind);
  if (replacement && in_use(thread, replacement->window)) return {};
  return replacement;
}

// At a syscall's stop: replaces its instruction if that has proved worth it. True if the thread had to be resumed, and
// comes to the same call again.
bool Recorder::patch(Thread& thread) {
  const Process& process = *thread.process;
  RecordedGate* const gate = process.gate.get();
  const Address at = thread.entry.rip - kSyscallSize;
  if (!gate || !gate->slot()) return false;
  const auto args = syscall_args(thread.entry);
  const SyscallRow* row = find_row(static_cast<int64_t>(thread.entry.orig_rax), args);
  if (!row || !row->in_process) return false;
  const auto found = replacement(thread, at, SiteKind::syscall);
  if (!found) return false;
  const bool near = gate->trampolines_near(at);
  if (!near && !map_trampolines(thread, at)) return true;
  gate->replace(process.memory, at, *found->site);
  if (!near) {
    rewind(thread, thread.entry);
    return true;
  }
  set_regs(thread, thread.entry);
  return false;
}

// The same at the stop of another instruction. The thread's registers have to be set afterwards.
void Recorder::patch_instruction(Thread& thread, Address at, SiteKind kind) {
  const Process& process = *thread.process;
  RecordedGate* const gate = process.gate.get();
  if (!gate || !gate->slot()) return;
  const auto found = replacement(thread, at, kind);
  if (!found) return;
  if (gate->trampolines_near(at) || map_trampolines(thread, at)) gate->replace(process.memory, at, *found->site);
}

// Whether another thread of the address space is at an instruction there. One that is in a call is told where it goes
// on when it comes out of it.
bool Recorder::in_use(const Thread& thread, const AddressRange& code) const {
  return std::any_of(threads_.begin(), threads_.end(), [&](const auto& entry) {
    const Thread& other = *entry.second;
    if (other.run == Thread::Run::blocked || other.stop == Thread::Stop::exit) return false;
    return &other != &thread && other.process->gate == thread.process->gate && other.entry.rip >= code.start &&
           other.entry.rip <= code.end;
  });
}

// Code was mapped that nothing has run yet.
void Recorder::apply_plan(Process& process, const Mapping& mapping, const MappedFile& file) {
  if (process.gate && process.gate->slot()) {
    patcher_.apply_plan({process.pid, process.memory, *process.gate}, mapping, file);
  }
}

// Maps memory for trampolines within reach of `near`, if there is a gap. The thread must be rewound afterwards if it is
// at a syscall's entry, and its registers set if it is elsewhere. Fails if it was killed.
Result<void> Recorder::map_trampolines(Thread& thread, Address near) {
  const auto mappings = read_mappings(thread.process->pid);
  const auto at = mappings ? Gate::gap_near(*mappings, near) : std::nullopt;
  if (!at) return {};
  ASSIGN_OR_RETURN(const int64_t made,
                   calls_.make(*arena_, caller_of(thread), thread.entry, {map_trampolines_at(*at)}));
  if (made == static_cast<int64_t>(*at)) thread.process->gate->add_trampolines(thread.process->memory, *at);
  return {};
}

// ---- Records

void Recorder::break_gate(RecordedGate& gate) {
  gate.broken = true;
  gate.slot()->want_stop = gate::kServeNothing;
  add_unsure(*gate.unit, "the program wrote into the memory that it shares with the recorder: calls are missing");
}

// Takes what was served off the rings. It stays there until empty_ring().
std::vector<Recorder::Served> Recorder::take_served() {
  std::erase_if(gates_, [](const auto& gate) { return gate.expired(); });
  std::vector<Served> sources;
  const uint64_t now = arena_ ? arena_->now() : 0;
  for (const auto& known : gates_) {
    std::shared_ptr<RecordedGate> gate = known.lock();
    if (!gate || gate->broken) continue;
    auto taken = gate->reader.take(*gate->slot(), now);
    if (auto* const stretch = std::get_if<RingStretch>(&taken)) {
      const uint64_t cpu_ns = gate->unit->clock.interval_cpu_ns();
      sources.push_back({std::move(gate), std::move(*stretch), cpu_ns, nullptr});
    } else if (std::holds_alternative<RingReader::Broken>(taken)) {
      if (event_maker_) event_maker_->wait_until_idle();
      break_gate(*gate);
    }
  }
  return sources;
}

// The thread is stopped at a syscall, not amid the code that writes records. If no other of its unit runs user code,
// what was taken off its ring is gone.
void Recorder::empty_ring(const Thread& thread) {
  RecordedGate* const gate = thread.process->gate.get();
  if (gate && gate->slot() && thread.process->unit->baton.holder() == &thread) gate->reader.empty(*gate->slot());
}

// Goes to the next record, if what is there is the tier's: the program could have written there.
void Recorder::next_record(Served& served) {
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
void Recorder::drop(Served& served) {
  served.stretch.drop();
  break_gate(*served.gate);
}

Address Recorder::Served::site() const {
  const Address stop = stretch.record().site;
  const PatchedSite* const site = gate->come_by(stop);
  return site ? site->site : stop;
}

// Makes events of what was taken, in the order in which it happened.
void Recorder::make_events(std::vector<Served>& sources) {
  for (Served& served : sources) {
    begin_served(served);
    next_record(served);
  }
  for (;;) {
    Served* first = nullptr;
    for (Served& served : sources) {
      if (served.stretch.at_end()) continue;
      if (!first || served.stretch.stamp() < first->stretch.stamp()) first = &served;
    }
    if (!first) break;
    RingStretch& stretch = first->stretch;
    const gate::Record& record = stretch.record();
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

// All that was served so far becomes events.
void Recorder::drain() {
  if (event_maker_) event_maker_->wait_until_idle();
  auto sources = take_served();
  make_events(sources);
}

// All that was served so far becomes events on another processor, while the programs go on; or here, if it is much.
// Until then nothing but that looks at what is recorded.
void Recorder::make_events_behind() {
  event_maker_->wait_for_room();
  auto sources = take_served();
  if (sources.empty()) return;
  uint64_t size = 0;
  for (const Served& served : sources) size += gate::padded(served.stretch.bytes());
  if (size > StretchCopies::kMost) {
    event_maker_->wait_until_idle();
    make_events(sources);
    return;
  }
  copies_.begin_batch();
  for (Served& served : sources) copies_.add(served.stretch);
  event_maker_->add(std::move(sources));
}

// At a stop that came because the ring is full: the thread goes on and its call is served after all. Every other stop
// begins with drain().
bool Recorder::serve_again(Thread& thread) {
  RecordedGate* const gate = thread.process->gate.get();
  if (!event_maker_ || !gate || !gate->slot() || thread.run != Thread::Run::user) return false;
  const gate::Slot& slot = *gate->slot();
  const bool full = slot.phase == gate::Phase::outside && !slot.want_stop && slot.head >= gate::kRingSize / 2;
  user_regs_struct regs;
  if (!full || !tracer_.get_regs(thread.tid, regs)) return false;
  const Address stop = regs.rip - kSyscallSize;
  // Patches may be forgotten meanwhile: the slot knows from which trampoline it comes.
  if (stop != slot.site) return false;
  if (event_maker_->idle()) {  // else the next tick looks
    if (messages_.looks_for_place()) return false;
    if (checkpoint_due(*thread.process->unit)) {
      thread.process->unit->last_clock_check = {};  // it is to be asked again at once
      return false;
    }
  }
  make_events_behind();
  empty_ring(thread);
  regs.rip = arena_->header().entry;
  regs.rcx = stop;
  regs.rax = regs.orig_rax;
  regs.orig_rax = ~0ull;
  tracer_.set_regs(thread.tid, regs);
  set_slot(thread);
  resume(thread, Resume::cont);
  return true;
}

void Recorder::begin_served(const Served& served) {
  served.gate->unit->clock.begin_served(served.cpu_ns, served.stretch.calls(), limits_.replayed_call_ns);
}

// False if the call is none that is served: then the program wrote the record.
bool Recorder::open_served(Served& served) {
  Unit& unit = *served.gate->unit;
  const gate::Record& record = served.stretch.record();
  unit.clock.next_served();
  Thread& thread = *served.thread;
  set_at_exit(thread.entry, record, served.site());
  thread.resumed.rip = 0;
  thread.rewound = false;
  thread.args = syscall_args(thread.entry);
  thread.row = find_row(static_cast<int64_t>(thread.entry.orig_rax), thread.args);
  if (!thread.row || !thread.row->in_process) return false;
  const bool maps_file = thread.row->memory == MemoryChange::maps && !(thread.args[3] & MAP_ANONYMOUS);
  if (maps_file && !served_files_.contains(record.file - 1u)) return false;
  if (thread.row->treat == Treat::special) unit.clock.add_replay(limits_.replayed_stop_ns);
  open_call(thread, Memory::of(served.stretch.read()));
  return true;
}

// cpuid, rdtsc and rdtscp are no calls.
void Recorder::add_served_trap(Served& served) {
  Unit& unit = *served.gate->unit;
  const gate::Record& record = served.stretch.record();
  unit.clock.next_served();
  Thread& thread = *served.thread;
  thread.resumed.rip = 0;
  thread.rewound = false;
  const Address at = served.site();
  user_regs_struct before{};
  before.rip = at;
  if (!record.counter) {
    before.rax = record.regs.rdi;
    before.rcx = record.regs.rsi;
    user_regs_struct after = before;
    answer(cpuid_instruction(), after, answers_);
    add_trap(thread, cpuid_instruction(), before, after);
    return;
  }
  before.rax = record.regs.rax, before.rbx = record.regs.rbx;
  before.rcx = record.regs.rcx, before.rdx = record.regs.rdx;
  const PatchedSite* const patched = served.gate->come_by(record.site);
  const auto instruction = counter_instruction(instruction_size(patched ? patched->kind : SiteKind::rdtsc));
  user_regs_struct after = before;
  answer_counter(instruction, static_cast<uint64_t>(record.result), after);
  add_trap(thread, instruction, before, after);
}

void Recorder::close_served(const Served& served) {
  const gate::Record& record = served.stretch.record();
  const uint32_t times = read_once(record.repeat) & ~gate::kTaken;
  served.gate->unit->served_calls += times;
  const SyscallRow* const row = served.thread->row;
  if (row->treat == Treat::refuse) count_refusal(*served.thread, row, row->refusal);
  served.gate->forget_changed(row->special, served.thread->args, record.result);
  close_call(*served.thread, record.result, Memory::of(served.stretch.pieces()), &record, times,
             read_once(record.cycle));
}

}  // namespace redrive
