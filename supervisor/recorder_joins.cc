// Units that come to share writable memory become one: from then on one thread of all of them runs at a time, and a
// checkpoint of all begins the interval. (Processes that share memory by fork are in one unit from birth.)
#include <sys/mman.h>
#include <sys/ptrace.h>

#include <algorithm>

#include "checkpoint/address_space.h"
#include "supervisor/memory_calls.h"
#include "supervisor/recorder.h"
#include "supervisor/registers.h"

namespace redrive {

// Freezes the thread's unit until the other one is at an event. Then the thread's stop is handled (again).
void Recorder::join_unit(Thread& thread, Thread::Stop stop, Unit& target, const std::string& object) {
  Unit& unit = *thread.process->unit;
  unit.log.flush();
  thread.run = Thread::Run::ready;
  thread.stop = stop;
  unit.ready.push_front(&thread);
  unit.current = nullptr;
  unit.frozen = true;
  unit.join_object = object;
  target.joining.push_back(&unit);
  // A system call that sleeps may do so for long: it is interrupted, and entered again.
  if (target.current) {
    ask_to_stop(*target.current);
    if (target.current->run == Thread::Run::syscall || target.current->run == Thread::Run::user) {
      target.current->woken = target.current->run == Thread::Run::syscall;
      ptrace(PTRACE_INTERRUPT, target.current->tid, nullptr, nullptr);
    }
  }
  schedule(target);
}

void Recorder::absorb(Unit& unit) {
  unit.log.flush();
  end_interval(unit);
  unit.first_joined_thread = unit.next_thread;
  unit.first_joined_process = unit.next_process;
  for (Unit* joined : std::exchange(unit.joining, {})) {
    writer_.add(Join{unit.id, joined->id, unit.log.next(), joined->processes.front()->pid, joined->join_object});
    end_interval(*joined);
    for (auto& process : joined->processes) {
      process->unit = &unit;
      if (process->tier()) process->tier()->unit = &unit;
      process->serial = unit.next_process++;
      unit.processes.push_back(std::move(process));
    }
    joined->processes.clear();
    for (const auto& [serial, thread] : joined->threads) {
      thread->serial = unit.next_thread++;
      unit.threads[thread->serial] = thread;
    }
    joined->threads.clear();
    unit.ready.insert(unit.ready.end(), joined->ready.begin(), joined->ready.end());
    joined->ready.clear();
    unit.writers.insert(unit.writers.end(), joined->writers.begin(), joined->writers.end());
    joined->writers.clear();
    unit.record.joined.push_back(joined->id);
    ended_units_.push_back(joined->id);
  }
  place(unit);
  writer_.add(unit.record);
  unit.checkpoint_first = true;
}

}  // namespace redrive
