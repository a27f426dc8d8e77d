#include "supervisor/record/disguise/adapted_opens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "supervisor/record/kernel/stack_piece.h"
#include "supervisor/record/memory/descriptor_info.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/proc_file.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Whether the thread's call opens a file by its name.
bool opens_file(const SyscallRow& row) {
  const auto is_path = [](const auto& arg) { return arg.kind == ArgKind::path; };
  return row.new_descriptor == NewDescriptor::file && std::any_of(row.args.begin(), row.args.end(), is_path);
}

}  // namespace

void AdaptedOpens::replace(Thread& thread, const user_regs_struct& stopped, const user_regs_struct& canonical) {
  const uint64_t descriptor = stopped.rax;
  if (is_error(static_cast<int64_t>(descriptor)) || !opens_file(*thread.call.row)) return;
  const auto find_subject = [&](const ProcFile& status) -> std::optional<AdaptedFiles::Subject> {
    const Thread* const of = tracees_.shown_in(status, status.thread, thread);
    if (!of) return {};
    return AdaptedFiles::Subject{of->confinement, of->processors, of->is<Thread::GroupStopped>()};
  };
  const auto text = adapted_files_.contents(thread.tid, descriptor, find_subject);
  if (!text) return;
  // While it slept, another thread may have had the instruction replaced that it came from.
  user_regs_struct now = stopped;
  if (const Gate* const gate = thread.process->tier()) now.rip = gate->physical(canonical.rip);
  const auto call = [&](long number, std::initializer_list<uint64_t> args) {
    const auto made = calls_.call_at(caller_of(thread), now.rip - kSyscallSize, now, number, args);
    return made ? *made : int64_t{-1};
  };
  if (!put(thread, descriptor, *text, stopped.rsp, call)) {
    findings_.add_unsure(*thread.process->unit, "a file that it opened could not be adapted");
  }
  control_.set_regs(thread, canonical);
}

// Puts an object with this text in the place of what is open there, which is open as that was. Where there is no
// procfs, it is open for writing, too. False if that fails; then the descriptor is as it was.
bool AdaptedOpens::put(const Thread& thread, uint64_t descriptor, const std::string& text, uint64_t stack,
                       const Call& call) {
  constexpr size_t kRoom = 32;  // for /proc/self/fd/N
  constexpr char kName[] = "status";
  const uint64_t flags = DescriptorInfo::read(thread.tid, descriptor).flags;
  if (flags & (O_ACCMODE | O_PATH)) return true;
  const Memory& memory = thread.process->memory;
  const StackPiece piece(memory, stack, kRoom);
  const Address at = piece.at();
  if (!piece.readable() || !memory.write(at, kName, sizeof kName)) return false;
  const int64_t object = call(SYS_memfd_create, {at, 0});
  bool done = false;
  if (!is_error(object)) {
    const Fd file(open(descriptor_path(thread.tid, static_cast<uint64_t>(object)).c_str(), O_WRONLY | O_CLOEXEC));
    done = file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const std::string path = fmt::format("/proc/self/fd/{}", object);
    const bool named = memory.write(at, path.c_str(), path.size() + 1);
    const auto how = flags & ~uint64_t{O_CLOEXEC | O_NOFOLLOW};  // the path is a symbolic link
    const int64_t opened = named ? call(SYS_open, {at, how, 0}) : -1;
    const auto from = static_cast<uint64_t>(is_error(opened) ? object : opened);
    done = done && !is_error(call(SYS_dup3, {from, descriptor, flags & O_CLOEXEC}));
    if (!is_error(opened)) call(SYS_close, {static_cast<uint64_t>(opened)});
    call(SYS_close, {static_cast<uint64_t>(object)});
  }
  return done;
}

}  // namespace redrive
