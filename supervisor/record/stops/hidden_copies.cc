#include "supervisor/record/stops/hidden_copies.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "supervisor/record/kernel/process_status.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// The arguments of a wait; -1: it has none such.
struct WaitForm {
  int kind, number, status, information, options, usage;
};

const WaitForm* form_of(const SyscallRow& row) {
  static constexpr WaitForm kWait4{-1, 0, 1, -1, 2, 3}, kWaitid{0, 1, -1, 2, 3, 4};
  if (row.number == SYS_wait4) return &kWait4;
  return row.number == SYS_waitid ? &kWaitid : nullptr;
}

uint64_t argument_of(const Thread& thread, int index) {
  return index < 0 ? 0 : thread.call.args[static_cast<size_t>(index)];
}

// The child that the wait has found, by the number that the process sees; 0 if it has found none, or does not say.
pid_t found_by(const Thread& thread, const WaitForm& form, int64_t result) {
  if (form.information < 0 || result != 0) return static_cast<pid_t>(std::max<int64_t>(result, 0));
  pid_t found = 0;
  const Address at = argument_of(thread, form.information);
  return at && thread.process->memory.get(at + offsetof(siginfo_t, si_pid), found) ? found : 0;
}

// Whether it says that there is nothing to find yet, though there are such children.
bool finds_none_yet(const Thread& thread, const WaitForm& form, int64_t result) {
  const bool says_what = form.information < 0 || argument_of(thread, form.information);
  return result == 0 && says_what && found_by(thread, form, result) == 0;
}

bool contains(const std::vector<pid_t>& copies, pid_t pid) {
  return std::find(copies.begin(), copies.end(), pid) != copies.end();
}

// One that the kernel leaves out is listed the next time.
std::vector<pid_t> all_children_of(pid_t pid) {
  std::vector<pid_t> children = children_of(pid);
  for (auto again = children_of(pid); again != children; again = children_of(pid)) children = std::move(again);
  return children;
}

// Which children a call waits for. `one` is no copy, because no program knows the numbers of copies.
enum class Waited : uint8_t { all, group, one };

Waited waited_by(const Thread& thread, const WaitForm& form, pid_t number) {
  if (form.kind < 0) return number == -1 ? Waited::all : number <= 0 ? Waited::group : Waited::one;
  const uint64_t kind = argument_of(thread, form.kind);
  return kind == P_ALL ? Waited::all : kind == P_PGID ? Waited::group : Waited::one;
}

// Whether the call waits for children of which one, at least, is no copy (wait(2)).
bool waits_for_own(const Thread& thread, const WaitForm& form) {
  const Process& process = *thread.process;
  const auto number = static_cast<pid_t>(argument_of(thread, form.number));
  const Waited waited = waited_by(thread, form, number);
  if (waited == Waited::one) return true;
  const bool all_kinds = argument_of(thread, form.options) & __WALL;
  const pid_t group = number == 0 ? group_seen_by(process.pid, process.pid) : std::abs(number);
  for (const pid_t child : all_children_of(process.pid)) {
    if (contains(process.copies, pid_in_own_namespace(child))) continue;
    if (waited == Waited::group && group_seen_by(process.pid, child) != group) continue;
    if (all_kinds || exit_signal(child) != SIGCHLD) return true;
  }
  return false;
}

}  // namespace

void HiddenCopies::enter(Thread& thread) {
  thread.call.wait_for_all.reset();
  const WaitForm* const form = form_of(*thread.call.row);
  if (!form || !(argument_of(thread, form->options) & (__WALL | __WCLONE))) return;
  auto& before = thread.call.wait_for_all.emplace().before;
  const auto keep = [&](int index, size_t size) {
    const Address at = argument_of(thread, index);
    Bytes bytes(size);
    if (at && thread.process->memory.read(at, bytes.data(), size)) {
      before.push_back({at, size, MemoryWrite::Kind::data, std::move(bytes)});
    }
  };
  keep(form->status, sizeof(int));
  keep(form->information, sizeof(siginfo_t));
  keep(form->usage, sizeof(rusage));
}

int64_t HiddenCopies::result(Thread& thread, int64_t result) {
  auto& wait = thread.call.wait_for_all;
  if (!wait) return result;
  Process& process = *thread.process;
  const WaitForm& form = *form_of(*thread.call.row);
  const pid_t found = found_by(thread, form, result);
  if (found <= 0 || !(contains(process.copies, found) || contains(wait->reaped, found))) {
    const bool had_copies = !process.copies.empty() || !wait->reaped.empty();
    wait.reset();
    return had_copies && finds_none_yet(thread, form, result) && !waits_for_own(thread, form) ? -ECHILD : result;
  }
  for (const MemoryWrite& write : wait->before) {
    process.memory.write(write.address, write.data.data(), write.data.size());
  }
  return kErestartNoInterrupt;
}

void HiddenCopies::leave(Thread& thread, Event& event) {
  const auto wait = std::exchange(thread.call.wait_for_all, {});
  if (wait) event.writes.insert(event.writes.end(), wait->before.begin(), wait->before.end());
}

void HiddenCopies::forget(Process& process, pid_t copy) {
  std::erase(process.copies, copy);
  for (const auto& [serial, thread] : process.unit->threads) {
    if (thread->process == &process && thread->call.wait_for_all) thread->call.wait_for_all->reaped.push_back(copy);
  }
}

}  // namespace redrive
