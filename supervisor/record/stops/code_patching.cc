#include "supervisor/record/stops/code_patching.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "checkpoint/address_space.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/code/tier_mapper.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {

bool CodePatching::needs_replacement(const MappedFile& file) {
  const auto* const sites = limits_.traps.all() ? nullptr : replacement_.sites_of(file);
  return sites && !sites->empty();
}

void CodePatching::keep() {
  constexpr size_t kSites = 100;
  for (const auto& [plan, site] : plans_.worst(kSites)) {
    writer_.add(StoppingSite{plan->name(), site->offset, name_of(site->kind), site->stops, site->window.has_value()});
  }
  plans_.keep();
}

// An instruction has stopped the thread, whose address space has a slot: how it can be replaced now.
std::optional<Patcher::Replacement> CodePatching::replacement(const Thread& thread, Address at, SiteKind kind) {
  const Process& process = *thread.process;
  auto replacement = patcher_.stopped({process.shown_as(), process.memory, *process.gate}, at, kind);
  if (replacement && in_use(thread, replacement->window)) return {};
  return replacement;
}

bool CodePatching::patch(Thread& thread) {
  const Process& process = *thread.process;
  RecordedGate* const gate = process.gate.get();
  const Address at = thread.entry.rip - kSyscallSize;
  if (!gate || !gate->slot()) return false;
  const auto args = syscall_args(thread.entry);
  const SyscallRow* row = find_row(static_cast<int64_t>(thread.entry.orig_rax), args);
  if (!row || !row->in_process) return false;
  const auto found = replacement(thread, at, SiteKind::syscall);
  if (!found) return false;
  const bool near = gate->trampolines_near(at);
  if (!near && !map_trampolines(thread, at)) return true;
  gate->replace(process.memory, at, *found->site);
  if (!near) {
    control_.rewind(thread, thread.entry);
    return true;
  }
  control_.set_regs(thread, thread.entry);
  return false;
}

void CodePatching::patch_instruction(Thread& thread, Address at, SiteKind kind) {
  const Process& process = *thread.process;
  RecordedGate* const gate = process.gate.get();
  if (!gate || !gate->slot()) return;
  const auto found = replacement(thread, at, kind);
  if (!found) return;
  if (gate->trampolines_near(at) || map_trampolines(thread, at)) gate->replace(process.memory, at, *found->site);
}

// Whether another thread of the address space is at an instruction there. A thread that is in a call is told where to
// continue when it comes out.
bool CodePatching::in_use(const Thread& thread, const AddressRange& code) const {
  return std::any_of(tracees_.threads().begin(), tracees_.threads().end(), [&](const auto& entry) {
    const Thread& other = *entry.second;
    if (other.is<Thread::Blocked>() || other.is_ready(Thread::Stop::exit)) return false;
    return &other != &thread && other.process->gate == thread.process->gate && other.entry.rip >= code.start &&
           other.entry.rip <= code.end;
  });
}

void CodePatching::apply_plan(Process& process, const Mapping& mapping, const MappedFile& file) {
  if (process.gate && process.gate->slot()) {
    patcher_.apply_plan({process.shown_as(), process.memory, *process.gate}, mapping, file);
  }
}

// Maps memory for trampolines within reach of `near`, if there is a gap. The thread must be rewound afterwards if it is
// at a syscall's entry, and its registers set if it is elsewhere. Fails if it was killed.
Result<void> CodePatching::map_trampolines(Thread& thread, Address near) {
  const auto mapped = mapped_ranges(thread.process->shown_as());
  const auto at = mapped ? Gate::gap_near(*mapped, near) : std::nullopt;
  if (!at) return {};
  ASSIGN_OR_RETURN(const int64_t made,
                   calls_.make(*arena_, caller_of(thread), thread.entry, {map_trampolines_at(*at)}));
  if (made == static_cast<int64_t>(*at)) thread.process->gate->add_trampolines(thread.process->memory, *at);
  return {};
}

bool CodePatching::is_made_by_library(const Thread& thread) {
  const Process& process = *thread.process;
  const auto caller = mapping_of(process.shown_as(), thread.entry.rip);
  if (!caller || !PatchPlans::is_code(*caller)) return false;
  MappedFiles files(process.shown_as());
  const MappedFile* const file = files.of(*caller);
  if (!file) return false;
  const bool own = process.gate && process.gate->program == &plans_.program(file->version);
  return !own || plans_.kind(*file, caller->name) == CodeFile::library;
}

gate::MappedCode CodePatching::mapped_code(const MappedFile& file, const std::string& name) {
  if (!limits_.traps.all() && !replacement_.sites_of(file)) return gate::MappedCode::unknown;
  const bool replaced = needs_replacement(file) || plans_.any_ready(file, name);
  return replaced ? gate::MappedCode::replaced : gate::MappedCode::plain;
}

void CodePatching::replace_traps(Process& process, const Mapping& mapping, const MappedFile* file, Event* event) {
  if (limits_.traps.all() || mapping.inode == 0 || mapping.shared || !(mapping.protection & PROT_EXEC)) return;
  const auto replaced = replacement_.replace(process.memory, mapping, file);
  if (!replaced) {
    findings_.add_unsure(*process.unit, "rdtsc or cpuid instructions of " + mapping.name + " could not be looked for");
    return;
  }
  if (replaced->failed) findings_.add_unsure(*process.unit, "rdtsc or cpuid instructions could not be replaced");
  if (file) answer_again(replacement_.questions(file->version));
  process.stand_ins.insert(replaced->sites.begin(), replaced->sites.end());
  if (!event) return;
  for (const auto& [site, instruction] : replaced->sites) {
    Bytes bytes = stand_in(instruction.length);
    event->writes.push_back({site, bytes.size(), MemoryWrite::Kind::data, std::move(bytes)});
  }
}

// Answers what programs will ask, so that they need not stop for it.
void CodePatching::answer_again(std::span<const CpuidQuestion> questions) {
  const size_t before = answers_.all().size();
  for (const auto& question : questions) answers_.of(question);
  if (arena_ && answers_.all().size() > before) arena_->set_answers(answers_.all());
}

void CodePatching::note_question(const Thread& thread, Address at, const CpuidQuestion& question) {
  const auto code = mapping_of(thread.process->shown_as(), at);
  if (!code) return;
  MappedFiles files(thread.process->shown_as());
  if (const MappedFile* const file = files.of(*code)) replacement_.add_question(*file, question);
}

}  // namespace redrive
