// Units that come to share writable memory become one: from then on one thread of all of them runs at a time, and a
// checkpoint of all begins the interval. (Processes that share memory by fork are in one unit from birth.)
#include <sys/mman.h>

#include <algorithm>

#include "checkpoint/address_space.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {

// The unit to wait for so that this one comes into one with the other: the other one may be frozen itself, to become
// part of a third. Null if that is this one, which absorbs the other at its next event; until then the other does not
// run.
Unit* Recorder::join_target(const Unit& unit, Unit* other) {
  while (other && other->joins) other = other->joins;
  return other == &unit ? nullptr : other;
}

// Freezes the thread's unit until `target`, which is not frozen, is at an event. Then the thread's stop is handled
// (again).
void Recorder::join_unit(Thread& thread, Thread::Stop stop, Unit& target, const std::string& object) {
  Unit& unit = *thread.process->unit;
  unit.log.flush();
  thread.run = Thread::Run::ready;
  thread.stop = stop;
  unit.baton.queue_first(thread);
  unit.baton.give_up();
  unit.joins = &target;
  unit.join_object = object;
  target.joining.push_back(&unit);
  // A system call that sleeps may do so for long: it is interrupted, and entered again.
  if (Thread* const holder = target.baton.holder()) {
    ask_to_stop(*holder);
    if (holder->run == Thread::Run::syscall || holder->run == Thread::Run::user) {
      holder->woken = holder->run == Thread::Run::syscall;
      tracer_.interrupt(holder->tid);
    }
  }
  schedule(target);
}

// A unit that has ended does not become part of another one.
void Recorder::leave_join(Unit& unit) {
  if (Unit* const target = std::exchange(unit.joins, nullptr)) std::erase(target->joining, &unit);
}

// Those that wait for this unit become part of it, and with each those that wait for that one.
void Recorder::absorb(Unit& unit) {
  unit.log.flush();
  end_interval(unit);
  unit.first_joined_thread = unit.next_thread;
  unit.first_joined_process = unit.next_process;
  while (!unit.joining.empty()) {
    Unit& joined = *unit.joining.back();
    unit.joining.pop_back();
    unit.joining.insert(unit.joining.end(), joined.joining.begin(), joined.joining.end());
    joined.joining.clear();
    writer_.add(Join{unit.id, joined.id, unit.log.next(), joined.processes.front()->pid, joined.join_object});
    joined.log.flush();  // processes may have been killed meanwhile
    end_interval(joined);
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
    ended_units_.push_back(joined.id);
  }
  place(unit);
  writer_.add(unit.record);
  unit.checkpoint_first = true;
}

}  // namespace redrive
