#include "supervisor/record/stops/trap_answers.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "interceptors/trapped_instructions.h"
#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/code_patching.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/stopped_calls.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/thread_control.h"

namespace redrive {
namespace {

// The instruction that was replaced by another one at `ip`, which is patched if `patched` is not null. Nothing if the
// program itself has put the one at `ip` there.
std::optional<TrappedInstruction> replaced(const Process& process, const PatchedSite* patched, Address ip) {
  if (patched) {
    if (patched->kind == SiteKind::syscall || is_loop(patched->kind)) return {};
    return patched->kind == SiteKind::cpuid ? cpuid_instruction()
                                            : counter_instruction(instruction_size(patched->kind));
  }
  const auto known = process.stand_ins.find(ip);
  if (known == process.stand_ins.end()) return {};
  return known->second;
}

}  // namespace

bool TrapAnswers::answer_instruction(Thread& thread, int signal, const user_regs_struct& regs) {
  const Process& process = *thread.process;
  uint8_t code[3] = {};
  const PatchedSite* patched = process.gate ? process.gate->patched(regs.rip) : nullptr;
  const Address at = patched ? patched->stop : regs.rip;
  process.memory.read_some(at, code, sizeof code);
  const auto trap = is_stand_in(code) ? replaced(process, patched, regs.rip) : trapped_at(process.memory, at);
  if (!trap) return false;
  if (!forced_.undo_forced(thread, signal, regs)) return true;
  const bool is_new = !reads_counter(*trap) && is_stand_in(code) && !answers_.has(cpuid_question(regs));
  if (is_new) patching_.note_question(thread, regs.rip, cpuid_question(regs));
  user_regs_struct after = regs;
  answer(*trap, after, answers_);
  add_trap(thread, *trap, regs, after);
  if (reads_counter(*trap)) {
    if (arena_) arena_->set_counter(counter());
    const bool with_processor = trap->instruction == static_cast<int32_t>(Trap::rdtscp);
    patching_.patch_instruction(thread, regs.rip, with_processor ? SiteKind::rdtscp : SiteKind::rdtsc);
  } else if (is_stand_in(code)) {
    if (arena_) arena_->set_answers(answers_.all());
    patching_.patch_instruction(thread, regs.rip, SiteKind::cpuid);
  }
  control_.set_regs(thread, after);
  go_on(thread, after);
  return true;
}

// The thread stands right after the instruction. If it executes such instructions in a loop without calls, others have
// their turn, and signals come, only here.
void TrapAnswers::go_on(Thread& thread, const user_regs_struct& regs) {
  Baton& baton = thread.process->unit->baton;
  if (baton.is_awaited() && (spins(thread) || tracer_.now() - baton.since() > kBatonSlice)) {
    thread.entry = regs;
    thread.xstate = tracer_.get_xstate(thread.tid);
    baton.give_up();
    turns_.take_or_queue(thread, {Thread::Stop::continued});
    return;
  }
  signals_.raise_held(thread);
  control_.resume_user(thread, regs);
}

void TrapAnswers::answer_vsyscall(Thread& thread) {
  const Memory& memory = thread.process->memory;
  const auto number = static_cast<int64_t>(thread.entry.orig_rax);
  ++thread.process->unit->stopped_calls;
  thread.call.args = syscall_args(thread.entry);
  thread.call.row = find_row(number, thread.call.args);
  if (!thread.call.row) return stopped_calls_.refuse(thread, nullptr);
  events_.open_call(thread, Memory::snapshot(memory));
  const auto put = [&](uint64_t at, const auto& value) { return !at || memory.put(at, value); };
  const auto& args = thread.call.args;
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
  control_.set_regs(thread, regs);
  events_.close_stopped(thread, result);
  control_.resume_user(thread, regs);
}

void TrapAnswers::add_trap(Thread& thread, const TrappedInstruction& trap, const user_regs_struct& before,
                           const user_regs_struct& after) {
  Event event;
  event.kind = EventKind::trap;
  event.thread = thread.serial;
  event.number = trap.instruction;
  event.ip = before.rip;
  event.args = {after.rax, after.rbx, after.rcx, after.rdx, before.rax, before.rcx};
  thread.process->unit->log.add(std::move(event));
  thread.turns.got_on();
}

}  // namespace redrive
