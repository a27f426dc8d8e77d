#include "supervisor/record/stops/programs.h"

#include <asm/prctl.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/procfs.h"
#include "base/text.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/placement/placer.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/code_patching.h"
#include "supervisor/record/stops/native_state.h"
#include "supervisor/record/stops/served_calls.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {
namespace {

constexpr size_t kMaxCommand = 200, kMaxArguments = 4096;

// Where the kernel let the heap begin (proc_pid_stat(5), start_brk); right after execve that is the current break.
Address start_brk(pid_t pid) {
  constexpr int kStartBrk = 47;
  return parse_number(proc_stat_field(pid, kStartBrk)).value_or(0);
}

// What the kernel puts on a new program's stack (System V ABI for x86-64, "Process Initialization").
struct InitialStack {
  std::vector<uint64_t> words;  // argc, argv, NULL, envp, NULL, the auxiliary vector; empty if it has another form
  size_t environment = 0;       // indexes of the first words
  size_t auxiliary = 0;

  static InitialStack read(const Memory& memory, Address stack) {
    constexpr size_t kUsual = 512, kMost = 1 << 20;
    InitialStack out;
    for (size_t count = kUsual; count <= kMost; count *= 8) {
      out.words.resize(count);
      out.words.resize(memory.read_some(stack, out.words.data(), count * sizeof(uint64_t)) / sizeof(uint64_t));
      if (out.parse()) return out;
      if (out.words.size() < count) break;
    }
    out.words.clear();
    return out;
  }

  // The program and its arguments, for listings. Units are named by the first word, so spaces in it become '_'.
  std::string command(const Memory& memory) const {
    if (words.empty() || words[0] == 0) return {};
    const Address first = words[1], end = words[environment] ? words[environment] : first + kMaxCommand;
    std::string text(std::min<uint64_t>(end - first, kMaxArguments), '\0');
    text.resize(memory.read_some(first, text.data(), text.size()));
    while (!text.empty() && text.back() == '\0') text.pop_back();
    const size_t slash = text.substr(0, text.find('\0')).rfind('/');
    if (slash != std::string::npos) text.erase(0, slash + 1);
    std::replace(text.begin(), text.begin() + static_cast<ptrdiff_t>(std::min(text.find('\0'), text.size())), ' ', '_');
    std::replace(text.begin(), text.end(), '\0', ' ');
    if (text.size() > kMaxCommand) text.resize(kMaxCommand);
    return text;
  }

  // Hides the vDSO from the program, which then makes system calls without this detour. Returns where it is.
  Address hide_vdso(const Memory& memory, Address stack) const {
    for (size_t at = auxiliary; at + 1 < words.size() && words[at] != AT_NULL; at += 2) {
      if (words[at] != AT_SYSINFO_EHDR) continue;
      memory.put(stack + at * sizeof(uint64_t), uint64_t{AT_IGNORE});
      return words[at + 1];
    }
    return 0;
  }

 private:
  bool parse() {
    if (words.empty()) return false;
    const auto end_of_list = [&](size_t from) {
      if (from > words.size()) return words.size();
      return static_cast<size_t>(std::find(words.begin() + static_cast<ptrdiff_t>(from), words.end(), 0) -
                                 words.begin());
    };
    environment = end_of_list(1) + 1;
    auxiliary = end_of_list(environment) + 1;
    for (size_t at = auxiliary; at + 1 < words.size(); at += 2) {
      if (words[at] == AT_NULL) return true;
    }
    return false;
  }
};

}  // namespace

void Programs::executed(pid_t pid, pid_t former_tid) {
  Thread* found = tracees_.find(former_tid);
  if (!found) return;
  Thread& thread = *found;
  Process& process = *thread.process;
  Unit& former_unit = *process.unit;
  // The other threads are gone; the caller takes over the leader's id.
  std::vector<Thread*> others;
  for (const auto& [serial, other] : former_unit.threads) {
    if (other->process == &process && other != &thread) others.push_back(other);
  }
  for (Thread* other : others) tracees_.remove_thread(*other);
  if (former_tid != pid) tracees_.rename(thread, pid);
  if (former_unit.in_interval) {
    const EventIndex number =
        former_unit.log.open_of(thread.serial) ? former_unit.log.next() - 1 : former_unit.log.next();
    if (!former_unit.log.open_of(thread.serial)) former_unit.end_state.clear();  // others ran meanwhile
    Event& done = former_unit.log.closing(thread.serial, static_cast<int32_t>(thread.entry.orig_rax));
    if (former_unit.processes.size() > 1) {
      // A vfork child, or a process that shared memory, leaves: its new program is a unit of its own.
      std::ranges::move(std::exchange(thread.call.written_by_exec, {}), std::back_inserter(done.writes));
      Unit& unit = tracees_.add_unit({former_unit.id, number}, pid);
      done.child_unit = unit.id;
      former_unit.log.close(false);
      former_unit.clock.cpu_ns();  // asked for the last time while the process is there
      unit.clock.take(former_unit.clock, process.pid);
      const auto owned = std::find_if(former_unit.processes.begin(), former_unit.processes.end(),
                                      [&](const auto& p) { return p.get() == &process; });
      former_unit.threads.erase(thread.serial);
      unit.processes.push_back(std::move(*owned));
      former_unit.processes.erase(owned);
      process.unit = &unit;
      process.serial = unit.next_process++;
      thread.serial = unit.next_thread++;
      unit.threads[thread.serial] = &thread;
      unit.baton.give_to(thread);
      if (former_unit.baton.holder() == &thread) turns_.give_up(former_unit);
    } else {
      former_unit.log.close(false);
      intervals_.end(former_unit);
      former_unit.baton.give_to(thread);
    }
  }
  thread.fds = std::make_shared<FdCache>();
  thread.pidfd = {};
  process.separate_tables = false;
  process.shares_memory = process.borrows_memory = process.leader_exited = false;
  process.objects.clear();
  process.private_views.clear();
  process.stays.reset();
  process.vdso_patch.reset();
  process.shared_mappings = std::make_shared<SharedMappings>();
  process.maps_growing = false;
  process.dumpable = true;
  process.stand_ins.clear();
  process.written.clear();
  process.packet_rings.clear();
  process.gate.reset();
  process.inherited.reset();
  const bool leader_was_gone = process.shown_as() != pid;
  if (auto memory = tracer_.open_memory(pid)) process.memory = std::move(*memory);
  // Until now it named another thread (Ends::show_by_another()).
  if (leader_was_gone) process.pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  process.memory_id = tracees_.new_memory();
  process.descriptors = std::make_shared<LocalDescriptors>();
  thread.clear_tid = 0;
  thread.read_implies_exec = false;  // no 64-bit program begins with it
  thread.signals.forget_all();
  thread.turns = {};
  thread.taken_during = 0;
  if (!former_unit.place.is_home()) placement_.send(pid, Place());
  process.unit->place = {};
  begin_program(thread);
}

// At the stop that reports a successful execve: nothing of the new program has run. The kernel has yet to put its
// result into rax.
void Programs::begin_program(Thread& thread) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  user_regs_struct regs;
  if (!control_.get_regs(thread, regs)) return;
  regs.rax = 0;
  const std::string executable = proc_path(process.pid, "exe");
  const bool foreign = regs.cs != kCodeSegment;
  const auto stack = foreign ? InitialStack() : InitialStack::read(process.memory, regs.rsp);
  if (foreign) {
    std::error_code gone;
    process.command = std::filesystem::read_symlink(executable, gone).filename();
    if (!limits_.attached) findings_.count_foreign_calls(process);  // the filter refuses them without a stop
  } else {
    process.command = stack.command(process.memory);
  }
  const auto found = read_mappings(process.pid);
  const std::vector<Mapping> mappings = found ? *found : std::vector<Mapping>();
  if (!found && !process.memory.gone())
    findings_.add_unsure(unit, "what it has mapped could not be read: " + found.error().message);
  if (limits_.attached) {
    if (!native_.take_program(thread, regs)) return;
  } else if (const Address vdso = stack.hide_vdso(process.memory, regs.rsp)) {
    constexpr Address kMost = 4 * kPageSize;
    process.vdso = {vdso, vdso + kMost};
    if (arena_ && !map_gate(thread, regs, vdso, mappings)) return;
    // execve switched cpuid faulting off.
    const Address site = limits_.traps.cpuid ? vdso_syscall(process.memory, vdso) : 0;
    if (site && !calls_.call_at(caller_of(thread), site, regs, SYS_arch_prctl, {ARCH_SET_CPUID, 0})) return;
    if (auto patch = VdsoPatch::of_process(process.pid, process.memory); patch && patch->apply(process.memory))
      process.vdso_patch = std::make_shared<const VdsoPatch>(std::move(*patch));
    regs.orig_rax = ~0ull;
    tracer_.set_regs(thread.tid, regs);
  }
  if (!process.gate) process.brk = start_brk(process.pid);
  MappedFiles files(process.pid);
  struct stat info {};
  const bool has_executable = stat(executable.c_str(), &info) == 0;
  if (has_executable) files.add(executable, info);
  for (const auto& mapping : mappings) {
    if (PatchPlans::is_code(mapping)) patching_.replace_traps(process, mapping, files.of(mapping), nullptr);
  }
  forced_.inherit(thread);
  if (has_executable && would_gain(process.pid, executable, info)) {
    const char* const kind = info.st_mode & S_ISUID ? "set-user-ID" : "set-group-ID";
    findings_.count_refusal(unit, fmt::format("the privileges of {} program {}", kind, process.command),
                            "ran without them", false);
  }
  if (has_executable && would_gain_capabilities(process.pid, executable)) {
    findings_.count_refusal(unit, "the capabilities of program " + process.command, "ran without them", false);
  }
  if (has_executable && process.gate) process.gate->program = &patching_.program(version_of(info));
  StateCapture::KnownMappings known;
  if (found) known[process.pid] = {&mappings, &files};
  if (!checkpointer_.begin_interval(unit, CheckpointKind::exec, thread, &regs, known)) return;
  for (const auto& mapping : mappings) {
    const MappedFile* file = PatchPlans::is_code(mapping) ? files.of(mapping) : nullptr;
    if (file) patching_.apply_plan(process, mapping, *file);
  }
  placer_.place_program(unit);
  control_.resume_user(thread, regs);
}

TierMapper::Tracee Programs::tracee_of(Thread& thread) {
  const Process& process = *thread.process;
  return {caller_of(thread), process.pid, process.pidfd.get(), process.memory};
}

// Maps the tier into the address space of a new program (TierMapper::map()).
Result<void> Programs::map_gate(Thread& thread, const user_regs_struct& regs, Address vdso,
                                const std::vector<Mapping>& mappings) {
  Process& process = *thread.process;
  ASSIGN_OR_RETURN(auto mapped, tier_mapper_.map(tracee_of(thread), *arena_, process.unit, regs, vdso, mappings));
  if (!mapped.gate) return {};
  process.brk = mapped.brk;
  process.gate = std::move(mapped.gate);
  served_.add(process.gate);
  return {};
}

Result<void> Programs::inherit_gate(Thread& thread, const user_regs_struct& regs, std::shared_ptr<RecordedGate> gate) {
  thread.process->gate = gate;
  ASSIGN_OR_RETURN(const auto slot, tier_mapper_.inherit(tracee_of(thread), *gate, regs));
  if (slot == TierMapper::Slot::own) served_.add(gate);
  return {};
}

}  // namespace redrive
