#include "supervisor/record/code/patcher.h"

#include <algorithm>

#include "checkpoint/address_space.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {

// What is known of the site. In each address space it is looked for only once.
RecordedGate::StoppingSite& Patcher::stopping_site(const Space& space, Address at, SiteKind kind) {
  if (RecordedGate::StoppingSite* const known = space.gate.stopping(at)) return *known;
  const auto mapping = mapping_of(space.pid, at);
  MappedFiles files(space.pid);
  const MappedFile* file = mapping && PatchPlans::is_code(*mapping) ? files.of(*mapping) : nullptr;
  if (!file) return space.gate.note_stopping(at, {});
  space.gate.arena().code_is_replaced(file->version);
  CodePlan& plan = plans_.of(*file, *mapping);
  CodeSite& site = plan.site(at - mapping->start);
  site.kind = kind;
  if (kind == SiteKind::cpuid) {
    if (auto front = cpuid_.front(file->version, site.offset); !front.empty()) site.front = std::move(front);
  }
  const bool own = plans_.kind(*file, mapping->name) == CodeFile::program;
  return space.gate.note_stopping(at, {&plan, &site, own});
}

std::optional<Patcher::Replacement> Patcher::stopped(const Space& space, Address at, SiteKind kind) {
  if (space.gate.patched(at)) return {};
  RecordedGate::StoppingSite& stopping = stopping_site(space, at, kind);
  if (!stopping.stopped()) return {};
  const auto mapping = mapping_of(space.pid, at);
  if (!mapping) return {};
  CodeSite& site = *stopping.site;
  const auto window = stopping.plan->examine(site, space.memory, *mapping);
  if (!window) return {};
  return Replacement{&site, {at - window->before, at + instruction_size(site.kind) + window->after}};
}

void Patcher::apply_plan(const Space& space, const Mapping& mapping, const MappedFile& file) {
  if (!PatchPlans::is_code(mapping) || plans_.kind(file, mapping.name) == CodeFile::program) return;
  auto patches = plans_.of(file, mapping).ready(mapping.start, space.gate.program);
  if (patches.empty()) return;
  // No trap of such an instruction may have come yet.
  if (std::any_of(patches.begin(), patches.end(), [](const PlannedPatch& each) { return each.patch.counter(); })) {
    space.gate.arena().set_counter(counter());
  }
  space.gate.patch_code(space.memory, patches);
}

}  // namespace redrive
