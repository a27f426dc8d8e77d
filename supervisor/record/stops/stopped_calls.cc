#include "supervisor/record/stops/stopped_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/disguise/adapted_opens.h"
#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/kernel/process_status.h"
#include "supervisor/record/memory/packet_rings.h"
#include "supervisor/record/memory/private_views.h"
#include "supervisor/record/placement/placer.h"
#include "supervisor/record/stops/births.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/checkpoint_copies.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/confined_calls.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/foreign_memory.h"
#include "supervisor/record/stops/hidden_copies.h"
#include "supervisor/record/stops/joiner.h"
#include "supervisor/record/stops/late_writes.h"
#include "supervisor/record/stops/layout_calls.h"
#include "supervisor/record/stops/lock_calls.h"
#include "supervisor/record/stops/native_state.h"
#include "supervisor/record/stops/object_sharing.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/step_handover.h"
#include "supervisor/record/stops/tracer_answers.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/stops/woken_calls.h"
#include "supervisor/record/tracees/call_paths.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Whether the call asks which processors a thread may run on, or runs on.
bool asks_processors(const SyscallRow& row) { return row.number == SYS_sched_getaffinity || row.number == SYS_getcpu; }

// Whether a copy would change what the call does: one that has memory mapped (fcntl(2), F_SEAL_WRITE; shmctl(2),
// shm_nattch), that is a process to which a signal is sent (kill(2)), or that has not left the group yet that the
// process leaves. Its end would orphan that, and the kernel hangs up on orphaned groups with stopped members
// (setpgid(2), _exit(2)).
bool shows_copies(const Thread& thread) {
  const auto& args = thread.call.args;
  switch (thread.call.row->number) {
    case SYS_setpgid:
    case SYS_setsid:
      return true;
    case SYS_fcntl:
      return args[1] == F_ADD_SEALS;
    case SYS_shmctl:
      return args[1] == IPC_STAT || args[1] == SHM_STAT || args[1] == SHM_STAT_ANY;
    case SYS_kill:
      return static_cast<pid_t>(args[0]) == -1;
    default:
      return false;
  }
}

// Whether the call may have failed because of copies: they count for limits of processes (getrlimit(2), RLIMIT_NPROC;
// cgroups(7), pids.max), and the files that they have mapped are in use.
bool may_fail_by_copies(const Thread& thread, int64_t result) {
  switch (thread.call.row->number) {
    case SYS_umount2:
    case SYS_mount:
    case SYS_mount_setattr:
      return result == -EBUSY;
    case SYS_fcntl:
      return thread.call.args[1] == F_SETLEASE && result == -EAGAIN;
    default:
      return is_birth(*thread.call.row) && result == -EAGAIN;
  }
}

// Whether the call ends the process, or executes a program, if it succeeds.
bool leaves_memory(const Thread& thread) {
  const Process& process = *thread.process;
  switch (thread.call.row->special) {
    case Special::exit:
      return process.threads - (process.leader_exited ? 1 : 0) == 1;
    case Special::exit_group:
      return true;
    default:
      return executes_program(*thread.call.row, thread.call.args);
  }
}

// What this process may not look into, if the call executes its program (ptrace(2), Ptrace access mode checking;
// execve(2) on files that cannot be read). Null if it may.
const char* unrecordable_program(const Thread& thread) {
  if (may_look_into_all()) return nullptr;
  if (!may_look_into(thread.process->pid)) return "to execute programs as another user";
  const std::string path = executed_path(thread);
  const bool unreadable = access(path.c_str(), X_OK) == 0 && access(path.c_str(), R_OK) != 0;
  return unreadable ? "to execute programs whose files cannot be read" : nullptr;
}

}  // namespace

void StoppedCalls::enter(Thread& thread) {
  Unit& unit = *thread.process->unit;
  thread.asked_to_stop = false;
  if (limits_.attached && is_foreign_call(thread.entry, thread.process->memory)) {
    refuse_foreign(thread);
    return;
  }
  thread.turns.comes_to_call();
  // A signal is delivered before the call. But a stop lets others run, which the log says only of calls: it is
  // delivered as if it had come during this one.
  const bool stops = thread.signals.begins_with_stop();
  if (!stops && signals_.raise_held(thread)) {
    control_.rewind(thread, thread.entry);
    return;
  }
  if (!thread.process->copies_to_reap.empty()) {
    copies_.reap(thread);
    return;
  }
  if (!unit.joining.empty()) joiner_.absorb(unit);
  const bool is_first_event = thread.has_made_no_event();
  const bool must_come = std::exchange(unit.checkpoint_first, false);
  // However short the period is, a call follows before the next checkpoint.
  const bool nothing_since =
      std::get<Thread::User>(thread.state).rewound && unit.log.next() == unit.interval_record.first_event;
  if (must_come || (!nothing_since && checkpointer_.is_due(unit))) {
    if (!must_come && limits_.virtual_checkpoints) {
      checkpointer_.note_checkpoint(*thread.process);
    } else {
      checkpointer_.checkpoint(thread);
      return;
    }
  }
  thread.disturbed |= thread.is_interrupted();  // that will wake it up
  ++unit.stopped_calls;
  thread.call.args = syscall_args(thread.entry);
  thread.call.goes_on = false;
  thread.call.row = find_row(static_cast<int64_t>(thread.entry.orig_rax), thread.call.args);
  foreign_.let_write(unit);
  PacketRings::take_back(*thread.process);
  if (!thread.process->written.empty()) {
    add_written(thread, before_syscall(thread.entry), SignalPoint::before_syscall);
  }
  if (confined_.forbidden(thread)) return;
  const RecordedGate* const gate = thread.process->gate.get();
  const bool changes_tier = gate && thread.call.row && gate->is_changed_by(thread.call.row->special, thread.call.args);
  if (native_.answers_rseq(thread)) {
    answer_call(thread, 0);
    return;
  }
  const bool executes = thread.call.row && executes_program(*thread.call.row, thread.call.args);
  if (const char* const what = executes ? unrecordable_program(thread) : nullptr) {
    findings_.count_refusal(unit, fmt::format("{}, because redrive lacks CAP_SYS_PTRACE", what),
                            std::string(error_name(EACCES)), false);
    answer_call(thread, -EACCES);
    return;
  }
  const Memory& memory = thread.process->memory;
  const bool described = thread.call.row && (is_described(*thread.call.row, thread.call.args, memory) || memory.gone());
  if (!described || thread.call.row->treat == Treat::refuse || !layout_.mappable(thread) || changes_tier) {
    refuse(thread, thread.call.row);
    return;
  }
  const SyscallRow& row = *thread.call.row;
  // The kernel applies the filters of a program that is attached to, so that it has them when it is let go.
  if (row.special == Special::seccomp && !limits_.attached) {
    confined_.confine(thread);
    return;
  }
  if (traced_.answer(thread)) return;
  if (Unit* const written = foreign_.written_unit(thread); written || row.special == Special::write_process) {
    foreign_.enter_write(thread, written);
    return;
  }
  const auto enter_again = [this](Thread& delayed) { control_.rewind(delayed, delayed.entry); };
  if (shows_copies(thread) && copies_.end_all()) {
    enter_again(thread);  // so that it waits for its own ones first, which a signal would still find
    return;
  }
  if (leaves_memory(thread) && copies_.delay(thread, enter_again)) return;
  if (Unit* other = object_sharing_.unit_to_join_for_change(thread)) {
    control_.set_regs(thread, before_syscall(thread.entry));
    joiner_.join_unit(thread, {Thread::Stop::start, true}, *other, objects_.find(thread.call.changes_object)->name);
    return;
  }
  // A page that a file loses is lost to the copies too.
  if (thread.call.changes_object && row.file_change != FileChange::writes) copies_.end_all();
  if (Unit* const looks = private_views_.unit_that_looks(thread)) {
    foreign_.enter_write(thread, looks);
    return;
  }
  const bool may_sleep = row.lock_word ? locks_.waits_for_lock(thread) : row.may_block;
  if (row.special == Special::mremap && gate) {
    thread.process->gate->put_back_moved(memory, thread.call.args);
    control_.set_regs(thread, thread.entry);  // this call's own instruction may be among them
  }
  events_.open_call(thread, Memory::snapshot(thread.process->memory));
  packet_rings_.replace(thread);
  // Others may use the number before its exit is seen.
  Messages::forget_closed(message_call(thread, thread.process->memory));
  if (row.special == Special::exit_group || row.special == Special::exit) {
    ends_.end_thread(thread, row.special == Special::exit_group);
    return;
  }
  if (executes) {
    intervals_.note_end_state(thread, before_syscall(thread.entry));
    thread.call.written_by_exec.clear();
    note_process_end(*thread.process, thread.call.written_by_exec);
  }
  thread.state = Thread::Syscall{};
  if (is_birth(row)) {
    births_.hide_untraced(thread);
    births_.see_birth(thread);
    return;
  }
  // Even a call that does not sleep lets others run after a while, or if the thread has made it again and again without
  // success, unless a replay executes it, at its end, or it changes memory that others see: others must find its
  // changes to memory complete. Nor may it kill them at some instruction. Its entry is logged first: what the thread
  // did before it stays before what the others do.
  const bool sleeps = may_sleep && !alone(unit), awaited = unit.baton.is_awaited();
  const bool turn_over = awaited && row.treat != Treat::special && !row.lock_word && !row.may_kill &&
                         (spins(thread) || tracer_.now() - unit.baton.since() > kBatonSlice);
  const bool wakes_waiter = row.wakes && unit.lock_turns.in_vain();
  // Or it goes on for some instructions after the call, and lets others run then.
  thread.call.goes_on = awaited && (turn_over || sleeps) && row.word_arg < 0 && !row.lock_word &&
                        unit.step_turns.take(thread.serial, tracer_.now(), limits_.first_steps);
  const bool lets_others_run =
      !thread.call.changes_object && (sleeps || (turn_over && !thread.call.goes_on) || wakes_waiter);
  if (row.word_arg >= 0) unit.lock_turns.sleeps(is_first_event, unit.baton.since(), tracer_.now());
  if (lets_others_run) thread.xstate = tracer_.get_xstate(thread.tid);
  woken_.enter(thread);
  HiddenCopies::enter(thread);
  // A signal that waits until the thread makes progress ends its sleep.
  if (may_sleep) thread.turns.got_on();
  if (stops || may_sleep) signals_.raise_held(thread);
  control_.resume(thread, Resume::to_syscall_exit);
  if (lets_others_run) {
    if (row.lock_word) locks_.let_sleep(thread);
    thread.state = Thread::Blocked{};
    if (wakes_waiter) {
      unit.lock_turns.handed_over(tracer_.now());
      unit.baton.keep_for_woken(thread);
    } else if (thread.call.goes_on) {
      unit.baton.keep_for(thread);
    }
    turns_.give_up(unit);
  }
}

void StoppedCalls::refuse(Thread& thread, const SyscallRow* row) {
  const auto number = static_cast<int64_t>(thread.entry.orig_rax);
  const auto reason = [&]() -> int {
    if (!row) return refusal_without_row(number);
    const bool recorded = row->treat != Treat::refuse && is_described(*row, thread.call.args, thread.process->memory);
    return recorded ? ENODEV : row->refusal;
  };
  const int error = reason();
  if (row && !layout_.mappable(thread)) {
    const std::string what = call_name(number, thread.call.args) + " of a device, a socket, or memory that can vanish";
    findings_.count_refusal(*thread.process->unit, what, std::string(error_name(error)), false);
  } else {
    findings_.count_refusal(thread, row, error);
  }
  answer_call(thread, -error);
}

// A call of a 32-bit program. Filters refuse them unseen, and so does a replay.
void StoppedCalls::refuse_foreign(Thread& thread) {
  findings_.count_foreign_calls(*thread.process);
  user_regs_struct regs = thread.entry;
  regs.orig_rax = ~0ull;
  regs.rax = static_cast<uint64_t>(-ENOSYS);
  control_.set_regs(thread, regs);
  control_.run_on(thread);
}

void StoppedCalls::answer_call(Thread& thread, int64_t result) {
  const SyscallRow* const row = thread.call.row;
  const bool ours = row && row->special == Special::seccomp;
  if (ours) events_.open_call(thread, thread.process->memory);
  Event& event = ours ? *thread.process->unit->log.open_of(thread.serial) : events_.open_event(thread);
  event.result = result;
  user_regs_struct regs = thread.entry;
  regs.orig_rax = ~0ull;
  regs.rax = static_cast<uint64_t>(result);
  // Without them a replay would execute the call.
  if (row && row->treat == Treat::special && !ours && !is_error(result))
    event.registers = RegisterFile{as_bytes(regs), {}};
  thread.process->unit->log.close(row && row->test);
  control_.set_regs(thread, regs);
  thread.turns.got_on();
  control_.resume_user(thread, regs);
}

void StoppedCalls::leave(Thread& thread) {
  user_regs_struct stopped;
  if (!tracer_.get_regs(thread.tid, stopped)) return;
  if (woken_.goes_on_if_woken(thread, static_cast<int64_t>(stopped.rax))) {
    turns_.give_up(*thread.process->unit);
    return;
  }
  user_regs_struct regs = stopped;
  const Gate* const gate = thread.process->tier();
  if (gate) gate->make_canonical(regs);
  if (thread.call.timeout.take_shortened()) {
    const int arg = thread.call.row->timeout_arg;
    syscall_arg(regs, arg) = thread.call.args[static_cast<size_t>(arg)];
    control_.set_regs(thread, regs);
  }
  adapted_.replace(thread, stopped, regs);
  if (thread.call.packet_ring) packet_rings_.replaced(thread, regs);
  if (std::exchange(thread.call.hides_untraced, false)) {
    if (thread.call.row->special == Special::clone) regs.rdi = thread.call.args[0];
    if (thread.call.row->special == Special::clone3) show_untraced(thread, thread.process->memory);
    control_.set_regs(thread, regs);
  }
  auto result = static_cast<int64_t>(regs.rax);
  const int64_t kernels = result;
  if (asks_processors(*thread.call.row) && result >= 0) result = placer_.answer_processors(thread, result);
  if (thread.call.row->special == Special::sched_setaffinity) result = placer_.move_to_processors(thread, result);
  if (result != kernels) {
    regs.rax = static_cast<uint64_t>(result);
    control_.set_regs(thread, regs);
  }
  bool changed = false;
  if (may_fail_by_copies(thread, result) && copies_.end_all()) {
    result = kErestartNoInterrupt;
    regs.rax = static_cast<uint64_t>(result);
    control_.set_regs(thread, regs);
    changed = true;
  }
  // What rt_sigreturn leaves in rax is not its own result.
  if (thread.call.row->special == Special::none &&
      (result = woken_.result(thread, HiddenCopies::result(thread, result))) != static_cast<int64_t>(regs.rax)) {
    regs.rax = static_cast<uint64_t>(result);
    control_.set_regs(thread, regs);
    changed = true;
  }
  // The kernel enters a call again only where it looks for signals. Others may have taken the one that woke the thread;
  // and where a socket fails a call with what has ended recvmmsg(2) before, nothing has woken it.
  const bool may_look_away = changed || thread.call.row->traffic != Traffic::none;
  if (may_look_away && restarts(result) && !thread.in_hand && regs.orig_rax != ~0ull) tracer_.interrupt(thread.tid);
  if (Unit* other = object_sharing_.unit_to_join(thread, result)) {
    joiner_.join_unit(thread, {Thread::Stop::exit}, *other, object_sharing_.name_of_mapping(thread, result));
    return;
  }
  if (thread.call.row->special == Special::sigreturn) {
    // A handler may have the program execute its code step by step.
    const bool steps = regs.eflags & kTrapFlag;
    if (steps && thread.process->gate) thread.process->gate->put_back_all(thread.process->memory);
    // It may return to an instruction that was replaced meanwhile.
    control_.set_regs(thread, regs);
    forced_.read_mask(thread);
    thread.turns.handler_returns(thread.entry.rsp);
    // The kernel returns 0, and forces SIGSEGV, if it cannot read the frame.
    const bool may_be_bad = regs.rax == 0;
    if (may_be_bad && (tracer_.signal_masks(thread.tid).pending & bit_of(SIGSEGV)))
      thread.process->false_faults.note_bad_frame();
    UnitLog& log = thread.process->unit->log;
    Event& event = log.closing(thread.serial, thread.call.row->number);
    event.registers = RegisterFile{as_bytes(regs), tracer_.get_xstate(thread.tid)};
    log.close(false);
  } else {
    if (thread.process->gate) thread.process->gate->forget_changed(thread.call.row->special, thread.call.args, result);
    events_.close_stopped(thread, result);
  }
  if (!limits_.traps.cpuid &&
      makes_writable_code(static_cast<uint64_t>(thread.call.row->number), thread.call.args[2])) {
    placer_.place_writer_of_code(*thread.process->unit);
  }
  PacketRings::show(*thread.process);
  thread.xstate.clear();
  const bool came_from_gate = regs.orig_rax == ~0ull;
  if (came_from_gate && restarts(result)) {  // otherwise the kernel does that
    regs = before_syscall(thread.entry);
    control_.set_regs(thread, regs);
  } else if (gate && gate->physical(regs.rip) != stopped.rip) {
    control_.set_regs(thread, regs);  // its site was patched meanwhile
  }
  if (const int signal = std::exchange(thread.in_hand, 0)) {
    control_.runs_from(thread, regs);
    signals_.deliver(thread, signal, regs, static_cast<uint64_t>(SignalPoint::boundary));
    return;
  }
  const bool disturbed = signals_.raise_held(thread) || restarts(result) || control_.parks();
  if (std::exchange(thread.call.goes_on, false) && thread.process->unit->baton.is_awaited() && !disturbed) {
    handover_.go_on(thread, regs);
  } else {
    control_.resume_user(thread, regs);
  }
}

}  // namespace redrive
