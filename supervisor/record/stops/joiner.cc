#include "supervisor/record/stops/joiner.h"

#include <algorithm>

#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/placement/placer.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/thread_control.h"

namespace redrive {

Unit* Joiner::join_target(const Unit& unit, Unit* other) {
  while (other && other->joins) other = other->joins;
  return other == &unit ? nullptr : other;
}

void Joiner::join_unit(Thread& thread, Thread::Ready ready, Unit& target, const std::string& object) {
  Unit& unit = *thread.process->unit;
  unit.log.flush();
  thread.state = ready;
  unit.baton.queue_first(thread);
  unit.baton.give_up();
  unit.joins = &target;
  unit.join_object = object;
  target.joining.push_back(&unit);
  // A system call that sleeps may do so for long: it is interrupted, and entered again.
  if (Thread* const holder = target.baton.holder()) {
    ask_to_stop(*holder);
    if (holder->is<Thread::Syscall>() || holder->is<Thread::User>()) {
      holder->woken = holder->is<Thread::Syscall>();
      tracer_.interrupt(holder->tid);
    }
  }
  turns_.schedule(target);
}

void Joiner::leave_join(Unit& unit) {
  if (Unit* const target = std::exchange(unit.joins, nullptr)) std::erase(target->joining, &unit);
}

void Joiner::absorb(Unit& unit) {
  unit.log.flush();
  intervals_.end(unit);
  unit.first_joined_thread = std::min(unit.first_joined_thread, unit.next_thread);
  unit.first_joined_process = std::min(unit.first_joined_process, unit.next_process);
  while (!unit.joining.empty()) {
    Unit& joined = *unit.joining.back();
    unit.joining.pop_back();
    unit.joining.insert(unit.joining.end(), joined.joining.begin(), joined.joining.end());
    joined.joining.clear();
    writer_.add(Join{unit.id, joined.id, unit.log.next(), joined.processes.front()->pid, joined.join_object});
    joined.log.flush();  // processes may have been killed meanwhile
    intervals_.end(joined);
    for (auto& process : joined.processes) {
      unit.clock.take(joined.clock, process->pid);
      process->unit = &unit;
      if (process->tier()) process->tier()->unit = &unit;
      process->serial = unit.next_process++;
      unit.processes.push_back(std::move(process));
    }
    joined.processes.clear();
    for (const auto& [serial, thread] : joined.threads) {
      thread->serial = unit.next_thread++;
      unit.threads[thread->serial] = thread;
    }
    joined.threads.clear();
    unit.baton.join(joined.baton);
    unit.writers.insert(unit.writers.end(), joined.writers.begin(), joined.writers.end());
    joined.writers.clear();
    unit.record.joined.push_back(joined.id);
    ends_.unit_ended(joined.id);
  }
  placer_.place(unit);
  writer_.add(unit.record);
  unit.checkpoint_first = true;
}

}  // namespace redrive
