#include "supervisor/record/stops/confined_calls.h"

#include "base/overloaded.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/stopped_calls.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"

namespace redrive {
namespace {

Confinement::Call call_of(const Thread& thread) {
  return {thread.call.row, thread.entry.orig_rax, thread.entry.rip, thread.call.args};
}

}  // namespace

bool ConfinedCalls::forbidden(Thread& thread) {
  const Confinement::Verdict verdict = thread.confinement.judge(call_of(thread));
  std::visit(Overloaded{
                 [](const Confinement::Allowed&) {},
                 [&](const Confinement::Answered& answered) { stopped_calls_.answer_call(thread, answered.result); },
                 [&](const Confinement::Trapped& trapped) {
                   if (signals_.raise_caught(thread, trapped.info)) {
                     stopped_calls_.answer_call(thread, trapped.result);
                   } else {
                     end_forbidden(thread, trapped.info.si_signo, true);
                   }
                 },
                 [&](const Confinement::Fatal& fatal) { end_forbidden(thread, fatal.signal, fatal.whole_process); },
             },
             verdict);
  return !std::holds_alternative<Confinement::Allowed>(verdict);
}

// A forbidden call ends the thread, or its whole process if there is no other thread.
void ConfinedCalls::end_forbidden(Thread& thread, int signal, bool whole_process) {
  Process& process = *thread.process;
  Event& entry = events_.open_event(thread);
  const bool alone = process.threads == 1;
  if (whole_process || alone) {
    Event event;
    event.kind = EventKind::signal;
    event.thread = thread.serial;
    event.number = signal;
    event.ip = thread.entry.rip;
    event.args[0] = static_cast<uint64_t>(SignalPoint::anywhere);
    event.fatal = true;
    ends_.note_late_writes(process, event.writes);
    process.unit->log.add(std::move(event));
    process.end_logged = true;
    thread.state = Thread::Syscall{};
  } else {
    entry.result = -ENOSYS;  // not the call's own end
  }
  if (signal == SIGKILL && alone) {
    tracer_.send(process.pid, SIGKILL);
    return;
  }
  // The kernel ends it, by the filter that the recorder has installed.
  const ExactCall call = fatal_call(whole_process);
  user_regs_struct regs = thread.entry;
  regs.orig_rax = static_cast<uint64_t>(call.number);
  for (int i = 0; i < 6; ++i) syscall_arg(regs, i) = *call.args[static_cast<size_t>(i)];
  tracer_.set_regs(thread.tid, regs);
  if (whole_process || alone) {
    control_.resume(thread, Resume::cont);
  } else {
    ends_.end_thread(thread, false);
  }
}

void ConfinedCalls::confine(Thread& thread) {
  std::vector<Confinement::Other> others;
  for (const auto& [serial, other] : thread.process->unit->threads) {
    if (other == &thread || other->process != thread.process || other->exited) continue;
    others.push_back({other->tid, &other->confinement});
  }
  const auto answer = thread.confinement.answer(call_of(thread), {thread.tid, thread.process->memory, others});
  if (answer.refused) findings_.count_refusal(thread, thread.call.row, static_cast<int>(-answer.result));
  stopped_calls_.answer_call(thread, answer.result);
}

}  // namespace redrive
