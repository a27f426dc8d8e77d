#include "supervisor/record/stops/signal_delivery.h"

#include <sys/ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/code/vdso_patch.h"
#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/stops/checkpoint_copies.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/gate_stops.h"
#include "supervisor/record/stops/signal_frames.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/stops/trap_answers.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kMaxFrame = 64 << 10;

constexpr uint64_t kContextSize = 304;  // of the kernel's ucontext (asm-generic/ucontext.h), not the C library's

enum class Disposition { ignored, caught, stops, ends };

// What a process with these masks does about a signal that is delivered to it (signal(7)).
Disposition disposition(const SignalMasks& masks, int signal) {
  const uint64_t bit = bit_of(signal);
  if (masks.ignored & bit) return Disposition::ignored;
  if (masks.caught & bit) return Disposition::caught;
  // Signals that it does not catch do nothing to it.
  if (masks.init && signal != SIGKILL && signal != SIGSTOP) return Disposition::ignored;
  switch (signal) {
    case SIGCHLD:
    case SIGCONT:
    case SIGURG:
    case SIGWINCH:
      return Disposition::ignored;
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
      return Disposition::stops;
    default:
      return Disposition::ends;
  }
}

bool equal(const user_regs_struct& a, const user_regs_struct& b) {
  // orig_rax changes on the way to user code.
  user_regs_struct x = a, y = b;
  x.orig_rax = y.orig_rax = 0;
  return std::memcmp(&x, &y, sizeof x) == 0;
}

// The signal frame that the kernel put at the handler's stack pointer, FP state included (asm/sigcontext.h).
uint64_t frame_size(const Memory& memory, Address sp) {
  ucontext_t context;
  if (!memory.get(sp + sizeof(uint64_t), context)) return 0;
  const auto fp = reinterpret_cast<Address>(context.uc_mcontext.fpregs);
  constexpr uint64_t kSoftwareReserved = 464;  // in the FXSAVE area: magic, extended size
  uint32_t reserved[2] = {};
  constexpr uint32_t kMagic = 0x46505853;  // FP_XSTATE_MAGIC1
  if (fp < sp || fp - sp > kMaxFrame || !memory.get(fp + kSoftwareReserved, reserved)) return sizeof context + 136;
  const uint64_t size = reserved[0] == kMagic ? reserved[1] : 512;
  return std::min(fp - sp + size, kMaxFrame);
}

// The handler that begins with this stack pointer shall not return into the patch.
void leave_patch(const VdsoPatch& patch, const Memory& memory, Address sp) {
  SavedRegisters saved{};
  const Address at = saved_registers(sp);
  if (memory.get(at, saved) && patch.move_out(memory, saved.rip, saved.rsp)) memory.put(at, saved);
}

// Call this before a thread of the process is counted that has taken a signal. The thread with the baton may sleep in a
// served call, whose beginning nobody has seen.
void note_before_taking(const Process& process) {
  Thread* const holder = process.unit->baton.holder();
  if (!holder || holder->process != &process || !holder->is<Thread::User>()) return;
  const gate::Slot* const slot = slot_of(*holder);
  const uint64_t sleep = slot ? read_once(slot->asleep) : 0;
  if (sleep && std::exchange(holder->taken_during, sleep) != sleep) holder->call.taken_before = process.taken;
}

}  // namespace

bool is_ignored(const SignalMasks& masks, int signal) { return disposition(masks, signal) == Disposition::ignored; }

void SignalDelivery::handle(Thread& thread, int signal) {
  user_regs_struct regs;
  siginfo_t info{};
  if (!control_.get_regs(thread, regs) || !tracer_.get_siginfo(thread.tid, info)) return;
  if (info.si_signo != signal) return;  // it was killed meanwhile, and has stopped once more to report that
  const bool ready = thread.is<Thread::User>() || thread.sleeps_in_served_call();
  bool raised = false;  // by the recorder, at an event, whatever its cause was
  if (ready && info.si_code == SI_TKILL && (info.si_pid == getpid() || info.si_pid == 0)) {
    if (const auto was = thread.signals.arrived(signal)) {
      raised = true;
      info = *was;
      signal = info.si_signo;
      tracer_.set_siginfo(thread.tid, info);
    }
  } else if (signal == SIGCONT) {
    forget_stops(*thread.process);
  }
  const bool caused = !raised && thread.process->false_faults.caused_by_instruction(info);  // by an instruction
  std::optional<SignalMasks> known;
  const auto masks = [&]() -> const SignalMasks& {
    if (!known) known = tracer_.signal_masks(thread.process->pid);
    return *known;
  };
  if (!raised && thread.process->threads > 1 && info.si_code != SI_TKILL && !caused) {
    note_before_taking(*thread.process);
    TakenSignals& taken = thread.process->taken;
    ++(is_ignored(masks(), signal) ? taken.ignored : taken.others);
  }
  if (thread.sleeps_in_served_call() && !caused) {
    gate_stops_.disturb(thread, !is_ignored(masks(), signal), signal);
    return;
  }
  if (thread.call.transfers_rest()) {
    // It would end the call that transfers the rest.
    if (!is_ignored(masks(), signal)) thread.signals.hold(info, tracer_.now());
    control_.resume(thread, Resume::to_syscall_exit);
    return;
  }
  if (!thread.is<Thread::User>()) {
    // It is in the kernel, on its way out, and the signal comes again after the syscall's exit; or it is the launcher.
    control_.resume(thread, thread.is<Thread::Starting>() ? Resume::cont : Resume::to_syscall_exit, signal);
    return;
  }
  thread.process->false_faults.take(info);
  if (caused && in_gate(thread, regs.rip) && gate_stops_.leave_after_fault(thread)) return;
  if (caused && signal == SIGTRAP && info.si_code == TRAP_TRACE && ends_step(thread, regs)) return;
  if (caused && (signal == SIGSEGV || signal == SIGILL) && traps_.answer_instruction(thread, signal, regs)) return;
  if (caused) {
    deliver(thread, signal, regs, static_cast<uint64_t>(SignalPoint::fault), MissingMemory::of(info));
    return;
  }
  const auto& user = std::get<Thread::User>(thread.state);
  const bool at_event = equal(regs, user.from);
  const auto point = !at_event      ? SignalPoint::anywhere
                     : user.rewound ? SignalPoint::before_syscall
                                    : SignalPoint::boundary;
  const bool overtakes = !raised && thread.signals.overtakes(info);
  const bool its_turn = caused_by_instruction(info) || (!overtakes && !thread.turns.must_wait(info));
  if (at_event && its_turn) {
    deliver(thread, signal, regs, static_cast<uint64_t>(point));
    return;
  }
  if (!at_event && is_ignored(masks(), signal) && gate_stops_.goes_on(thread)) return;
  if (!at_event && gate_stops_.end_cut_short(thread, signal)) return;
  const Disposition what = disposition(masks(), signal);
  // A stop lets other threads run, other units join this one, and others write into its memory. The end of a process
  // lets others that share its memory run. All of this happens at events.
  const bool shared = thread.process->unit->processes.size() > 1;
  const bool concerns_others = what == Disposition::stops || (what == Disposition::ends && shared);
  if (what != Disposition::caught && (at_event || !concerns_others)) {
    deliver(thread, signal, regs, static_cast<uint64_t>(point));
    return;
  }
  thread.signals.hold(info, tracer_.now());
  ask_to_stop(thread);
  gate_stops_.leave_gate(thread);
  if (at_event && overtakes) raise_held(thread);
  control_.run_on(thread);
}

// A step of a program that executes its code step by step has ended (the trap flag is set). True if that was a jump to
// what stands in for an instruction: it has yet to be executed, and the thread runs on. From now on no instruction is
// replaced there.
bool SignalDelivery::ends_step(Thread& thread, const user_regs_struct& regs) {
  RecordedGate* const gate = thread.process->gate.get();
  user_regs_struct stopped;
  if (!gate || !tracer_.get_regs(thread.tid, stopped)) return false;
  const bool jumped = gate->begins_trampoline(stopped.rip);
  gate->put_back_all(thread.process->memory);
  control_.set_regs(thread, regs);
  if (jumped) control_.run_on(thread);
  return jumped;
}

// Nothing is to be done about the signal, but the kernel stops a thread that is traced for it. If it happens a second
// time without an event between, it might happen for ever.
void SignalDelivery::ignore(Thread& thread, int signal) {
  const bool again = thread.turns.has_had(signal);
  thread.turns.has_now(signal);
  if (again) ask_to_stop(thread);
  gate_stops_.leave_gate(thread);
  control_.run_on(thread, again ? signal : 0);
}

void SignalDelivery::stop_with_group(Thread& thread) {
  Unit& unit = *thread.process->unit;
  user_regs_struct regs;
  const bool gives_up = thread.is<Thread::User>() && tracer_.get_regs(thread.tid, regs) && !in_gate(thread, regs.rip);
  if (gives_up) {
    if (thread.process->tier()) thread.process->tier()->make_canonical(regs);
    thread.entry = after_restart(regs);
    thread.xstate = tracer_.get_xstate(thread.tid);
    thread.state = Thread::GroupStopped{std::get<Thread::User>(thread.state).rewound};
  }
  tracer_.listen(thread.tid);
  if (gives_up) turns_.give_up(unit);
}

void SignalDelivery::deliver(Thread& thread, int signal, const user_regs_struct& regs, uint64_t where,
                             const std::optional<MissingMemory>& missing) {
  Unit& unit = *thread.process->unit;
  Disposition what = disposition(tracer_.signal_masks(thread.process->pid), signal);
  // A fault ends the first process of a PID namespace as well, but not while it is traced (force_sig(),
  // kernel/signal.c).
  const bool spared = what == Disposition::ignored && where == static_cast<uint64_t>(SignalPoint::fault);
  if (spared) what = Disposition::ends;
  if (what == Disposition::stops) {
    gate_stops_.leave_gate(thread);
    control_.resume(thread, Resume::cont, signal);
    return;
  }
  if (what == Disposition::ignored) {
    ignore(thread, signal);
    return;
  }
  const auto deliver_then = [this, signal, regs, where, missing](Thread& delayed) {
    deliver(delayed, signal, regs, where, missing);
  };
  if (what == Disposition::ends && copies_.delay(thread, deliver_then)) return;
  Event event;
  event.kind = EventKind::signal;
  event.thread = thread.serial;
  event.number = signal;
  event.ip = regs.rip;
  event.args[0] = where;
  if (missing) {
    missing->note(event);
    if (missing->may_be_there()) unit.clock.add_replay(limits_.replayed_fault_ns);
  }
  if (what == Disposition::ends) {
    event.fatal = true;
    if (where == static_cast<uint64_t>(SignalPoint::fault)) intervals_.note_end_state(thread, regs);
    // The process's other threads hold their locks until it ends, which is now.
    ends_.note_late_writes(*thread.process, event.writes);
    unit.log.add(std::move(event));
    thread.process->end_logged = true;
    if (spared) tracer_.send(thread.process->pid, SIGKILL);
    control_.resume(thread, Resume::cont, signal);
    return;
  }
  thread.call.timeout.forget();
  // Single-stepping into a handler stops right before its first instruction.
  control_.resume(thread, Resume::step, signal);
  const auto stop = ends_.wait_stop(thread.tid);
  if (!stop) return;
  const auto* const stepped = std::get_if<SignalStop>(&*stop);
  siginfo_t info{};
  tracer_.get_siginfo(thread.tid, info);
  const bool trapped = stepped && stepped->signal == SIGTRAP;
  user_regs_struct handler;
  if (!stepped || (trapped && info.si_code != SIGTRAP)) {
    // The thread blocks the signal right now, because a handler runs already: the kernel keeps it, and the thread ran
    // on to here.
    std::get<Thread::User>(thread.state).rewound = false;
    if (!stepped) {
      handler_.handle(thread, *stop);
    } else if (tracer_.get_regs(thread.tid, handler) && forced_.undo_forced(thread, SIGTRAP, handler)) {
      control_.run_on(thread);
    }
    return;
  }
  if (!trapped) {
    // The stack has no room for the frame: the kernel forces SIGSEGV, at the same place. Or the thread blocks the
    // signal right now, and stops for another one.
    uint64_t blocked = 0;
    tracer_.get_signal_mask(thread.tid, blocked);
    if (blocked & bit_of(signal)) {
      handle(thread, stepped->signal);
    } else {
      deliver(thread, stepped->signal, regs, where, missing);
    }
    return;
  }
  if (!control_.get_regs(thread, handler)) return;
  thread.turns.handler_starts(signal, handler.rsp, where == static_cast<uint64_t>(SignalPoint::before_syscall));
  forced_.handler_starts(thread, signal);
  const Memory& memory = thread.process->memory;
  if (const auto& patch = thread.process->vdso_patch) leave_patch(*patch, memory, handler.rsp);
  if (const Gate* gate = thread.process->gate.get()) {
    // The frame must say where the program would be if it were not patched.
    const Address frame = handler.rsp + sizeof(uint64_t);
    const Address rip = frame + offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]);
    const Address rcx = frame + offsetof(ucontext_t, uc_mcontext.gregs[REG_RCX]);
    user_regs_struct saved{};
    const bool known = memory.get(rip, saved.rip) && memory.get(rcx, saved.rcx);
    const Address ip = saved.rip;
    if (known) gate->make_canonical(saved);
    if (saved.rip != ip) memory.put(rip, saved.rip), memory.put(rcx, saved.rcx);
    // For some faults the kernel names the instruction (sigaction(2), si_addr), in the frame after the context.
    const Address named = frame + kContextSize + offsetof(siginfo_t, si_addr);
    Address fault = 0;
    if (saved.rip != ip && memory.get(named, fault) && fault == ip) memory.put(named, saved.rip);
  }
  MemoryWrite frame{handler.rsp, frame_size(memory, handler.rsp), MemoryWrite::Kind::data, {}};
  frame.data.resize(frame.length);
  if (!memory.read(frame.address, frame.data.data(), frame.length))
    findings_.add_unsure(unit, "a signal frame could not be read");
  event.writes.push_back(std::move(frame));
  event.registers = RegisterFile{as_bytes(handler), tracer_.get_xstate(thread.tid)};
  unit.log.add(std::move(event));
  // The kernel makes the frames of all that may come before the first handler runs.
  raise_held(thread);
  control_.resume_user(thread, handler);
}

bool SignalDelivery::raise_caught(Thread& thread, const siginfo_t& info) {
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  const uint64_t bit = bit_of(info.si_signo);
  if (!(masks.caught & bit) || (masks.blocked & bit)) return false;
  return thread.signals.raise(tracer_, thread.process->pid, thread.tid, info);
}

bool SignalDelivery::raise_held(Thread& thread) {
  return thread.signals.raise(tracer_, thread.process->pid, thread.tid, thread.turns);
}

void SignalDelivery::pass_on_held(Thread& thread) {
  const auto lives = [&](const auto& entry) {
    return entry.second != &thread && entry.second->process == thread.process && !entry.second->exited;
  };
  const auto& threads = thread.process->unit->threads;
  const auto other = std::find_if(threads.begin(), threads.end(), lives);
  for (const auto& info : thread.signals.take_for_process()) {
    if (other == threads.end()) continue;
    other->second->signals.raise(tracer_, thread.process->pid, other->second->tid, info);
  }
}

// SIGCONT has come: held stops of the process are dropped.
void SignalDelivery::forget_stops(const Process& process) {
  for (const auto& [serial, thread] : process.unit->threads) {
    if (thread->process == &process) thread->signals.forget_stops();
  }
}

}  // namespace redrive
