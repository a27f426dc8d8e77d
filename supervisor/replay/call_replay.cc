#include "supervisor/replay/call_replay.h"

#include <sys/syscall.h>

#include <algorithm>

#include "interceptors/payload.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/replay/birth_replay.h"
#include "supervisor/replay/divergence.h"
#include "supervisor/replay/event_cycle.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {
CallReplay::CallReplay(const Redriving& redriving, MessageStore& store, UnitMessages& messages, EventEffects& effects,
                       SitePatcher& patcher, EndVerification* verification, bool shows_output, CallWatch* watch)
    : redriving_(redriving),
      store_(store),
      messages_(messages),
      effects_(effects),
      patcher_(patcher),
      verification_(verification),
      watch_(watch) {
  if (shows_output) output_.emplace();
}

Result<Step> CallReplay::make(RedrivenThread& thread, EventIndex index, const Event& event, uint64_t made) {
  std::vector<Event> cycle;
  if (event.repeat > 1 && event.cycle > 1) {
    ASSIGN_OR_RETURN(cycle, read_cycle(redriving_.trace, redriving_.what.unit, index, event));
  }
  for (; made < event.repeat; ++made) {
    const size_t turn = made == 0 || cycle.empty() ? event.cycle - 1 : (made - 1) % event.cycle;
    const Event& call = cycle.empty() ? event : cycle[turn];
    const EventIndex place = index - (event.cycle - 1 - turn);
    TRY_STEP(enter(thread, place, call));
    if (call.fatal) return Step::as_recorded();
    const ThreadSerial serial = thread.serial;
    TRY_STEP(leave(thread, place, call));
    if (made + 1 < event.repeat && !redriving_.unit.find(serial)) {
      return Error{
          fmt::format("event {} of unit {} repeats a call that has replaced its program", index, redriving_.what.unit),
          Status::damaged};
    }
  }
  return Step::as_recorded();
}

Result<Step> CallReplay::enter(RedrivenThread& thread, EventIndex index, const Event& event) {
  const Memory& memory = redriving_.unit.memory(thread);
  const auto expected = [&] { return format_call(event.number, event.args) + " at " + hex(event.ip); };
  ThreadStop stop = redriving_.runner.run(thread);
  const auto is_here = [&] {
    return static_cast<int64_t>(thread.regs.orig_rax) == event.number && thread.regs.rip == event.ip;
  };
  while (stop == ThreadStop::syscall && !is_here() && redriving_.runner.refuse_foreign(thread)) {
    stop = redriving_.runner.run(thread);
  }
  if (stop != ThreadStop::syscall) {
    return diverged(thread, index, expected(), redriving_.runner.came_to(thread, stop));
  }
  const std::array<uint64_t, 6> args = syscall_args(thread.regs);
  const auto number = static_cast<int64_t>(thread.regs.orig_rax);
  const SyscallRow* row = find_row(number, args);
  const auto differs = [&](const std::string& how) {
    return diverged(thread, index, expected(),
                    format_call(number, args, &memory) + " at " + hex(thread.regs.rip) + how);
  };
  if (!is_here()) return differs("");
  const size_t count = row ? row->argument_count() : 0;
  if (!std::equal(args.begin(), args.begin() + static_cast<ptrdiff_t>(count), event.args.begin())) return differs("");
  if (!event.regs_hash.agrees(preserved_registers_hash(thread.regs))) return differs(", with other registers");
  if (row && row->treat != Treat::refuse) {
    const auto read = equal_inputs(thread, event, *row);
    if (!read) return differs(", with other contents of the memory that it reads");
    // What it sends goes to its receivers, and to the output that is shown.
    if (messages_.sent_by(index)) messages_.publish(index, read_payload(*read, memory));
    if (output_) output_->call_begins(event, *row, *read, memory);
    if (const EventRef self{redriving_.what.unit, index}; watch_ && watch_->wants(self)) {
      watch_->see(self, *read, memory);
    }
    if (is_birth(*row) && (event.child_unit || event.child_thread)) {
      TRY(bear(redriving_, store_, thread, index, event, *row));
    }
  }
  const bool replaces_program =
      row && executes_program(*row, args) && event.kind == EventKind::syscall && event.result == 0;
  if (verification_ && (event.fatal || replaces_program)) {
    TRY_STEP(verification_->before_last(thread, index, before_syscall(thread.regs)));
  }
  return event.fatal ? end(thread, index, event, row) : Step::as_recorded();
}

// The memory that a call reads; none if it does not hold what was recorded.
std::optional<std::vector<Span>> CallReplay::equal_inputs(RedrivenThread& thread, const Event& event,
                                                          const SyscallRow& row) {
  const Memory& memory = redriving_.unit.memory(thread);
  // A new program's strings lie close together.
  const std::array<uint64_t, 6> args = syscall_args(thread.regs);
  const bool executes = executes_program(row, args);
  const Memory strings = executes ? Memory::snapshot(memory) : Memory();
  const Memory& found = executes ? strings : memory;
  auto read = inputs(row, args, found);
  if (event.in_hash != 0 && hash_spans(read, found, scratch_) != event.in_hash) return std::nullopt;
  return read;
}

// The call ended its thread or process: by itself, or because it was forbidden, which its result says.
Result<Step> CallReplay::end(RedrivenThread& thread, EventIndex index, const Event& event, const SyscallRow* row) {
  TRY_STEP(effects_.write_memory(thread, index, event));
  if (row && row->special == Special::exit_group && event.result == 0) {
    redriving_.forget_process(thread.process);
    return Step::as_recorded();
  }
  // A leader stays as a stopped thread; the others go for good.
  const Stub& stub = redriving_.unit.stub(thread.process);
  if (thread.tid != stub.pid()) stub.end_thread(thread.tid);
  redriving_.unit.forget_thread(event.thread);
  return Step::as_recorded();
}

Result<Step> CallReplay::leave(RedrivenThread& thread, EventIndex index, const Event& event) {
  const auto number = static_cast<int64_t>(thread.regs.orig_rax);
  const std::array<uint64_t, 6> args = syscall_args(thread.regs);
  const SyscallRow* row = find_row(number, args);
  thread.stopped_at_syscall = false;
  if (output_) TRY(output_->call_ends(thread.serial, event.result));
  if (event.registers) {  // of sigreturn, and of what would be executed here but was answered in the kernel's place
    if (!from_bytes(event.registers->general, thread.regs))
      return Error{"an event holds no registers", Status::damaged};
    thread.regs.orig_rax = ~0ull;
    const Bytes& xstate = event.registers->xstate;
    if (!xstate.empty() && !set_xstate(thread.tid, xstate)) return errno_error("cannot set extended registers");
    if (!redriving_.gates.set_regs(thread, thread.regs)) return errno_error("cannot set registers");
    return Step::as_recorded();
  }
  if (row && executes_program(*row, args) && event.result == 0) {
    TRY_STEP(effects_.write_memory(thread, index, event));
    redriving_.forget_process(thread.process);
    return Step::as_recorded();
  }
  TRY(effects_.change_objects(event));
  if (row && row->special != Special::none) {
    Event call = event;
    call.args = args;
    TRY(change_memory(thread, call, row->special));
  }
  TRY_STEP(effects_.write_memory(thread, index, event));
  effects_.limit_stack(thread, event);
  thread.regs.rax = static_cast<uint64_t>(event.result);
  if (restarts(event.result)) {
    // Unless a handler runs now (the next event says so), the kernel enters the call again.
    thread.regs.rip -= 2;
    thread.regs.rax = static_cast<uint64_t>(event.result == kErestartRestartblock ? SYS_restart_syscall : number);
  }
  thread.regs.orig_rax = ~0ull;
  if (!redriving_.gates.set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  return Step::as_recorded();
}

// What a call does to the memory layout, and to segments.
Result<void> CallReplay::change_memory(RedrivenThread& thread, const Event& call, Special special) {
  RedrivenUnit& unit = redriving_.unit;
  RestoredProcess& process = unit.process(thread.process);
  const bool writes_code = makes_writable_code(static_cast<uint64_t>(call.number), call.args[2]);
  if (writes_code && !cpuid_traps()) unit.stay_on_first_processor();
  ASSIGN_OR_RETURN(const auto changed_code, patcher_.code_changes(thread.process, call, special, process.brk));
  const auto moved = redriving_.gates.make_room(thread, call, special);
  StubCalls calls(process.stub, thread.tid);
  if (may_have_changed(call, special)) TRY(replay_failed_memory_call(call, process.stub, thread.tid));
  const bool remaps = special == Special::mremap && !is_error(call.result);
  ASSIGN_OR_RETURN(const bool in_pieces, remaps ? remap_pieces(call, process.stub, calls) : Result<bool>(false));
  if (!in_pieces) {
    TRY(replay_memory_call(call, special, process.stub, process.brk, calls, unit.shared(), redriving_.file_path));
  }
  TRY(calls.run());
  if (!changed_code.empty()) TRY(patcher_.read_code_again(thread.process, changed_code));
  TRY(redriving_.gates.map(moved, thread.tid));
  if (special == Special::personality) {
    const auto implies = read_implies_exec_set_by(call.args, call.result);
    return implies ? let_read_imply_exec(process.stub, thread.tid, *implies) : Result<void>();
  }
  if (call.result != 0) return {};
  constexpr uint64_t kArchSetGs = 0x1001, kArchSetFs = 0x1002;
  if (special == Special::arch_prctl) {
    if (call.args[0] == kArchSetFs) thread.regs.fs = 0, thread.regs.fs_base = call.args[1];
    if (call.args[0] == kArchSetGs) thread.regs.gs = 0, thread.regs.gs_base = call.args[1];
  }
  if (special == Special::modify_ldt) {
    const auto written = descriptor_written(call.args, unit.memory(thread));
    if (!written) return Error{"a segment's description cannot be read"};
    TRY(process.stub.describe(thread.tid, *written));
    apply(*written, *process.descriptors);
  }
  return {};
}

}  // namespace redrive
