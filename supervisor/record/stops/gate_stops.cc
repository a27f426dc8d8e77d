#include "supervisor/record/stops/gate_stops.h"

#include <sys/syscall.h>

#include <algorithm>
#include <utility>

#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/foreign_memory.h"
#include "supervisor/record/stops/loop_handover.h"
#include "supervisor/record/stops/served_calls.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/stopped_calls.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/stops/woken_calls.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {

// The kernel may have written before a signal ended the call that is being served. When the call is made again, it must
// find what it found before.
void GateStops::undo_writes(const Process& process) {
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

void GateStops::leave_gate(Thread& thread) {
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

bool GateStops::leave_after_fault(Thread& thread) {
  gate::Slot* const slot = slot_of(thread);
  if (!slot || slot->phase != gate::Phase::after) {
    leave_gate(thread);
    control_.run_on(thread);
    return true;
  }
  const auto made = RingReader::current(*slot);
  const int64_t result = made ? read_once(made->record().result) : 0;
  if (!open_in_slot(thread)) return false;
  set_result(thread, result);
  stopped_calls_.leave(thread);
  return true;
}

void GateStops::cancel_pending(Thread& thread) {
  RecordedGate& gate = *thread.process->gate;
  if (!gate.reader.cancel_entry()) return;
  messages_.end_send(thread.call.sending, -EINTR);
  gate.unit->log.cancel();
}

void GateStops::take_from_sleeper(Unit& unit) {
  Thread* const holder = unit.baton.holder();
  gate::Slot* const slot = holder ? slot_of(*holder) : nullptr;
  if (!slot) return;
  __atomic_store_n(&slot->others_wait, 1, __ATOMIC_SEQ_CST);
  if (!holder->is<Thread::User>()) return;
  uint64_t asleep = read_once(slot->asleep);
  if (!asleep || !__atomic_compare_exchange_n(&slot->asleep, &asleep, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    return;
  }
  RecordedGate& gate = *holder->process->gate;
  served_.check_taken_back();
  served_.drain();
  const bool at_once = holder->has_made_no_event();
  if (gate.broken || !open_in_slot(*holder)) return;
  if (holder->call.row->word_arg >= 0) unit.lock_turns.sleeps(at_once, unit.baton.since(), tracer_.now());
  holder->state = Thread::Blocked{true};
  unit.baton.give_up();
}

void GateStops::note_sleep(Thread& thread) {
  const gate::Slot* const slot = slot_of(thread);
  if (!slot || slot->phase != gate::Phase::kernel) return;
  const uint64_t sleep = read_once(slot->sleeps);
  if (std::exchange(thread.seen_sleep, sleep) != sleep) thread.seen_asleep_at = tracer_.now();
}

// The call that the thread makes in the gate, with all before it drained, becomes one that stops: its entry is logged,
// and the slot is free. False if the program has written there.
bool GateStops::open_in_slot(Thread& thread) {
  RecordedGate& gate = *thread.process->gate;
  gate::Slot& slot = *gate.slot();
  Unit& unit = *thread.process->unit;
  if (auto entry = gate.reader.take_entry(slot)) {
    served_.check_taken_back();
    ServedCalls::Served served{thread.process->gate, std::move(*entry), {{0, unit.clock.interval_cpu_ns()}}, nullptr};
    served_.begin_served(served);
    served_.next_record(served);
    const bool opened = !served.stretch.at_end() && served.thread == &thread && served_.open_served(served);
    unit.clock.end_served();
    if (!opened) {
      served_.break_gate(gate);
      return false;
    }
  }
  if (thread.taken_during != slot.sleeps) thread.call.taken_before = thread.process->taken;
  thread.call.timeout.entered_at(thread.seen_sleep == slot.sleeps ? thread.seen_asleep_at : tracer_.now());
  slot.phase = gate::Phase::outside;
  slot.pending = slot.series = 0;
  user_regs_struct& entry = thread.entry;
  const user_regs_struct& resumed = std::get<Thread::User>(thread.state).from;
  entry.cs = resumed.cs, entry.ss = resumed.ss;
  entry.ds = resumed.ds, entry.es = resumed.es, entry.fs = resumed.fs, entry.gs = resumed.gs;
  entry.rax = static_cast<uint64_t>(-ENOSYS);
  Messages::forget_closed(message_call(thread, thread.process->memory));
  return true;
}

// Whether the thread, which has the baton, has just made the call of its slot, and not another one of the gate's.
bool GateStops::is_in_call(const Thread& thread, user_regs_struct regs) const {
  const gate::Slot* const slot = slot_of(thread);
  if (!slot || regs.rip != arena_->header().executed || slot->phase != gate::Phase::kernel ||
      thread.process->gate->broken) {
    return false;
  }
  const auto made = syscall_args(regs);
  const bool same_args = std::equal(made.begin(), made.end(), &slot->regs.rdi);
  return same_args && (regs.orig_rax == slot->regs.rax || regs.orig_rax == SYS_restart_syscall);
}

bool GateStops::goes_on(Thread& thread) {
  user_regs_struct regs;
  if (!slot_of(thread) || !tracer_.get_regs(thread.tid, regs) || regs.rip != arena_->header().executed) return false;
  const bool has_baton = !thread.sleeps_in_served_call();
  if (has_baton && !is_in_call(thread, regs)) return false;
  const uint64_t number = has_baton ? regs.orig_rax : thread.entry.orig_rax;
  const auto args = has_baton ? syscall_args(regs) : thread.call.args;
  const auto result = static_cast<int64_t>(regs.rax);
  if (!WokenCalls::is_cut_short(static_cast<int64_t>(number), args, thread.process->memory, result)) return false;
  if (!has_baton) return woken_.goes_on(thread, result);
  if (!open_in_slot(thread)) return false;
  slot_of(thread)->asleep = 0;
  if (woken_.goes_on(thread, result)) {
    turns_.give_up(*thread.process->unit);
  } else {
    set_result(thread, result);
    stopped_calls_.leave(thread);
  }
  return true;
}

// The call, which is in no slot any more, ends with this result.
void GateStops::set_result(Thread& thread, int64_t result) {
  user_regs_struct regs = thread.entry;
  regs.rax = static_cast<uint64_t>(result);
  control_.set_regs(thread, regs);
}

// The result with which a call ends that a signal or the recorder has cut short: it says what the kernel does next. The
// thread is stopped right after the instruction that has made the call; or not yet there, if the slot was taken from it
// before. Nothing for the gate's own calls, and for one that it has tried without a timeout.
std::optional<int64_t> GateStops::cut_short_with(const Thread& thread, const user_regs_struct& regs) const {
  if (!in_gate(thread, regs.rip)) return {};
  const auto result = static_cast<int64_t>(regs.rax);
  const gate::Header& at = arena_->header();
  const bool interrupted = restarts(result) || result == -EINTR;
  if (thread.sleeps_in_served_call()) {
    if (regs.rip >= at.sleeps && regs.rip < at.executed) return kErestartNoInterrupt;
    return regs.rip == at.executed && interrupted ? std::optional(result) : std::nullopt;
  }
  if (!interrupted || !is_in_call(thread, regs)) return {};
  const gate::Slot* const slot = slot_of(thread);
  user_regs_struct at_call = regs;
  const auto* const row = find_row(static_cast<int64_t>(slot->regs.rax), syscall_args(at_call));
  const bool ends = restarts(result) || (row && row->may_block);
  return ends ? std::optional(result) : std::nullopt;
}

bool GateStops::end_cut_short(Thread& thread, int signal) {
  user_regs_struct stopped;
  if (!tracer_.get_regs(thread.tid, stopped)) return false;
  const auto result = cut_short_with(thread, stopped);
  if (!result) return false;
  const bool had_baton = !thread.sleeps_in_served_call();
  if (had_baton) {
    if (!open_in_slot(thread)) return false;
    thread.process->gate->slot()->asleep = 0;
  }
  (signal == 0 ? thread.woken : thread.disturbed) = true;
  thread.in_hand = signal;
  set_result(thread, *result);
  if (had_baton) {
    stopped_calls_.leave(thread);
  } else {
    turns_.take_or_queue(thread, {Thread::Stop::exit});
  }
  return true;
}

void GateStops::woke(Thread& thread, const user_regs_struct& stopped) {
  user_regs_struct regs = thread.entry;
  regs.rax = stopped.rdi;
  regs.orig_rax = ~0ull;
  control_.set_regs(thread, regs);
  turns_.take_or_queue(thread, {Thread::Stop::exit});
}

void GateStops::disturb(Thread& thread, bool comes_out, int signal) {
  const bool seen = signal && comes_out;  // by the program
  if (!seen && goes_on(thread)) return;
  if (comes_out && end_cut_short(thread, signal)) return;
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return;
  bool& ended = signal == 0 ? thread.woken : thread.disturbed;
  ended |= cut_short_with(thread, regs) == -EINTR;  // otherwise the kernel continues the call by itself
  if (!comes_out) {
    control_.resume(thread, Resume::cont, signal);
    return;
  }
  if (siginfo_t info{}; signal && tracer_.get_siginfo(thread.tid, info)) thread.signals.hold(info, tracer_.now());
  control_.run_on(thread);
}

// Whether the call of the thread's slot may have been made, and is not in the ring yet.
bool GateStops::may_be_making(const Thread& thread, const user_regs_struct& regs) const {
  const gate::Slot& slot = *thread.process->gate->slot();
  if (slot.making != slot.head + 1 || thread.process->gate->broken) return false;
  return slot.phase == gate::Phase::after || is_in_call(thread, regs);
}

std::optional<Address> GateStops::call_at_end(Thread& thread, const user_regs_struct& regs) {
  const gate::Slot* const slot = slot_of(thread);
  if (!slot) return {};
  const gate::Header& at = arena_->header();
  const bool enters = slot->phase == gate::Phase::outside && regs.rip >= at.entry && regs.rip < at.leave;
  const bool made = !enters && slot->target != slot->site;
  const PatchedSite* const site = thread.process->gate->come_by(enters ? regs.rcx : slot->site);
  if (made || !site || site->kind != SiteKind::syscall) return {};
  if (!may_be_making(thread, regs)) return site->site;
  if (open_in_slot(thread)) thread.state = Thread::Syscall{};
  return {};
}

void GateStops::at_boundary(Thread& thread, user_regs_struct regs) {
  gate::Slot& slot = *thread.process->gate->slot();
  slot.phase = gate::Phase::outside;
  if (const uint64_t times = std::exchange(slot.looped, 0)) return loops_.waits(thread, regs, times);
  regs.rax = slot.regs.rax;
  regs.orig_rax = ~0ull;
  regs.rip = regs.rcx = slot.site + kSyscallSize;
  regs.eflags = regs.r11 = slot.regs.flags;
  tracer_.set_regs(thread.tid, regs);
  thread.process->gate->make_canonical(regs);
  if (thread.call.row) foreign_.note_descriptors(thread, static_cast<int64_t>(regs.rax));
  signals_.raise_held(thread);
  control_.resume_user(thread, regs);
}

}  // namespace redrive
