#include "supervisor/record/stops/tracer_answers.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "supervisor/record/checkpoints/state_capture.h"
#include "supervisor/record/kernel/process_status.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kGeneral = 1, kFloatingPoint = 2, kExtended = 0x202;  // NT_PRSTATUS, NT_FPREGSET, NT_X86_XSTATE

constexpr size_t kFloatingPointSize = 512;

constexpr uint32_t kStopped = SIGSTOP << 8 | 0x7f;  // wait(2)

bool put(const Memory& memory, Address at, Bytes data, std::vector<MemoryWrite>& writes) {
  if (!memory.write(at, data.data(), data.size())) return false;
  writes.push_back({at, data.size(), MemoryWrite::Kind::data, std::move(data)});
  return true;
}

template <typename T>
Bytes bytes_of(const T& value) {
  const auto* const first = reinterpret_cast<const uint8_t*>(&value);
  return Bytes(first, first + sizeof value);
}

}  // namespace

std::optional<int64_t> TracerAnswers::set_dumpable(const Thread& thread) const {
  const auto& args = thread.call.args;
  if (limits_.attached || may_look_into_all() || thread.call.row->number != SYS_prctl) return {};
  if (args[0] == PR_GET_DUMPABLE) return thread.process->dumpable;
  if (args[0] != PR_SET_DUMPABLE) return {};
  if (args[1] > 1) return -EINVAL;
  thread.process->dumpable = args[1] != 0;
  return 0;
}

bool TracerAnswers::answer(Thread& thread) {
  const Memory& memory = thread.process->memory;
  std::vector<MemoryWrite> writes;
  int64_t result = 0;
  if (const auto answer = set_dumpable(thread)) {
    events_.open_call(thread, memory);
    result = *answer;
  } else if (thread.call.row->number == SYS_ptrace) {
    events_.open_call(thread, memory);
    result = trace(thread, writes);
    if (result == -EPERM) findings_.count_refusal(thread, thread.call.row, EPERM);
  } else if (thread.call.row->number == SYS_wait4 && !thread.process->attached.empty()) {
    const auto number = static_cast<pid_t>(thread.call.args[0]);
    Thread* const target = number > 0 ? tracees_.named(thread, number) : nullptr;
    if (!target || !thread.process->attached.erase(target->tid)) return false;
    events_.open_call(thread, memory);
    result = number;
    const Address status = thread.call.args[1];
    const Address usage = thread.call.args[3];
    if (status && !put(memory, status, bytes_of(kStopped), writes)) result = -EFAULT;
    if (usage && !put(memory, usage, bytes_of(rusage{}), writes)) result = -EFAULT;
  } else {
    return false;
  }
  Unit& unit = *thread.process->unit;
  Event& event = *unit.log.open_of(thread.serial);
  event.result = result;
  event.writes = std::move(writes);
  unit.log.close(false);
  user_regs_struct regs = thread.entry;
  regs.orig_rax = ~0ull;
  regs.rax = static_cast<uint64_t>(result);
  control_.set_regs(thread, regs);
  control_.resume_user(thread, regs);
  return true;
}

int64_t TracerAnswers::trace(Thread& thread, std::vector<MemoryWrite>& writes) {
  Process& process = *thread.process;
  Thread* const target = tracees_.named(thread, static_cast<pid_t>(thread.call.args[1]));
  if (thread.call.args[0] == PTRACE_ATTACH) {
    const bool ours = target && target->process != &process && target->process->memory_id == process.memory_id;
    if (!ours || target->tracer || target->exited || target->process->end_logged) return -EPERM;
    target->tracer = process.pid;
    process.attached.insert(target->tid);
    process.unit->baton.leave_queue(*target);
    return 0;
  }
  if (!target || target->tracer != process.pid) return -ESRCH;
  if (thread.call.args[0] == PTRACE_GETREGSET) return read_registers(thread, *target, writes);
  process.attached.erase(target->tid);
  let_go(*target);
  return 0;
}

int64_t TracerAnswers::read_registers(Thread& thread, Thread& target, std::vector<MemoryWrite>& writes) {
  const Memory& memory = thread.process->memory;
  iovec vector{};
  if (!memory.get(thread.call.args[3], vector)) return -EFAULT;
  ThreadState state;
  if (!capture_.capture_thread(target, false, state)) return -ESRCH;
  Bytes found;
  if (thread.call.args[2] == kGeneral) {
    found = as_bytes(state.regs);
  } else if (thread.call.args[2] == kFloatingPoint || thread.call.args[2] == kExtended) {
    found = std::move(state.xstate);
    if (thread.call.args[2] == kFloatingPoint) found.resize(std::min(found.size(), kFloatingPointSize));
  } else {
    return -EINVAL;
  }
  if (vector.iov_len % sizeof(uint64_t) != 0) return -EINVAL;
  found.resize(std::min(found.size(), vector.iov_len));
  const uint64_t length = found.size();
  const bool written = put(memory, reinterpret_cast<Address>(vector.iov_base), std::move(found), writes) &&
                       put(memory, thread.call.args[3] + offsetof(iovec, iov_len), bytes_of(length), writes);
  return written ? 0 : -EFAULT;
}

void let_go(Thread& target) {
  target.tracer = 0;
  if (target.is<Thread::Ready>()) target.process->unit->baton.queue(target);
}

}  // namespace redrive
