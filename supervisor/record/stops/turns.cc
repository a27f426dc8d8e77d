#include "supervisor/record/stops/turns.h"

#include "supervisor/record/stops/births.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/foreign_memory.h"
#include "supervisor/record/stops/gate_stops.h"
#include "supervisor/record/stops/joiner.h"
#include "supervisor/record/stops/preempter.h"
#include "supervisor/record/stops/stopped_calls.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/births.h"

namespace redrive {

void Turns::take_or_queue(Thread& thread, Thread::Ready ready) {
  thread.state = ready;
  Unit& unit = *thread.process->unit;
  if (unit.baton.is_kept_by(thread) && woke_nobody(thread)) unit.baton.stop_keeping();
  if (!thread.tracer) unit.baton.queue(thread);
  gate_stops_.take_from_sleeper(unit);
  Thread* const holder = unit.baton.holder();
  const bool runs = holder && holder->is<Thread::User>();
  if (runs && unit.step_turns.is_due(holder->serial, tracer_.now())) ask_to_stop(*holder);
  schedule(unit);
}

void Turns::give_up(Unit& unit) {
  unit.baton.give_up();
  schedule(unit);
}

void Turns::give_way(Thread& thread, const user_regs_struct& regs) {
  thread.entry = regs;
  thread.entry.orig_rax = ~0ull;
  thread.process->unit->baton.give_up();
  take_or_queue(thread, {Thread::Stop::preempted});
}

bool Turns::woke_nobody(const Thread& waker) const {
  user_regs_struct regs;
  return !control_.get_regs(waker, regs) || static_cast<int64_t>(regs.rax) <= 0;
}

void Turns::stop_keeping(Unit& unit) {
  if (Thread* const late = unit.baton.kept_for()) {
    late->call.goes_on = false;
    unit.step_turns.took_until(tracer_.now());
  }
  if (unit.baton.stop_keeping()) schedule(unit);
}

void Turns::schedule(Unit& unit) {
  if (unit.baton.is_held() || unit.joins) return;
  if (!unit.joining.empty()) joiner_.absorb(unit);
  foreign_.let_write(unit);
  if (unit.baton.is_held()) return;
  Thread* next = nullptr;
  do {
    next = unit.baton.next();
    if (!next) return;
  } while (next->process->end_logged || (unit.checkpoint_first && !checkpointer_.begin_joined_interval(unit, *next)));
  Thread& thread = *next;
  unit.baton.take(thread, tracer_.now());
  unit.patience.reset();
  const auto ready = std::get<Thread::Ready>(thread.state);
  switch (ready.stop) {
    case Thread::Stop::start:
      births_.start(thread);
      break;
    case Thread::Stop::exit:
      thread.state = Thread::Syscall{};
      stopped_calls_.leave(thread);
      break;
    case Thread::Stop::preempted:
      preempter_.go_on(thread, true);
      break;
    case Thread::Stop::continued:
      thread.xstate.clear();
      thread.amid = true;
      if (user_regs_struct regs; control_.get_regs(thread, regs)) control_.resume_user(thread, regs, ready.rewound);
      break;
  }
}

}  // namespace redrive
