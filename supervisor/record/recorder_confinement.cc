// What becomes of calls that programs have forbidden themselves (confinement.h). It is decided at the entry of each
// call before anything else is done about it; what is always allowed is served inside the program as ever.
#include "base/overloaded.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

Confinement::Call call_of(const Thread& thread) {
  return {thread.row, thread.entry.orig_rax, thread.entry.rip, thread.args};
}

}  // namespace

// The thread is at the entry of a call. True if that is forbidden; then all is done, and nothing has been logged
// before.
bool Recorder::forbidden(Thread& thread) {
  const Confinement::Verdict verdict = thread.confinement.judge(call_of(thread));
  std::visit(Overloaded{
                 [](const Confinement::Allowed&) {},
                 [&](const Confinement::Answered& answered) { answer_call(thread, answered.result); },
                 [&](const Confinement::Trapped& trapped) {
                   if (raise_caught(thread, trapped.info)) {
                     answer_call(thread, trapped.result);
                   } else {
                     end_forbidden(thread, trapped.info.si_signo, true);
                   }
                 },
                 [&](const Confinement::Fatal& fatal) { end_forbidden(thread, fatal.signal, fatal.whole_process); },
             },
             verdict);
  return !std::holds_alternative<Confinement::Allowed>(verdict);
}

// A forbidden call ends the thread, or its whole process if that has no other.
void Recorder::end_forbidden(Thread& thread, int signal, bool whole_process) {
  Process& process = *thread.process;
  Event& entry = open_event(thread);
  const bool alone = process.threads == 1;
  if (whole_process || alone) {
    Event event;
    event.kind = EventKind::signal;
    event.thread = thread.serial;
    event.number = signal;
    event.ip = thread.entry.rip;
    event.args[0] = static_cast<uint64_t>(SignalPoint::anywhere);
    event.fatal = true;
    process.unit->log.add(std::move(event));
    process.end_logged = true;
    thread.run = Thread::Run::syscall;
  } else {
    entry.result = -ENOSYS;  // not the call's own end
  }
  if (signal == SIGKILL && alone) {
    tracer_.send(process.pid, SIGKILL);
    return;
  }
  // The kernel does it, by the filter that the recorder has installed.
  const ExactCall call = fatal_call(whole_process);
  user_regs_struct regs = thread.entry;
  regs.orig_rax = static_cast<uint64_t>(call.number);
  for (int i = 0; i < 6; ++i) syscall_arg(regs, i) = *call.args[static_cast<size_t>(i)];
  tracer_.set_regs(thread.tid, regs);
  if (whole_process || alone) {
    resume(thread, Resume::cont);
  } else {
    end_thread(thread, false);
  }
}

// Answers a call by which the thread asks or says what is forbidden.
void Recorder::confine(Thread& thread) {
  std::vector<Confinement::Other> others;
  for (const auto& [serial, other] : thread.process->unit->threads) {
    if (other == &thread || other->process != thread.process || other->exited) continue;
    others.push_back({other->tid, &other->confinement});
  }
  const auto answer = thread.confinement.answer(call_of(thread), {thread.tid, thread.process->memory, others});
  if (answer.refused) count_refusal(thread, thread.row, static_cast<int>(-answer.result));
  answer_call(thread, answer.result);
}

}  // namespace redrive
