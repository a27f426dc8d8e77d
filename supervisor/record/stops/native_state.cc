#include "supervisor/record/stops/native_state.h"

#include <asm/prctl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "base/procfs.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/kernel/stack_piece.h"
#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/record/stops/code_patching.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kUnregister = 1;  // RSEQ_FLAG_UNREGISTER

// rseq(2).
struct Area {
  uint32_t cpu_id_start, cpu_id;
  uint64_t sequence;
};
struct Sequence {
  uint32_t version, flags;
  uint64_t start, length, abort;
};

Error was_killed() { return Error{"the program was killed"}; }

void no_call(user_regs_struct& regs) { regs.orig_rax = ~0ull; }

bool is_amid_call(const user_regs_struct& regs) {
  return static_cast<int64_t>(regs.orig_rax) >= 0 && restarts(static_cast<int64_t>(regs.rax));
}

}  // namespace

std::vector<Thread*> threads_of(const Process& process) {
  std::vector<Thread*> found;
  for (const auto& [serial, thread] : process.unit->threads) {
    if (thread->process == &process && !thread->exited) found.push_back(thread);
  }
  return found;
}

void NativeState::prepare(pid_t pid, const std::set<std::pair<uint64_t, uint64_t>>& changeable) {
  const auto mappings = read_mappings(pid);
  if (!mappings) return;
  MappedFiles files(pid);
  for (const Mapping& mapping : *mappings) {
    const bool changes = mapping.shared && changeable.contains({mapping.device, mapping.inode});
    if (mapping.inode == 0 || changes) continue;
    static_cast<void>(files_.file_of(files, mapping));
    const MappedFile* const file = PatchPlans::is_code(mapping) ? files.of(mapping) : nullptr;
    if (file) patching_.needs_replacement(*file);
  }
}

// ---- Calls that are made for the recorder

Result<int64_t> NativeState::call(Thread& thread, long number, std::initializer_list<uint64_t> args) {
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return was_killed();
  const Address instruction = thread.process->vdso_patch->syscall_instruction();
  const auto result = calls_.call_at(caller_of(thread), instruction, regs, number, args);
  if (result) tracer_.set_regs(thread.tid, regs);
  return result;
}

Result<int64_t> NativeState::call_reading(Thread& thread, void* to, size_t size,
                                          const std::function<Result<int64_t>(Address memory)>& call) {
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return was_killed();
  const Memory& memory = thread.process->memory;
  const StackPiece piece(memory, regs.rsp, size);
  if (!piece.readable()) return stack_unreadable();
  const auto result = call(piece.at());
  if (result && !memory.read(piece.at(), to, size)) return was_killed();
  return result;
}

// ---- A thread comes to a place where it can be left

// A signal is pending for the thread: lets it come to the first instruction of its handler, or back to its call if the
// signal is another thread's by then.
Result<void> NativeState::start_handler(Thread& thread, Others others) {
  for (;;) {
    tracer_.resume(thread.tid, Resume::cont);
    const auto stop = ends_.wait_stop(thread.tid);
    if (!stop) return was_killed();
    user_regs_struct regs;
    if (!tracer_.get_regs(thread.tid, regs)) return was_killed();
    if (is<SyscallEntry>(*stop)) {
      regs = before_syscall(regs);
      tracer_.set_regs(thread.tid, regs);
      return {};
    }
    if (is<GroupStop>(*stop)) return Error{"it was stopped"};
    const auto* const signalled = std::get_if<SignalStop>(&*stop);
    if (!signalled) continue;
    int signal = signalled->signal;
    siginfo_t info{};
    tracer_.get_siginfo(thread.tid, info);
    if (const auto was = info.si_code == SI_TKILL ? thread.signals.arrived(signal) : std::nullopt) {
      info = *was;
      signal = info.si_signo;
      tracer_.set_siginfo(thread.tid, info);
    }
    const SignalMasks masks = tracer_.signal_masks(thread.tid);
    if (is_ignored(masks, signal)) return {};
    if (!(masks.caught & bit_of(signal)) && others == Others::held) {
      thread.signals.hold(info, tracer_.now());
      return {};
    }
    tracer_.resume(thread.tid, Resume::step, signal);
    const auto started = ends_.wait_stop(thread.tid);
    if (!started) return was_killed();
    if (is<GroupStop>(*started)) return {};
    if (!tracer_.get_regs(thread.tid, regs)) return was_killed();
    no_call(regs);
    tracer_.set_regs(thread.tid, regs);
    return {};
  }
}

Result<void> NativeState::settle(Thread& thread) {
  user_regs_struct regs;
  for (;;) {
    if (!tracer_.get_regs(thread.tid, regs)) return was_killed();
    if (regs.cs != kCodeSegment) return Error{"it runs 32-bit code"};
    if (!is_amid_call(regs)) break;
    const SignalMasks masks = tracer_.signal_masks(thread.tid);
    if (!(masks.deliverable() & masks.caught)) break;
    TRY(start_handler(thread, Others::held));
  }
  if (is_amid_call(regs)) {
    if (static_cast<int64_t>(regs.rax) == kErestartRestartblock) {
      user_regs_struct entry = regs;
      thread.call.args = thread.call.output_args = syscall_args(entry);
      thread.restarting = find_row(static_cast<int64_t>(regs.orig_rax), thread.call.args);
      if (thread.restarting)
        entry_sizes(*thread.restarting, thread.call.args, thread.process->memory, thread.call.sizes);
    }
    regs = after_restart(regs);
  }
  no_call(regs);
  tracer_.set_regs(thread.tid, regs);
  return {};
}

// ---- Taken away

Result<void> NativeState::take(Process& process) {
  const std::vector<Thread*> threads = threads_of(process);
  if (threads.empty()) return was_killed();
  TRY(take_vdso(process));
  TRY(read_process(process, *threads.front()));
  for (Thread* const thread : threads) TRY(take(*thread));
  ASSIGN_OR_RETURN(const auto code, code_mappings(process.pid));
  MappedFiles files(process.pid);
  for (const Mapping& mapping : code) {
    if (PatchPlans::is_code(mapping)) patching_.replace_traps(process, mapping, files.of(mapping), nullptr);
  }
  return {};
}

// A vDSO whose code is about to change must not be what a thread executes.
Result<void> NativeState::leave_vdso(Thread& thread) {
  const VdsoPatch& vdso = *thread.process->vdso_patch;
  return calls_.step_out(caller_of(thread), thread.process->memory, vdso.range(), vdso.syscall_instruction());
}

Result<void> NativeState::take_vdso(Process& process) {
  ASSIGN_OR_RETURN(VdsoPatch patch, VdsoPatch::of_process(process.pid, process.memory));
  process.vdso_patch = std::make_shared<const VdsoPatch>(std::move(patch));
  for (Thread* const thread : threads_of(process)) TRY(leave_vdso(*thread));
  if (!process.vdso_patch->apply(process.memory)) return Error{"its vDSO cannot be written to"};
  return {};
}

// What /proc does not say.
Result<void> NativeState::read_process(Process& process, Thread& thread) {
  ASSIGN_OR_RETURN(const int64_t brk, call(thread, SYS_brk, {0}));
  process.brk = static_cast<Address>(brk);
  const Address instruction = process.vdso_patch->syscall_instruction();
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return was_killed();
  for (const int signal : ForcedSignals::kForced) {
    ASSIGN_OR_RETURN(*ForcedSignals::action_of(process, signal),
                     calls_.action(caller_of(thread), process.memory, instruction, regs, signal));
  }
  uint8_t descriptor[16] = {};
  ASSIGN_OR_RETURN(const int64_t segments, call_reading(thread, descriptor, sizeof descriptor, [&](Address memory) {
                     return call(thread, SYS_modify_ldt, {0, memory, sizeof descriptor});
                   }));
  if (segments > 0) return Error{"it has segments of its own (modify_ldt(2))"};
  return {};
}

Result<void> NativeState::take_area(Thread& thread) {
  thread.rseq = tracer_.rseq(thread.tid);
  if (!thread.rseq) return {};
  const Memory& memory = thread.process->memory;
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return was_killed();
  Area area{};
  Sequence sequence{};
  const bool inside = memory.get(thread.rseq->address, area) && area.sequence && memory.get(area.sequence, sequence) &&
                      regs.rip - sequence.start < sequence.length;
  if (inside) {  // as the kernel does when it preempts a thread there
    regs.rip = sequence.abort;
    tracer_.set_regs(thread.tid, regs);
    memory.put(thread.rseq->address + offsetof(Area, sequence), uint64_t{0});
  }
  ASSIGN_OR_RETURN(
      const int64_t done,
      call(thread, SYS_rseq, {thread.rseq->address, thread.rseq->length, kUnregister, thread.rseq->signature}));
  if (done == 0) return {};
  thread.rseq.reset();
  return Error{"its restartable sequences (rseq(2)) cannot be suspended"};
}

Result<void> NativeState::take(Thread& thread) {
  constexpr int kGetTidAddress = 40;  // PR_GET_TID_ADDRESS
  TRY(take_area(thread));
  thread.blocked = tracer_.signal_masks(thread.tid).blocked;
  ASSIGN_OR_RETURN(const int64_t found,
                   call_reading(thread, &thread.clear_tid, sizeof thread.clear_tid, [&](Address memory) {
                     return call(thread, SYS_prctl, {kGetTidAddress, memory});
                   }));
  if (found != 0) return Error{"the kernel does not say what it writes when a thread ends (CONFIG_CHECKPOINT_RESTORE)"};
  if (limits_.traps.counter) {
    int mode = 0;
    TRY(call_reading(thread, &mode, sizeof mode, [&](Address memory) {
      return call(thread, SYS_prctl, {PR_GET_TSC, memory});
    }));
    // A recorder that was killed has left it trapping.
    thread.counter_mode = thread.process->vdso_patch->was_patched() ? PR_TSC_ENABLE : static_cast<uint64_t>(mode);
    ASSIGN_OR_RETURN(const int64_t set, call(thread, SYS_prctl, {PR_SET_TSC, PR_TSC_SIGSEGV}));
    if (set != 0) return Error{"the counter cannot be made to trap (prctl(2), PR_SET_TSC)"};
  }
  if (limits_.traps.cpuid) TRY(call(thread, SYS_arch_prctl, {ARCH_SET_CPUID, 0}));
  return {};
}

bool NativeState::take_program(Thread& thread, user_regs_struct& regs) {
  Process& process = *thread.process;
  thread.rseq.reset();
  process.not_copied.clear();
  process.vdso_patch.reset();
  if (const auto taken = take_vdso(process); !taken) {
    process.vdso_patch.reset();
    return true;
  }
  // execve switched cpuid faulting off.
  if (limits_.traps.cpuid && !call(thread, SYS_arch_prctl, {ARCH_SET_CPUID, 0})) return false;
  no_call(regs);
  tracer_.set_regs(thread.tid, regs);
  return true;
}

bool NativeState::answers_rseq(Thread& thread) const {
  if (!limits_.attached || thread.entry.orig_rax != SYS_rseq || thread.call.args[2] != 0 || thread.rseq) return false;
  const auto& threads = thread.process->unit->threads;
  const bool others_have = std::any_of(threads.begin(), threads.end(), [&](const auto& entry) {
    return entry.second->process == thread.process && entry.second->rseq;
  });
  if (!others_have) return false;
  thread.rseq = RseqArea{thread.call.args[0], static_cast<uint32_t>(thread.call.args[1]),
                         static_cast<uint32_t>(thread.call.args[3])};
  return true;
}

// ---- Given back

void NativeState::let_go(Process& process) {
  std::vector<pid_t> tids;
  for (const Thread* const thread : threads_of(process)) tids.push_back(thread->tid);
  // A thread may end at any of these steps, and then it is not there any more.
  const auto for_each = [&](const auto& step) {
    for (const pid_t tid : tids) {
      if (Thread* const thread = tracees_.find(tid)) step(*thread);
    }
  };
  for_each([&](Thread& thread) {
    thread.signals.let_come(tracer_, thread.tid);
    static_cast<void>(settle(thread));
  });
  if (process.vdso_patch) {
    for_each([&](Thread& thread) { static_cast<void>(leave_vdso(thread)); });
    give_back(process);
    for_each([&](Thread& thread) { give_back(thread); });
  }
  for_each([&](Thread& thread) { deliver_signals(thread); });
  for_each([&](Thread& thread) { tracer_.detach(thread.tid); });
}

void NativeState::give_back(Process& process) {
  const Memory& memory = process.memory;
  process.vdso_patch->undo(memory);
  for (const auto& [at, instruction] : process.stand_ins) {
    Bytes own = instruction_bytes(instruction), found(own.size());
    const bool is_there = memory.read(at, found.data(), found.size()) && found == stand_in(instruction.length);
    if (is_there) memory.write(at, own.data(), own.size());
  }
  const auto threads = threads_of(process);
  for (const pid_t copy : std::exchange(process.copies_to_reap, {})) {
    if (threads.empty()) return;
    if (!call(*threads.front(), SYS_wait4, {static_cast<uint64_t>(copy), 0, __WALL | WNOHANG, 0})) return;
  }
}

void NativeState::give_back(Thread& thread) {
  if (const auto mask = std::exchange(thread.mask_at_birth, {})) tracer_.set_signal_mask(thread.tid, *mask);
  give_back_processors(thread.tid, thread.processors);
  const uint64_t mode = thread.counter_mode ? thread.counter_mode : PR_TSC_ENABLE;
  if (limits_.traps.counter && !call(thread, SYS_prctl, {PR_SET_TSC, mode})) return;
  if (limits_.traps.cpuid && !call(thread, SYS_arch_prctl, {ARCH_SET_CPUID, 1})) return;
  if (const auto& area = thread.rseq) {
    static_cast<void>(call(thread, SYS_rseq, {area->address, area->length, 0, area->signature}));
  }
}

// Signals that the recorder holds, or that come meanwhile, as if it were not there.
void NativeState::deliver_signals(Thread& thread) {
  const pid_t tid = thread.tid, pid = thread.process->pid;
  const SignalTurns any;
  for (;;) {
    thread.signals.raise(tracer_, pid, tid, any);
    const SignalMasks masks = tracer_.signal_masks(tid);
    if (!masks.deliverable()) return;
    if (!start_handler(thread, Others::delivered) || !tracees_.find(tid)) return;
  }
}

}  // namespace redrive
