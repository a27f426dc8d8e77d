#include "supervisor/record/disguise/adapted_opens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/registers.h"

namespace redrive {

void AdaptedOpens::open(Thread& thread) {
  const size_t first = thread.call.row->number == SYS_open ? 0 : 1;  // openat(2): after the directory
  const uint64_t flags = thread.call.args[first + 1];
  if (thread.call.row->new_descriptor != NewDescriptor::file || flags & (O_ACCMODE | O_PATH | O_DIRECTORY)) return;
  const auto find_subject = [&](pid_t tid) -> std::optional<AdaptedFiles::Subject> {
    const Thread* const of = tracees_.find(tid);
    if (!of) return {};
    return AdaptedFiles::Subject{of->confinement, of->processors};
  };
  const std::filesystem::path named(thread.process->memory.string(thread.call.args[first]));
  const std::string path = named.lexically_normal();  // "/proc//self/./status"
  thread.call.adapted = adapted_files_.contents({thread.tid, thread.process->pid}, path, find_subject);
  if (!thread.call.adapted) return;
  user_regs_struct regs = thread.entry;
  regs.orig_rax = SYS_memfd_create;
  regs.rdi = thread.call.args[first];  // its name
  regs.rsi = flags & O_CLOEXEC ? MFD_CLOEXEC : 0;
  if (!control_.set_regs(thread, regs)) thread.call.adapted.reset();
}

void AdaptedOpens::fill(Thread& thread, const user_regs_struct& stopped, user_regs_struct& regs) {
  const std::string text = *std::exchange(thread.call.adapted, std::nullopt);
  regs.orig_rax = thread.entry.orig_rax;
  regs.rdi = thread.entry.rdi;
  regs.rsi = thread.entry.rsi;
  if (is_error(static_cast<int64_t>(regs.rax))) {
    control_.set_regs(thread, regs);
    return;
  }
  const Fd object(::open(descriptor_path(thread.tid, regs.rax).c_str(), O_WRONLY | O_CLOEXEC));
  const ssize_t size = object ? write(object.get(), text.data(), text.size()) : -1;
  if (size != static_cast<ssize_t>(text.size())) {
    findings_.add_unsure(*thread.process->unit, "a file that it opened could not be adapted");
  }
  // While it slept, another thread may have had the instruction replaced that it came from.
  user_regs_struct now = stopped;
  if (const Gate* const gate = thread.process->tier()) now.rip = gate->physical(regs.rip);
  open_for_reading(thread, now);
  control_.set_regs(thread, regs);
}

// The object's descriptor, which the thread has just got, becomes one that is open for reading only, as it was asked
// for. Where there is no procfs it stays as it is.
void AdaptedOpens::open_for_reading(Thread& thread, const user_regs_struct& stopped) {
  constexpr uint64_t kRedZone = 128;
  const Memory& memory = thread.process->memory;
  const std::string path = fmt::format("/proc/self/fd/{}", stopped.rax);
  const Address at = stopped.rsp - kRedZone - path.size() - 1;
  Bytes covered(path.size() + 1);
  if (!memory.read(at, covered.data(), covered.size()) || !memory.write(at, path.c_str(), covered.size())) return;
  const auto call = [&](long number, std::initializer_list<uint64_t> args) {
    const auto made = calls_.call_at(caller_of(thread), stopped.rip - kSyscallSize, stopped, number, args);
    return made ? *made : int64_t{-1};
  };
  const auto closed_at_exec = thread.call.args[thread.call.row->number == SYS_open ? 1 : 2] & O_CLOEXEC;
  const int64_t opened = call(SYS_open, {at, O_RDONLY, 0});
  if (!is_error(opened)) {
    call(SYS_dup3, {static_cast<uint64_t>(opened), stopped.rax, closed_at_exec});
    call(SYS_close, {static_cast<uint64_t>(opened)});
  }
  memory.write(at, covered.data(), covered.size());
}

}  // namespace redrive
