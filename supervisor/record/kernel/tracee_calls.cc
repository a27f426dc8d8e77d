#include "supervisor/record/kernel/tracee_calls.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/bytes.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/front/lifeline.h"
#include "supervisor/record/kernel/stack_piece.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kSetSize = sizeof(uint64_t);

}  // namespace

Address vdso_syscall(const Memory& memory, Address vdso) {
  if (!vdso) return 0;
  Bytes code(2 * kPageSize);
  code.resize(memory.read_some(vdso, code.data(), code.size()));
  const uint8_t instruction[] = {0x0f, 0x05};
  const auto at = std::search(code.begin(), code.end(), std::begin(instruction), std::end(instruction));
  return at == code.end() ? 0 : vdso + static_cast<Address>(at - code.begin());
}

void TraceeCalls::hold(const Caller& caller, const Stop& stop) {
  siginfo_t info{};
  if (is<SignalStop>(stop) && tracer_.get_siginfo(caller.tid, info)) caller.signals.hold(info, tracer_.now());
}

Result<int64_t> TraceeCalls::call_at(const Caller& caller, Address instruction, const user_regs_struct& base,
                                     long number, std::initializer_list<uint64_t> args, pid_t* born) {
  user_regs_struct regs = base;
  regs.rip = instruction;
  regs.rax = static_cast<uint64_t>(number);
  regs.orig_rax = ~0ull;
  regs.cs = kCodeSegment, regs.ss = kStackSegment;  // the thread may be running code of another size
  int index = 0;
  for (const uint64_t arg : args) syscall_arg(regs, index++) = arg;
  const uint64_t own = block_signals(tracer_, caller.tid);
  note_injected(caller.tid, base, own);
  tracer_.set_regs(caller.tid, regs);
  if (!tracer_.set_option(caller.tid, TraceeOption::ignores_filters))
    return Error{"the program's filters do not let redrive make calls"};
  Resume how = Resume::cont;
  for (;;) {
    tracer_.resume(caller.tid, how);
    const auto stop = wait_(caller.tid);
    if (!stop) return Error{"the program was killed"};
    if (is<SyscallEntry>(*stop)) {
      // After an execve the kernel has put its result where the number was.
      regs.orig_rax = static_cast<uint64_t>(number);
      tracer_.set_regs(caller.tid, regs);
      how = Resume::to_syscall_exit;
    } else if (is<SyscallExit>(*stop)) {
      if (how == Resume::to_syscall_exit) break;  // otherwise it is that of a call that was skipped
    } else {
      if (const auto* birth = std::get_if<Birth>(&*stop); birth && born) *born = birth->child;
      hold(caller, *stop);
    }
  }
  tracer_.set_option(caller.tid, TraceeOption::heeds_filters);
  tracer_.set_signal_mask(caller.tid, own);
  if (!tracer_.get_regs(caller.tid, regs)) return Error{"the program was killed"};
  tracer_.set_regs(caller.tid, base);
  forget_injected();
  return static_cast<int64_t>(regs.rax);
}

Result<SignalAction> TraceeCalls::action(const Caller& caller, const Memory& memory, Address instruction,
                                         const user_regs_struct& base, int signal) {
  SignalAction action;
  const StackPiece piece(memory, base.rsp, sizeof action);
  if (!piece.readable()) return stack_unreadable();
  TRY(call_at(caller, instruction, base, SYS_rt_sigaction, {static_cast<uint64_t>(signal), 0, piece.at(), kSetSize}));
  if (!memory.get(piece.at(), action)) return Error{"the program was killed"};
  return action;
}

Result<void> TraceeCalls::set_action(const Caller& caller, const Memory& memory, Address instruction,
                                     const user_regs_struct& base, int signal, const SignalAction& action) {
  const StackPiece piece(memory, base.rsp, sizeof action);
  if (!piece.readable() || !memory.put(piece.at(), action)) return stack_unreadable();
  TRY(call_at(caller, instruction, base, SYS_rt_sigaction, {static_cast<uint64_t>(signal), piece.at(), 0, kSetSize}));
  return {};
}

Result<void> TraceeCalls::ignore_again(const Caller& caller, const Memory& memory, Address instruction, int signal) {
  user_regs_struct regs;
  if (!tracer_.get_regs(caller.tid, regs)) return Error{"the program was killed"};
  ASSIGN_OR_RETURN(SignalAction now, action(caller, memory, instruction, regs, signal));
  now.handler = kIgnore;
  return set_action(caller, memory, instruction, regs, signal, now);
}

Result<void> TraceeCalls::step_out(const Caller& caller, const Memory& memory, const AddressRange& range,
                                   Address instruction) {
  constexpr int kMostSteps = 100'000;
  bool ignored = false;
  for (int steps = 0; steps < kMostSteps; ++steps) {
    user_regs_struct regs;
    if (!tracer_.get_regs(caller.tid, regs)) return Error{"the program was killed"};
    const bool out = regs.rip < range.start || regs.rip >= range.end;
    if (out && ignored) return ignore_again(caller, memory, instruction, SIGTRAP);
    if (out) return {};
    if (steps == 0) ignored = tracer_.signal_masks(caller.tid).ignored & bit_of(SIGTRAP);
    TRY(step(caller));
  }
  return Error{"a thread does not come out of its vDSO"};
}

// The kernel takes the handler away from a thread that blocks SIGTRAP (force_sig(), kernel/signal.c).
Result<void> TraceeCalls::step(const Caller& caller) {
  const uint64_t own = block_signals(tracer_, caller.tid);
  if (own & bit_of(SIGTRAP)) tracer_.set_signal_mask(caller.tid, (own | ~kCausedByInstructions) & ~bit_of(SIGTRAP));
  tracer_.resume(caller.tid, Resume::step);
  const auto stop = wait_(caller.tid);
  if (!stop) return Error{"the program was killed"};
  tracer_.set_signal_mask(caller.tid, own);
  siginfo_t info{};
  const bool trapped =
      *stop == Stop{SignalStop{SIGTRAP}} && tracer_.get_siginfo(caller.tid, info) && caused_by_instruction(info);
  if (!trapped) hold(caller, *stop);
  return {};
}

Result<user_regs_struct> TraceeCalls::make_from(GateArena& arena, const Caller& caller, const user_regs_struct& base,
                                                Address instruction, const std::vector<gate::InjectedCall>& calls,
                                                pid_t* born) {
  arena.set_injected(calls);
  user_regs_struct regs = base;
  regs.rip = instruction;
  regs.cs = kCodeSegment, regs.ss = kStackSegment;  // the thread may be running code of another size
  regs.orig_rax = ~0ull;
  regs.rbp = gate::kOrders + offsetof(gate::Orders, injected);
  regs.rbx = regs.rbp + calls.size() * sizeof(gate::InjectedCall);
  regs.r15 = arena.secret();
  tracer_.set_regs(caller.tid, regs);
  const uint64_t own = block_signals(tracer_, caller.tid);
  for (;;) {
    tracer_.resume(caller.tid, Resume::cont);
    const auto stop = wait_(caller.tid);
    if (!stop) return Error{"the program was killed"};
    if (is<SyscallEntry>(*stop)) {
      // One of the calls that the filter stops wherever they are made.
      if (tracer_.get_regs(caller.tid, regs) && regs.rip == arena.header().injected) continue;
      break;
    }
    if (const auto* birth = std::get_if<Birth>(&*stop); birth && born) *born = birth->child;
    hold(caller, *stop);
  }
  tracer_.set_signal_mask(caller.tid, own);
  if (!tracer_.get_regs(caller.tid, regs)) return Error{"the program was killed"};
  return regs;
}

Result<int64_t> TraceeCalls::make(GateArena& arena, const Caller& caller, const user_regs_struct& base,
                                  const std::vector<gate::InjectedCall>& calls, pid_t* born) {
  ASSIGN_OR_RETURN(const user_regs_struct made, make_from(arena, caller, base, arena.header().inject, calls, born));
  return static_cast<int64_t>(made.rdi);
}

}  // namespace redrive
