#include "supervisor/record/tracees/tracees.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/procfs.h"
#include "supervisor/record/front/lifeline.h"
#include "supervisor/record/tracees/proc_file.h"

namespace redrive {
namespace {

// The PID namespace in which a process knows others by their numbers.
std::string pid_namespace(pid_t tid) { return proc_namespace(tid, "pid"); }

}  // namespace

Thread* Tracees::find(pid_t tid) {
  const auto it = threads_.find(tid);
  return it == threads_.end() ? nullptr : it->second.get();
}

Unit* Tracees::find_unit(UnitId id) {
  const auto it = units_.find(id);
  return it == units_.end() ? nullptr : it->second.get();
}

uint64_t Tracees::events() const {
  uint64_t sum = removed_events_;
  for (const auto& [id, unit] : units_) sum += unit->log.next();
  return sum;
}

void Tracees::remove_unit(UnitId id) {
  const auto found = units_.find(id);
  if (found == units_.end()) return;
  removed_events_ += found->second->log.next();
  units_.erase(found);
}

Unit& Tracees::add_unit(EventRef parent, pid_t pid) {
  const UnitId id = next_unit_++;
  auto& unit = units_[id] = std::make_unique<Unit>(tracer_, writer_, now_, id);
  unit->record = UnitRecord{id, pid, parent, {}};
  writer_.add(unit->record);
  return *unit;
}

Process& Tracees::add_process(Unit& unit, pid_t pid, const Process* sharer) {
  auto process = std::make_unique<Process>();
  process->serial = unit.next_process++;
  process->pid = pid;
  process->unit = &unit;
  process->pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  process->memory_id = sharer ? sharer->memory_id : new_memory();
  process->descriptors = sharer ? sharer->descriptors : std::make_shared<LocalDescriptors>();
  process->shared_mappings = sharer ? sharer->shared_mappings : std::make_shared<SharedMappings>();
  if (sharer) {
    process->memory = Memory::shared(pid, sharer->memory);
  } else if (auto memory = tracer_.open_memory(pid)) {
    process->memory = std::move(*memory);
  }
  unit.clock.add(pid);
  note_recorded(pid);
  unit.processes.push_back(std::move(process));
  return *unit.processes.back();
}

Thread& Tracees::add_thread(Process& process, pid_t tid, std::shared_ptr<FdCache> fds) {
  auto thread = std::make_unique<Thread>();
  thread->tid = tid;
  thread->serial = process.unit->next_thread++;
  thread->process = &process;
  thread->fds = std::move(fds);
  ++process.threads;
  process.unit->threads[thread->serial] = thread.get();
  return *(threads_[tid] = std::move(thread));
}

void Tracees::remove_thread(Thread& thread) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  unit.threads.erase(thread.serial);
  unit.baton.forget(thread);
  for (const auto& [id, other] : units_) std::erase(other->writers, &thread);
  if (--process.threads == 0) forget_recorded(process.pid);
  threads_.erase(thread.tid);
}

void Tracees::rename(Thread& thread, pid_t tid) {
  auto node = threads_.extract(thread.tid);
  node.key() = thread.tid = tid;
  threads_.insert(std::move(node));
}

Thread* Tracees::named(const Thread& caller, pid_t number) {
  const std::string space = pid_namespace(caller.tid);
  if (space == pid_namespace(getpid())) return find(number);
  for (const auto& [tid, thread] : threads_) {
    if (pid_in_own_namespace(tid) == number && pid_namespace(tid) == space) return thread.get();
  }
  return nullptr;
}

// Where procfs is not the recorder's, which PID namespace it is of can only be guessed: the reader's, most likely, or
// else that of a thread with this number, which has given the reader the descriptor.
Thread* Tracees::shown_in(const ProcFile& file, pid_t number, const Thread& reader) {
  if (file.ours) return find(number);
  if (Thread* const found = named(reader, number)) return found;
  for (const auto& [tid, thread] : threads_) {
    if (pid_in_own_namespace(tid) == number) return thread.get();
  }
  return nullptr;
}

}  // namespace redrive
