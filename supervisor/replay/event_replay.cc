#include "supervisor/replay/event_replay.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/page.h"
#include "checkpoint/address_space.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/replay/divergence.h"
#include "supervisor/replay/loop_replay.h"
#include "supervisor/replay/place_search.h"
#include "supervisor/replay/step_to_place.h"
#include "supervisor/tier/missing_memory.h"
#include "supervisor/tier/registers.h"

namespace redrive {

namespace {

// A page that the program cannot access for the moment.
struct TakenPage {
  Address page = 0;
  std::optional<int> protection;  // that it has otherwise; none: nothing is mapped there
};

// Leaves it a part of its protection. None if the page is missing anyway, or a program that has lost its way has
// accessed what is the replay's own.
Result<std::optional<TakenPage>> take_page(const Stub& stub, pid_t tid, Address page, int left) {
  using Taken = std::optional<TakenPage>;
  const std::array<uint64_t, 6> args{page, kPageSize};
  ASSIGN_OR_RETURN(const auto mapped, mapped_from(stub.pid(), page));
  if (!mapped || is_forbidden(SYS_mprotect, args)) return Taken();
  if (mapped->start > page) {
    const bool may_grow = mapped->inode == 0 && !mapped->shared;
    if (!may_grow) return Taken();
    // Nothing grows to where something is mapped. The kernel refuses pages to which nothing would grow.
    ASSIGN_OR_RETURN(const int64_t result,
                     stub.call(tid, SYS_mmap,
                               {page, kPageSize, PROT_NONE,
                                uint64_t{MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED}, ~0ull, 0}));
    return result == static_cast<int64_t>(page) ? Taken({page, std::nullopt}) : Taken();
  }
  uint8_t byte = 0;
  if (!stub.memory().get(page, byte)) return Taken();
  StubCalls calls(stub, tid);
  TRY(calls.add("take a page away in a stub", SYS_mprotect,
                {page, kPageSize, static_cast<uint64_t>(mapped->protection & left)}));
  TRY(calls.run());
  return Taken({page, mapped->protection});
}

Result<void> give_back(const Stub& stub, pid_t tid, const TakenPage& taken) {
  StubCalls calls(stub, tid);
  if (taken.protection) {
    TRY(calls.add("give a page back in a stub", SYS_mprotect,
                  {taken.page, kPageSize, static_cast<uint64_t>(*taken.protection)}));
  } else {
    TRY(calls.unmap(taken.page, kPageSize));
  }
  TRY(calls.run());
  return {};
}

// Runs the thread to its next stop. Memory that was missing at the event is missing here until then: all of the page,
// or, if the thread accesses it before, only room to write to it. Some file systems notice only then that they are
// full.
Result<ThreadStop> run_to(const Redriving& redriving, RedrivenThread& thread, const Event& event) {
  const auto missing = MissingMemory::of(event);
  if (!missing || !missing->may_be_there() || thread.ahead) return redriving.runner.run(thread);
  const Stub& stub = redriving.unit.stub(thread.process);
  const Address page = page_down(missing->address);
  for (int left = PROT_NONE;; left = ~PROT_WRITE) {
    ASSIGN_OR_RETURN(const auto taken, take_page(stub, thread.tid, page, left));
    const ThreadStop stop = redriving.runner.run(thread);
    if (!taken || stop == ThreadStop::gone) return stop;
    siginfo_t info{};
    if (!get_siginfo(thread.tid, info)) return errno_error("cannot read a stub's signal");
    TRY(give_back(stub, thread.tid, *taken));
    const bool faulted = stop == ThreadStop::fault && page_down(reinterpret_cast<Address>(info.si_addr)) == page;
    const bool before = faulted && thread.regs.rip != event.ip;
    if (before && left == PROT_NONE) continue;
    if (faulted && !before) {
      info.si_signo = thread.fault_signal = event.number;
      info.si_code = missing->code;
    }
    if (!set_siginfo(thread.tid, info)) return errno_error("cannot set a stub's signal");
    return stop;
  }
}

// Whether an instruction has raised the signal of the event. Where a stack has no room for the handler's frame, the
// kernel forces SIGSEGV instead.
bool raised_as_recorded(const Redriving& redriving, const RedrivenThread& thread, const Event& event) {
  if (thread.fault_signal == event.number) return true;
  constexpr uint64_t kFrame = 1024;  // a frame is larger
  uint8_t any = 0;
  return event.number == SIGSEGV && !redriving.unit.memory(thread).get(thread.regs.rsp - kRedZone - kFrame, any);
}

}  // namespace

Step no_thread(EventIndex index, const Event& event) {
  return Step::diverged({index, std::nullopt, fmt::format("an event of thread {}", event.thread), "no such thread"});
}

Result<Step> EventReplay::replay(EventIndex index, const Event& event, uint64_t made) {
  RedrivenThread* const found = redriving_.unit.find(event.thread);
  if (!found) return no_thread(index, event);
  RedrivenThread& thread = *found;
  switch (event.kind) {
    case EventKind::syscall:
      return calls_.make(thread, index, event, made);
    case EventKind::entry:
      return calls_.enter(thread, index, event);
    case EventKind::exit:
      if (!thread.stopped_at_syscall) {
        return diverged(thread, index, "the exit of " + std::string(syscall_name(event.number)),
                        "the thread is in no system call");
      }
      return calls_.leave(thread, index, event);
    case EventKind::signal:
      return replay_signal(thread, index, event);
    case EventKind::trap:
      return replay_trap(thread, index, event);
    case EventKind::preemption:
      return replay_preemption(thread, index, event);
  }
  return Error{"an event of unknown kind", Status::damaged};
}

Result<Step> EventReplay::arrive(EventIndex index, const Event& event) {
  RedrivenThread* const found = redriving_.unit.find(event.thread);
  if (!found) return no_thread(index, event);
  RedrivenThread& thread = *found;
  const auto point = static_cast<SignalPoint>(event.args[0]);
  const bool signal = event.kind == EventKind::signal;
  if (event.kind == EventKind::exit) return Step::as_recorded();
  if (event.kind == EventKind::preemption) {
    const bool turn = static_cast<Preempted>(event.args[0]) == Preempted::turn;
    return turn ? replay_preemption(thread, index, event) : Step::as_recorded();
  }
  if (signal && point != SignalPoint::before_syscall && point != SignalPoint::fault) return Step::as_recorded();
  own_code_to_step(thread, event);
  ASSIGN_OR_RETURN(const ThreadStop stop, run_to(redriving_, thread, event));
  thread.ahead = stop;
  const bool faults = event.kind == EventKind::trap || (signal && point == SignalPoint::fault);
  const Address ip = signal && !faults ? event.ip + kSyscallSize : event.ip;  // after the instruction
  if (stop == (faults ? ThreadStop::fault : ThreadStop::syscall) && thread.regs.rip == ip) return Step::as_recorded();
  return diverged(thread, index, fmt::format("to stop at {:#x}", ip), redriving_.runner.came_to(thread, stop));
}

Result<Step> EventReplay::replay_signal(RedrivenThread& thread, EventIndex index, const Event& event) {
  const auto point = static_cast<SignalPoint>(event.args[0]);
  const std::string expected = fmt::format("signal {} at {}", event.number, hex(event.ip));
  if (point == SignalPoint::before_syscall || point == SignalPoint::fault) {
    own_code_to_step(thread, event);
    ASSIGN_OR_RETURN(const ThreadStop stop, run_to(redriving_, thread, event));
    const bool right_kind = stop == (point == SignalPoint::fault ? ThreadStop::fault : ThreadStop::syscall);
    const uint64_t ip = point == SignalPoint::fault ? thread.regs.rip : thread.regs.rip - 2;
    if (!right_kind || ip != event.ip) {
      return diverged(thread, index, expected, redriving_.runner.came_to(thread, stop));
    }
    if (point == SignalPoint::fault && !raised_as_recorded(redriving_, thread, event)) {
      return diverged(thread, index, expected, fmt::format("signal {} there", thread.fault_signal));
    }
    thread.stopped_at_syscall = false;
  }
  if (event.fatal) {
    if (verification_ && point == SignalPoint::fault) {
      TRY_STEP(verification_->before_last(thread, index, thread.regs));
    }
    TRY(effects_.change_objects(event));
    TRY_STEP(effects_.write_memory(thread, index, event));
    redriving_.forget_process(thread.process);
    return Step::as_recorded();
  }
  if (!event.registers || !from_bytes(event.registers->general, thread.regs)) {
    return Error{"a signal event holds no registers", Status::damaged};
  }
  TRY_STEP(effects_.write_memory(thread, index, event));
  thread.regs.orig_rax = ~0ull;
  const Bytes& xstate = event.registers->xstate;
  if (!xstate.empty() && !set_xstate(thread.tid, xstate)) return errno_error("cannot set extended registers");
  if (!redriving_.gates.set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  return Step::as_recorded();
}

// If the event is the end of a step of a program that executes its code step by step (the trap flag is set), the thread
// must not step through what stands in for instructions.
void EventReplay::own_code_to_step(const RedrivenThread& thread, const Event& event) const {
  const Gate* const gate = redriving_.gates.of(thread);
  const bool traps = event.kind == EventKind::signal && event.number == SIGTRAP &&
                     static_cast<SignalPoint>(event.args[0]) == SignalPoint::fault;
  if (!gate || !traps) return;
  constexpr uint8_t kBreakpoint = 0xcc;
  uint8_t before[1] = {};
  redriving_.unit.memory(thread).get(event.ip - 1, before);
  gate->undo_patches(event.ip - 1, before);
  if (before[0] != kBreakpoint) redriving_.gates.remove(thread.process);
}

Result<Step> EventReplay::replay_trap(RedrivenThread& thread, EventIndex index, const Event& event) {
  const auto expected = [&] { return "a trapped instruction at " + hex(event.ip); };
  const ThreadStop stop = redriving_.runner.run(thread);
  uint8_t code[3] = {};
  const Gate* const gate = stop == ThreadStop::fault ? redriving_.gates.of(thread) : nullptr;
  const Address instruction = gate ? gate->physical(thread.regs.rip) : thread.regs.rip;
  const Memory& memory = redriving_.unit.memory(thread);
  if (stop == ThreadStop::fault) memory.read_some(instruction, code, sizeof code);
  const bool cpuid = event.number == static_cast<int32_t>(Trap::cpuid);
  const auto trapped = is_stand_in(code) ? trapped_instruction(event.number) : trapped_at(memory, instruction);
  if (stop != ThreadStop::fault || thread.regs.rip != event.ip || !trapped || trapped->instruction != event.number) {
    return diverged(thread, index, expected(), redriving_.runner.came_to(thread, stop));
  }
  if (cpuid && (thread.regs.rax != event.args[4] || thread.regs.rcx != event.args[5])) {
    return diverged(thread, index, expected() + ", leaf " + hex(event.args[4]), "leaf " + hex(thread.regs.rax));
  }
  thread.regs.rip += static_cast<uint64_t>(trapped->length);
  thread.regs.rax = event.args[0];
  thread.regs.rbx = event.args[1];
  thread.regs.rcx = event.args[2];
  thread.regs.rdx = event.args[3];
  thread.regs.orig_rax = ~0ull;
  if (!redriving_.gates.set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  return Step::as_recorded();
}

// The thread continues from where it was preempted. Unless the event says how often it had come there, a replay that
// begins there finds it there, and one that comes by has to look for the place if another thread ran meanwhile.
Result<Step> EventReplay::replay_preemption(RedrivenThread& thread, EventIndex index, const Event& event) {
  if (static_cast<Preempted>(event.args[0]) == Preempted::stepped) {
    return step_to_place(redriving_, thread, index, event);
  }
  if (static_cast<Preempted>(event.args[0]) == Preempted::waiting) {
    return run_to_loop(redriving_, patcher_, thread, index, event);
  }
  const UnitId unit = redriving_.what.unit;
  const auto begun = interval_begun_by(redriving_.trace, {unit, index}, event);
  if (begun == redriving_.what.start) {
    if (thread.regs.rip == event.ip && event.regs_hash.agrees(preserved_registers_hash(thread.regs))) {
      return Step::as_recorded();
    }
    return diverged(thread, index, fmt::format("to be at {:#x}", event.ip), fmt::format("{:#x}", thread.regs.rip));
  }
  if (static_cast<Preempted>(event.args[0]) == Preempted::checkpoint) return Step::as_recorded();
  if (!begun || !redriving_.trace.intervals(unit).at(*begun).has_image) {
    return Error{fmt::format("unit {} was preempted before event {}, and the checkpoint that says where is not stored",
                             unit, index)};
  }
  ASSIGN_OR_RETURN(const SearchEnd search, run_to_place(redriving_, event.thread, index, *begun));
  if (const auto* difference = std::get_if<Difference>(&search)) return Step::diverged(*difference);
  if (const auto* not_found = std::get_if<NotFound>(&search)) {
    return Error{fmt::format("unit {} was preempted before event {}: {}", unit, index, not_found->why)};
  }
  TRY(redriving_.gates.map_all());
  return Step::as_recorded();
}

}  // namespace redrive
