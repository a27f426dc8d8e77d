#include "supervisor/record/code/patch_plans.h"

#include <sys/mman.h>

#include <algorithm>

#include "supervisor/tier/mapped_code.h"

namespace redrive {

CodeSite& CodePlan::site(uint64_t at) {
  CodeSite& site = sites_[at];
  site.offset = offset_ + at;
  return site;
}

std::optional<PatchWindow> CodePlan::examine(CodeSite& site, const Memory& memory, const Mapping& mapping) {
  if (std::exchange(site.examined, true)) return site.window;
  if (!code_) code_.emplace(mapped_code(memory, mapping));  // nothing is patched yet: what is ready has been examined
  site.window = window_of(site.kind, *code_, site.offset - offset_, site.front, memory, mapping.start);
  return site.window;
}

std::vector<PlannedPatch> CodePlan::ready(Address start, const Program* program) {
  std::vector<PlannedPatch> patches;
  for (auto& [at, site] : sites_) {
    const bool wanted = !program || !program->ended || site.used_by.contains(program);
    if (!wanted || site.original.empty()) continue;
    patches.push_back({{start + at, *site.window, site.original, site.kind}, &site});
  }
  return patches;
}

bool PatchPlans::is_code(const Mapping& mapping) {
  return mapping.inode != 0 && !mapping.shared && (mapping.protection & PROT_EXEC) &&
         !(mapping.protection & PROT_WRITE);
}

PatchPlans::Known& PatchPlans::known(const MappedFile& file, const std::string& name) {
  auto [known, fresh] = files_.try_emplace(file.version);
  if (fresh && cache_) {
    known->second.facts = cache_->of(file.path, file.version);
    if (const FileFacts* facts = known->second.facts) {
      if (auto kept = decode_plans(facts->patch_plans, name)) known->second.plans = std::move(*kept);
    }
  }
  return known->second;
}

CodePlan& PatchPlans::of(const MappedFile& file, const Mapping& mapping) {
  const auto key = std::make_pair(mapping.offset, mapping.length());
  return known(file, mapping.name).plans.try_emplace(key, mapping.name, mapping.offset).first->second;
}

CodeFile PatchPlans::kind(const MappedFile& file, const std::string& name) {
  auto& kind = known(file, name).kind;
  if (!kind) kind = code_file(file.path);
  return *kind;
}

bool PatchPlans::any_ready(const MappedFile& file, const std::string& name) {
  const FilePlans& plans = known(file, name).plans;
  return std::any_of(plans.begin(), plans.end(), [](const auto& plan) {
    const auto& sites = plan.second.sites();
    return std::any_of(sites.begin(), sites.end(), [](const auto& site) { return !site.second.original.empty(); });
  });
}

std::vector<PatchPlans::Stopping> PatchPlans::worst(size_t count) const {
  std::vector<Stopping> out;
  for (const auto& [version, known] : files_) {
    for (const auto& [key, plan] : known.plans) {
      for (const auto& [at, site] : plan.sites()) {
        if (site.stops) out.push_back({&plan, &site});
      }
    }
  }
  std::sort(out.begin(), out.end(), [](const Stopping& a, const Stopping& b) { return a.site->stops > b.site->stops; });
  if (out.size() > count) out.resize(count);
  return out;
}

void PatchPlans::keep() const {
  for (const auto& [version, known] : files_) {
    if (known.facts) known.facts->patch_plans = encode(known.plans);
  }
}

// ---- As bytes

namespace {

uint64_t settled_sites(const CodePlan& plan) {
  return static_cast<uint64_t>(
      std::count_if(plan.sites().begin(), plan.sites().end(), [](const auto& each) { return each.second.settled(); }));
}

// Whether a jump to a trampoline can be put there. The bytes of the window are compared with the code later.
bool is_window(const CodeSite& site, uint64_t at, uint64_t length) {
  constexpr uint64_t kLongestWindow = kJumpSize + 14;  // an instruction begins before the jump's end
  const PatchWindow& window = *site.window;
  const SitePatch patch{at, window, site.original, site.kind};
  if (patch.size() != site.original.size() || patch.size() < kJumpSize || patch.size() > kLongestWindow) return false;
  const bool moves_behind = window.after || window.displacements || window.ends_in_jump;
  if (window.before ? moves_behind || keeps_rcx(site.kind) : window.displacements >> window.after) return false;
  if (window.ends_in_jump) {
    if (window.after < kShortJumpSize || !is_short_jump(site.original[site.original.size() - kShortJumpSize])) {
      return false;
    }
  }
  return window.before <= at && patch.start() + patch.size() <= length;
}

}  // namespace

Bytes encode(const FilePlans& plans) {
  Encoder out;
  for (const auto& [key, plan] : plans) {
    const uint64_t count = settled_sites(plan);
    if (count == 0) continue;
    out.u(key.first);
    out.u(key.second);
    out.u(count);
    for (const auto& [at, site] : plan.sites()) {
      if (!site.settled()) continue;
      out.u(at);
      out.u(static_cast<uint64_t>(site.kind));
      out.bytes(site.original);
      if (site.original.empty()) continue;
      out.u(site.window->before);
      out.u(site.window->after);
      out.u(site.window->displacements);
      out.u(site.window->ends_in_jump);
    }
  }
  return out.take();
}

std::optional<FilePlans> decode_plans(std::span<const uint8_t> bytes, const std::string& name) {
  FilePlans plans;
  Decoder in(bytes);
  while (in.ok() && !in.at_end()) {
    const uint64_t offset = in.u(), length = in.u();
    CodePlan& plan = plans.try_emplace({offset, length}, name, offset).first->second;
    for (size_t left = in.count(3); left > 0 && in.ok(); --left) {
      const uint64_t at = in.u();
      CodeSite& site = plan.site(at);
      const uint64_t kind = in.u();
      const auto original = in.bytes();
      if (kind > static_cast<uint64_t>(SiteKind::polling) || at >= length || site.examined) return std::nullopt;
      site.kind = static_cast<SiteKind>(kind);
      site.examined = true;
      site.original.assign(original.begin(), original.end());
      if (original.empty()) continue;
      const uint64_t before = in.u(), after = in.u(), displacements = in.u(), ends_in_jump = in.u();
      if (before > UINT8_MAX || after > UINT8_MAX || displacements > UINT32_MAX) return std::nullopt;
      if (ends_in_jump > 1) return std::nullopt;
      site.window = {static_cast<uint8_t>(before), static_cast<uint8_t>(after), static_cast<uint32_t>(displacements),
                     ends_in_jump == 1};
      if (!is_window(site, at, length)) return std::nullopt;
    }
  }
  if (!in.ok()) return std::nullopt;
  return plans;
}

}  // namespace redrive
