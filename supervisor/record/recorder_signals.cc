// Signals and trapped instructions. A signal handler starts at an event: right behind one, before a syscall, or at a
// fault. What the kernel does to start it (frame, registers) is recorded, so replay needs no signals.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "checkpoint/address_space.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/recorder.h"
#include "supervisor/record/robust_futexes.h"
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
  // What it does not catch cannot hurt it.
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

}  // namespace

void Recorder::handle_signal(Thread& thread, int signal) {
  user_regs_struct regs;
  siginfo_t info{};
  if (!get_regs(thread, regs) || !tracer_.get_siginfo(thread.tid, info)) return;
  if (info.si_signo != signal) return;  // it was killed meanwhile, and has stopped once more to report that
  const bool ready = thread.run == Thread::Run::user || thread.asleep;
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
  if (thread.asleep && !caused_by_instruction(info)) {
    disturb(thread, disposition(tracer_.signal_masks(thread.process->pid), signal) != Disposition::ignored, signal);
    return;
  }
  if (thread.run != Thread::Run::user) {
    // In the kernel: it is on its way out, and this comes again behind the syscall's exit; or the launcher was hit.
    resume(thread, thread.run == Thread::Run::starting ? Resume::cont : Resume::to_syscall_exit, signal);
    return;
  }
  const bool faulted = !raised && caused_by_instruction(info);
  if (faulted && in_gate(thread, regs.rip)) {
    // The call's arguments name memory that cannot be read: the kernel shall say so.
    leave_gate(thread);
    resume(thread, Resume::cont);
    return;
  }
  if (faulted && (signal == SIGSEGV || signal == SIGILL) && answer_trapped_instruction(thread, signal, regs)) return;
  if (faulted) {
    deliver(thread, signal, regs, static_cast<uint64_t>(SignalPoint::fault));
    return;
  }
  const bool at_event = equal(regs, thread.resumed);
  if (at_event) {
    const auto point = thread.rewound ? SignalPoint::before_syscall : SignalPoint::boundary;
    deliver(thread, signal, regs, static_cast<uint64_t>(point));
    return;
  }
  if (end_cut_short(thread, signal)) return;
  const Disposition what = disposition(tracer_.signal_masks(thread.process->pid), signal);
  // A stop lets others run, and the end of a process others that share its memory: their order is that of events.
  const Unit& unit = *thread.process->unit;
  const bool waits = what == Disposition::caught || (what == Disposition::stops && !alone(unit)) ||
                     (what == Disposition::ends && unit.processes.size() > 1);
  if (!waits) {
    deliver(thread, signal, regs, static_cast<uint64_t>(SignalPoint::anywhere));
    return;
  }
  thread.signals.hold(info, tracer_.now());
  ask_to_stop(thread);
  leave_gate(thread);
  resume(thread, Resume::cont);
}

// A tracee is woken by signals that it ignores, too, and by its tracer. The kernel then enters most calls again, but
// some fail with EINTR (ptrace(2), BUGS; epoll_wait(2), rt_sigtimedwait(2), semop(2), sockets with a timeout). With
// this result the kernel does the same with them: it enters the call again, or makes it EINTR if a handler runs now.
// Their timeout goes on, but that of a socket begins anew.
int64_t Recorder::result_of_woken(Thread& thread, int64_t result) {
  const bool woken = std::exchange(thread.woken, false);
  // Behind a handler the kernel has nothing to restart, and says so with EINTR, woken or not.
  if (result != -EINTR || thread.entry.orig_rax == SYS_restart_syscall) return result;
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  if (!woken && !(masks.pending & ~masks.blocked)) return result;
  thread.timeout.enters_again({thread.row, thread.args, thread.process->memory});
  return kErestartNoHandler;
}

// At the entry of a call: if it was woken and is entered again, the kernel is given what is left of its timeout.
void Recorder::shorten_timeout(Thread& thread) {
  const auto left = thread.timeout.enter({thread.row, thread.args, thread.process->memory}, tracer_.now());
  if (!left) return;
  user_regs_struct regs = thread.entry;
  syscall_arg(regs, thread.row->timeout_arg) = *left;
  set_regs(thread, regs);
}

// At its exit: the program finds its own again. A checkpoint may have come meanwhile, so the event says that, too.
void Recorder::restore_timeout(Thread& thread, Event& event) {
  const auto own = thread.timeout.take_own();
  if (!own) return;
  thread.process->memory.put(own->at, own->timeout);
  const auto* const first = reinterpret_cast<const uint8_t*>(&own->timeout);
  event.writes.push_back(
      {own->at, sizeof own->timeout, MemoryWrite::Kind::data, Bytes(first, first + sizeof own->timeout)});
}

// The thread's group stops, and it is the thread's turn to, if that is not over yet. Its threads that wait for the
// baton must have it to stop as well. Whoever else is in the unit goes on.
void Recorder::stop_with_group(Thread& thread) {
  Unit& unit = *thread.process->unit;
  user_regs_struct regs;
  const bool gives_up = thread.run == Thread::Run::user && !alone(unit) && tracer_.get_regs(thread.tid, regs) &&
                        !in_gate(thread, regs.rip);
  if (gives_up) {
    if (thread.process->tier()) thread.process->tier()->make_canonical(regs);
    thread.entry = after_restart(regs);
    thread.xstate = tracer_.get_xstate(thread.tid);
    thread.run = Thread::Run::stopped;
  }
  tracer_.listen(thread.tid);
  if (gives_up) give_up_baton(unit);
}

void Recorder::deliver(Thread& thread, int signal, const user_regs_struct& regs, uint64_t where) {
  Unit& unit = *thread.process->unit;
  Disposition what = disposition(tracer_.signal_masks(thread.process->pid), signal);
  // A fault ends the first process of a PID namespace as well, but not while it is traced (force_sig(),
  // kernel/signal.c).
  const bool spared = what == Disposition::ignored && where == static_cast<uint64_t>(SignalPoint::fault);
  if (spared) what = Disposition::ends;
  if (what == Disposition::ignored || what == Disposition::stops) {
    leave_gate(thread);
    resume(thread, Resume::cont, signal);
    return;
  }
  Event event;
  event.kind = EventKind::signal;
  event.thread = thread.serial;
  event.number = signal;
  event.ip = regs.rip;
  event.args[0] = where;
  if (what == Disposition::ends) {
    event.fatal = true;
    if (where == static_cast<uint64_t>(SignalPoint::fault)) note_end_state(thread, regs);
    // The others of the process hold their locks until it ends, which is now.
    for (const auto& [serial, other] : unit.threads) {
      if (other->process == thread.process && unit.processes.size() > 1) note_thread_end(*other, true, event);
    }
    unit.log.add(std::move(event));
    thread.process->end_logged = true;
    if (spared) tracer_.send(thread.process->pid, SIGKILL);
    resume(thread, Resume::cont, signal);
    return;
  }
  thread.timeout.forget();
  // Single-stepping into a handler stops right before its first instruction.
  resume(thread, Resume::step, signal);
  const auto stop = wait_stop(thread.tid);
  if (!stop) return;
  const auto* const stepped = std::get_if<SignalStop>(&*stop);
  siginfo_t info{};
  tracer_.get_siginfo(thread.tid, info);
  const bool trapped = stepped && stepped->signal == SIGTRAP;
  if (!stepped || (trapped && info.si_code != SIGTRAP)) {
    // The thread blocks it right now, for a handler runs already: the kernel keeps it, and the thread went on to here.
    thread.rewound = false;
    if (stepped) {
      resume(thread, Resume::cont);
    } else {
      handle(thread, *stop);
    }
    return;
  }
  user_regs_struct handler;
  if (!trapped || !get_regs(thread, handler)) {
    // The frame could not be written: a fault of its own, which ends the process.
    handle_signal(thread, stepped->signal);
    return;
  }
  read_mask(thread);
  if (signal == SIGSEGV && (thread.process->segv.flags & SA_RESETHAND)) thread.process->segv.handler = 0;
  if (signal == SIGILL && (thread.process->ill.flags & SA_RESETHAND)) thread.process->ill.handler = 0;
  const Memory& memory = thread.process->memory;
  if (const Gate* gate = thread.process->gate.get()) {
    // The frame shall say where the program would be if it were not patched.
    const Address frame = handler.rsp + sizeof(uint64_t);
    const Address rip = frame + offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]);
    const Address rcx = frame + offsetof(ucontext_t, uc_mcontext.gregs[REG_RCX]);
    user_regs_struct saved{};
    const bool known = memory.get(rip, saved.rip) && memory.get(rcx, saved.rcx);
    const Address ip = saved.rip;
    if (known) gate->make_canonical(saved);
    if (saved.rip != ip) memory.put(rip, saved.rip), memory.put(rcx, saved.rcx);
    // Of some faults the kernel names the instruction (sigaction(2), si_addr), in the frame behind the context.
    const Address named = frame + kContextSize + offsetof(siginfo_t, si_addr);
    Address fault = 0;
    if (saved.rip != ip && memory.get(named, fault) && fault == ip) memory.put(named, saved.rip);
  }
  MemoryWrite frame{handler.rsp, frame_size(memory, handler.rsp), MemoryWrite::Kind::data, {}};
  frame.data.resize(frame.length);
  if (!memory.read(frame.address, frame.data.data(), frame.length))
    add_unsure(unit, "a signal frame could not be read");
  event.writes.push_back(std::move(frame));
  event.registers = RegisterFile{as_bytes(handler), tracer_.get_xstate(thread.tid)};
  unit.log.add(std::move(event));
  thread.rewound = false;
  resume_user(thread, handler);
}

// Sends the thread a signal that an instruction of its own has caused, if a handler is to see it now; else the kernel
// would end the process.
bool Recorder::raise_caught(Thread& thread, const siginfo_t& info) {
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  const uint64_t bit = bit_of(info.si_signo);
  if (!(masks.caught & bit) || (masks.blocked & bit)) return false;
  return thread.signals.raise(tracer_, thread.process->pid, thread.tid, info);
}

// At an event: true if one of them is delivered when the thread runs on.
bool Recorder::raise_held(Thread& thread) { return thread.signals.raise(tracer_, thread.process->pid, thread.tid); }

// A thread ends before the signals that were held for it came. Those that were sent to its process are another's.
void Recorder::pass_on_held(Thread& thread) {
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

// SIGCONT has come: what was to stop the process does not any more.
void Recorder::forget_stops(const Process& process) {
  for (const auto& [serial, thread] : process.unit->threads) {
    if (thread->process == &process) thread->signals.forget_stops();
  }
}

bool Recorder::answer_trapped_instruction(Thread& thread, int signal, const user_regs_struct& regs) {
  const Process& process = *thread.process;
  uint8_t code[3] = {};
  const PatchedSite* patched = process.gate ? process.gate->patched(regs.rip) : nullptr;
  process.memory.read_some(patched ? patched->stop : regs.rip, code, sizeof code);
  const bool stand_in =
      patched ? patched->kind == SiteKind::cpuid : stands_for_cpuid(code) && process.cpuid_sites.contains(regs.rip);
  const auto trap = stand_in ? cpuid_instruction() : decode_trapped(code);
  if (!trap) return false;
  if (!undo_forced(thread, signal, regs)) return true;
  user_regs_struct after = regs;
  answer(*trap, after, answers_);
  add_trap(thread, *trap, regs, after);
  if (stand_in) {
    if (arena_) arena_->set_answers(answers_.all());
    patch_instruction(thread, regs.rip, SiteKind::cpuid);
  } else if (reads_counter(*trap)) {
    if (arena_) arena_->set_counter(counter());
    patch_instruction(thread, regs.rip, trap->length == 2 ? SiteKind::rdtsc : SiteKind::rdtscp);
  }
  set_regs(thread, after);
  thread.rewound = false;
  resume_user(thread, after);
  return true;
}

// A call of the vsyscall page, at its entry: makes it for the thread.
void Recorder::answer_vsyscall(Thread& thread) {
  const Memory& memory = thread.process->memory;
  const auto number = static_cast<int64_t>(thread.entry.orig_rax);
  thread.rewound = false;
  ++thread.process->unit->stopped_calls;
  thread.args = syscall_args(thread.entry);
  thread.row = find_row(number, thread.args);
  if (!thread.row) return refuse(thread, nullptr);
  open_call(thread, Memory::snapshot(memory));
  const auto put = [&](uint64_t at, const auto& value) { return !at || memory.put(at, value); };
  const auto& args = thread.args;
  int64_t result = 0;
  if (number == SYS_time) {
    result = time(nullptr);
    if (!put(args[0], result)) result = -EFAULT;
  } else if (number == SYS_gettimeofday) {
    timeval now{};
    struct timezone zone {};
    syscall(SYS_gettimeofday, &now, &zone);
    if (!put(args[0], now) || !put(args[1], zone)) result = -EFAULT;
  } else {
    uint32_t processor = 0, node = 0;
    syscall(SYS_getcpu, &processor, &node, nullptr);
    if (!put(args[0], processor) || !put(args[1], node)) result = -EFAULT;
  }
  user_regs_struct regs = thread.entry;
  regs.rax = static_cast<uint64_t>(result);
  regs.orig_rax = ~0ull;
  set_regs(thread, regs);
  close_call(thread, result, memory);
  resume_user(thread, regs);
}

void Recorder::add_trap(Thread& thread, const TrappedInstruction& trap, const user_regs_struct& before,
                        const user_regs_struct& after) {
  Event event;
  event.kind = EventKind::trap;
  event.thread = thread.serial;
  event.number = trap.instruction;
  event.ip = before.rip;
  event.args = {after.rax, after.rbx, after.rcx, after.rdx, before.rax, before.rcx};
  thread.process->unit->log.add(std::move(event));
}

// On processors that cannot trap cpuid: replaces it in a file's mapping that was just made, and notes that in the
// event. `file`: null if it cannot be reached.
void Recorder::replace_cpuid(Process& process, const Mapping& mapping, const MappedFile* file, Event* event) {
  if (limits_.cpuid_traps || mapping.inode == 0 || mapping.shared || !(mapping.protection & PROT_EXEC)) return;
  const auto replaced = cpuid_.replace(process.memory, mapping, file);
  if (!replaced) {
    add_unsure(*process.unit, "cpuid instructions of " + mapping.name + " could not be looked for");
    return;
  }
  if (replaced->failed) add_unsure(*process.unit, "cpuid instructions could not be replaced");
  process.cpuid_sites.insert(replaced->sites.begin(), replaced->sites.end());
  if (!event) return;
  const Bytes stand_in(std::begin(kCpuidStandIn), std::end(kCpuidStandIn));
  for (const Address site : replaced->sites) {
    event->writes.push_back({site, stand_in.size(), MemoryWrite::Kind::data, stand_in});
  }
}

}  // namespace redrive
