#include "supervisor/record/tracees/tracee.h"

#include <algorithm>

namespace redrive {

pid_t tid_named(const Thread& caller, uint64_t number) {
  const auto named = static_cast<pid_t>(number);
  if (named == 0) return caller.tid;
  const pid_t own = pid_in_own_namespace(caller.tid);
  if (named == own) return caller.tid;
  return own == caller.tid ? named : -1;
}

void separate_descriptors(Thread& thread, RecordedGate* gate) {
  Process& process = *thread.process;
  auto own = std::make_shared<FdCache>();
  own->known = thread.fds->known;
  thread.fds = std::move(own);
  process.separate_tables |= process.threads > 1;
  // A socket that is connected through one table is connected for the other one, too.
  if (gate) gate->forget_fresh(0, gate::kDescriptors - 1);
}

int pidfd_of_table(Thread& thread) {
  if (!thread.process->separate_tables) return thread.process->pidfd.get();
  if (!thread.pidfd) thread.pidfd = pidfd_of_thread(thread.tid);
  return thread.pidfd.get();
}

bool at_rest(const Unit& unit) {
  const auto runs = [](const auto& entry) {
    const Thread& thread = *entry.second;
    return thread.is<Thread::User>();
  };
  return unit.at_event || std::none_of(unit.threads.begin(), unit.threads.end(), runs);
}

bool births_unseen(const Unit& unit) {
  const auto starts = [](const auto& entry) {
    const Thread& thread = *entry.second;
    return thread.is<Thread::Starting>();
  };
  return std::any_of(unit.threads.begin(), unit.threads.end(), starts);
}

bool births_pending(const Unit& unit) {
  return births_unseen(unit) ||
         std::any_of(unit.processes.begin(), unit.processes.end(), [](const auto& p) { return p->borrows_memory; });
}

std::vector<MemoryWrite>& writes_into(Process& target, const Thread& writer, Event& event) {
  return target.memory_id == writer.process->memory_id ? event.writes : target.written;
}

}  // namespace redrive
