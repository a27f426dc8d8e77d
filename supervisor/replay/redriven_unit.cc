#include "supervisor/replay/redriven_unit.h"

#include <algorithm>

namespace redrive {

void RedrivenUnit::take(RestoredUnit restored, const UnitState& state) {
  restored_ = std::move(restored);
  for (const auto& [serial, process] : restored_.processes) seat_.add(process.stub.pid());
  for (const auto& saved : state.threads) {
    add({saved.thread, saved.process, restored_.threads.at(saved.thread), saved.in_syscall, saved.regs, std::nullopt});
  }
  next_process_ = state.next_process;
  next_thread_ = state.next_thread;
}

void RedrivenUnit::take_first(RestoredProcess process, const user_regs_struct& regs) {
  const pid_t tid = process.stub.pid();
  add({0, add(std::move(process)), tid, false, regs, std::nullopt});
}

ProcessSerial RedrivenUnit::add(RestoredProcess process) {
  seat_.add(process.stub.pid());
  restored_.processes.emplace(next_process_, std::move(process));
  return next_process_++;
}

void RedrivenUnit::add(const RedrivenThread& thread) {
  threads_[thread.serial] = thread;
  next_thread_ = std::max(next_thread_, thread.serial + 1);
}

void RedrivenUnit::forget_process(ProcessSerial process) {
  std::erase_if(threads_, [&](const auto& entry) { return entry.second.process == process; });
  if (has(process)) seat_.remove(stub(process).pid());
  restored_.processes.erase(process);
}

ProcessSerial RedrivenUnit::memory_owner(ProcessSerial process) const {
  const auto memory = [](const auto& entry) { return entry.second.memory_of.value_or(entry.first); };
  const auto& processes = restored_.processes;
  const auto own = memory(*processes.find(process));
  return std::find_if(processes.begin(), processes.end(), [&](const auto& entry) { return memory(entry) == own; })
      ->first;
}

RedrivenThread* RedrivenUnit::find(ThreadSerial thread) {
  const auto found = threads_.find(thread);
  return found == threads_.end() ? nullptr : &found->second;
}

bool RedrivenUnit::was_killed() const {
  return std::any_of(restored_.processes.begin(), restored_.processes.end(),
                     [](const auto& process) { return process.second.stub.was_killed(); });
}

}  // namespace redrive
