// The threads, processes and units that are recorded: which there are, and under which numbers. It owns them all. A
// thread is removed when the kernel has reported its end, a unit when nothing refers to it any more. It decides
// nothing.
#pragma once

#include "logstore/trace.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

struct ProcFile;

class Tracees {
 public:
  // `now`: the time of events (EventClock).
  Tracees(Tracer& tracer, TraceWriter& writer, const EventTime& now) : tracer_(tracer), writer_(writer), now_(now) {}

  // The threads and the units, by their numbers.
  const std::unordered_map<pid_t, std::unique_ptr<Thread>>& threads() const { return threads_; }
  const std::map<UnitId, std::unique_ptr<Unit>>& units() const { return units_; }
  // How many events units have made, also those that were removed.
  uint64_t events() const;
  // Null if there is no such thread, or no such unit.
  Thread* find(pid_t tid);
  Unit* find_unit(UnitId id);
  // The recorded thread that another one calls by this number; null if there is none.
  Thread* named(const Thread& caller, pid_t number);
  // The recorded thread that a file of procfs means by this number; null if there is none. `reader` has it open.
  Thread* shown_in(const ProcFile& file, pid_t number, const Thread& reader);
  // `parent` is the event of its birth, `pid` its first process.
  Unit& add_unit(EventRef parent, pid_t pid);
  // `sharer`: the process whose memory it shares; null if there is none.
  Process& add_process(Unit& unit, pid_t pid, const Process* sharer = nullptr);
  Thread& add_thread(Process& process, pid_t tid, std::shared_ptr<FdCache> fds);
  void remove_thread(Thread& thread);
  void remove_unit(UnitId id);
  // The thread has executed a program, and has the number of its group's leader from now on (execve(2)).
  void rename(Thread& thread, pid_t tid);
  // A new number for memory (Process::memory_id).
  uint64_t new_memory() { return ++memories_; }

 private:
  Tracer& tracer_;
  TraceWriter& writer_;
  const EventTime& now_;
  std::map<UnitId, std::unique_ptr<Unit>> units_;
  uint64_t removed_events_ = 0;
  std::unordered_map<pid_t, std::unique_ptr<Thread>> threads_;
  UnitId next_unit_ = 1;
  uint64_t memories_ = 0;  // that processes have had (Process::memory_id)
};

}  // namespace redrive
