#include "supervisor/record/attach/healer.h"

#include <asm/prctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/procfs.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/attach/seizer.h"
#include "supervisor/record/code/patch_plans.h"
#include "supervisor/record/code/vdso_patch.h"
#include "supervisor/record/kernel/process_status.h"
#include "supervisor/record/kernel/ptrace_tracer.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr int kTries = 5;

bool lives(pid_t pid) {
  const ProcValues status = proc_status(pid);
  const auto state = status.text("State");
  return !state.empty() && state[0] != 'Z' && state[0] != 'X';
}

// Calls visit(PLACE, LENGTH) for each instruction of `own` in whose place `found` has what stands for it.
template <typename Visit>
void for_each_stand_in(std::span<const uint8_t> own, std::span<const uint8_t> found, const Visit& visit) {
  for (size_t at = 0; at + 2 <= own.size(); ++at) {
    const uint8_t code[3] = {own[at], own[at + 1], at + 2 < own.size() ? own[at + 2] : uint8_t{0}};
    const auto instruction = decode_trapped(code);
    if (!instruction) continue;
    const auto length = static_cast<size_t>(instruction->length);
    const Bytes expected = stand_in(instruction->length);
    if (length <= own.size() - at &&
        std::equal(expected.begin(), expected.end(), found.begin() + static_cast<ptrdiff_t>(at)))
      visit(at, length);
  }
}

// The copies from which images were stored: they were killed with the recorder, and nobody waits for them.
std::vector<pid_t> ended_copies(pid_t pid) {
  std::vector<pid_t> found;
  for (const pid_t child : children_of(pid)) {
    if (!lives(child) && exit_signal(child) == 0) found.push_back(child);
  }
  return found;
}

// Instructions that had to be replaced in code, because the processor does not trap them.
Result<void> restore_instructions(pid_t pid, const Memory& memory) {
  ASSIGN_OR_RETURN(const auto mappings, code_mappings(pid));
  ASSIGN_OR_RETURN(const PageTable table, PageTable::open(pid));
  for (const Mapping& mapping : mappings) {
    if (!PatchPlans::is_code(mapping)) continue;
    const Fd file = open_object(pid, mapping);
    if (!file) continue;
    TRY(read_runs(memory, mapping, table.stored_pages(mapping),
                  [&](const Mapping&, Address address, std::span<const uint8_t> found) -> Result<void> {
                    Bytes own(found.size());
                    const uint64_t offset = mapping.offset + (address - mapping.start);
                    const ssize_t got = pread(file.get(), own.data(), own.size(), static_cast<off_t>(offset));
                    if (got < 0) return errno_error("cannot read " + mapping.name);
                    for_each_stand_in({own.data(), static_cast<size_t>(got)}, found, [&](size_t at, size_t length) {
                      memory.write(address + at, own.data() + at, length);
                    });
                    return {};
                  }));
  }
  return {};
}

// Whether the thread has stopped, or is about to stop, for an instruction that it can execute when it is healed. In the
// second case it stops for it.
bool has_trapped(Tracer& tracer, pid_t pid, pid_t tid, const std::optional<siginfo_t>& stopped_by) {
  int signal = stopped_by ? stopped_by->si_signo : 0;
  const SignalMasks masks = tracer.signal_masks(tid);
  if (!signal && masks.deliverable() & (bit_of(SIGSEGV) | bit_of(SIGILL))) {
    tracer.resume(tid, Resume::cont);
    const auto stop = tracer.wait(tid);
    const auto* const signalled = stop ? std::get_if<SignalStop>(&*stop) : nullptr;
    if (signalled) signal = signalled->signal;
  }
  user_regs_struct regs;
  uint8_t code[3] = {};
  const auto memory = Memory::open(pid);
  if (!memory || !tracer.get_regs(tid, regs) || !memory->get(regs.rip, code)) return false;
  return (signal == SIGSEGV && trapped_at(*memory, regs.rip)) || (signal == SIGILL && is_stand_in(code));
}

}  // namespace

Healer::Healer(const AttachableTree& tree) {
  for (const Attachable& process : tree.processes) {
    pids_.push_back(process.pid);
    for (const pid_t tid : proc_threads(process.pid)) {
      sched_getaffinity(tid, sizeof(cpu_set_t), &processors_[tid]);
    }
  }
}

void Healer::stop(const RecordedProcesses& recorded) {
  recorded.for_each([](pid_t pid) { kill(pid, SIGSTOP); });
  std::set<pid_t> stopped;
  recorded.for_each([&](pid_t pid) { stopped.insert(pid); });
  const auto stop = [&](pid_t pid) { return stopped.insert(pid).second && kill(pid, SIGSTOP) == 0; };
  for (const pid_t pid : pids_) stop(pid);
  for (bool found = true; found;) {
    found = false;
    pids_ = process_tree({stopped.begin(), stopped.end()});
    for (const pid_t pid : pids_) found |= stop(pid);
  }
}

Result<void> Healer::heal(const InjectedCall& injected) {
  PtraceTracer tracer(PtraceTracer::Calls::all);
  const Placement placement(0);
  Seizer seizer(tracer, placement, Seizer::Stops::continued);
  Result<void> seized;
  for (int tries = 0; tries < kTries; ++tries) {
    std::erase_if(pids_, [](pid_t pid) { return !lives(pid); });
    if (pids_.empty()) return {};
    seized = seizer.stop_all(pids_);  // fails if one of them has ended meanwhile
    if (seized) break;
  }
  for (const pid_t pid : process_tree(pids_)) kill(pid, SIGCONT);
  if (!seized) return seized;
  TraceeCalls calls(tracer, [&tracer](pid_t tid) -> std::optional<Stop> {
    auto stop = tracer.wait(tid);
    return stop && !is<Gone>(*stop) ? stop : std::nullopt;
  });
  if (seizer.threads().contains(injected.tid)) {
    tracer.set_regs(injected.tid, injected.regs);
    tracer.set_signal_mask(injected.tid, injected.mask);
  }
  std::map<pid_t, std::vector<pid_t>> processes;
  for (const auto& [tid, seized] : seizer.threads()) processes[seized.pid].push_back(tid);
  Result<void> healed;
  for (const auto& [tid, seized] : seizer.threads()) {
    if (has_trapped(tracer, seized.pid, tid, seized.signal)) seizer.drop_signal(tid);
  }
  for (const auto& [pid, tids] : processes) {
    const auto one = heal(tracer, calls, pid, tids);
    if (!one && lives(pid)) healed = Error{"process " + describe_process(pid) + ": " + one.error().message};
  }
  seizer.release();
  for (const auto& [pid, tids] : processes) {
    for (const pid_t tid : tids) give_back_processors(tid, processors_of(pid, tid));
  }
  return healed;
}

Result<void> Healer::heal(Tracer& tracer, TraceeCalls& calls, pid_t pid, const std::vector<pid_t>& tids) {
  ASSIGN_OR_RETURN(const Memory memory, Memory::open(pid));
  ASSIGN_OR_RETURN(const VdsoPatch patch, VdsoPatch::of_process(pid, memory));
  HeldSignals held;  // none come: the calls are made with signals blocked
  for (const pid_t tid : tids) {
    user_regs_struct regs;
    if (!tracer.get_regs(tid, regs)) continue;
    regs = after_restart(regs);
    regs.orig_rax = ~0ull;
    tracer.set_regs(tid, regs);
    TRY(calls.step_out({tid, held}, memory, patch.range(), patch.syscall_instruction()));
  }
  if (!patch.undo(memory)) return Error{"its vDSO cannot be written to"};
  TRY(restore_instructions(pid, memory));
  for (const pid_t tid : tids) {
    user_regs_struct regs;
    if (!tracer.get_regs(tid, regs)) continue;
    const auto call = [&](long number, std::initializer_list<uint64_t> args) {
      return calls.call_at({tid, held}, patch.syscall_instruction(), regs, number, args);
    };
    TRY(call(SYS_prctl, {PR_SET_TSC, PR_TSC_ENABLE}));
    TRY(call(SYS_arch_prctl, {ARCH_SET_CPUID, 1}));
    if (tid == pid) {
      for (const pid_t copy : ended_copies(pid)) {
        TRY(call(SYS_wait4, {static_cast<uint64_t>(pid_in_own_namespace(copy)), 0, __WALL | WNOHANG, 0}));
      }
    }
    tracer.set_regs(tid, regs);
  }
  return {};
}

const cpu_set_t& Healer::processors_of(pid_t pid, pid_t tid) const {
  for (const pid_t known : {tid, pid}) {
    if (const auto found = processors_.find(known); found != processors_.end()) return found->second;
  }
  return processors_.begin()->second;
}

}  // namespace redrive
