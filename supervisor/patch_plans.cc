#include "supervisor/patch_plans.h"

#include <sys/mman.h>

#include <algorithm>

namespace redrive {

CodeSite& CodePlan::site(uint64_t at) {
  CodeSite& site = sites_[at];
  site.offset = offset_ + at;
  return site;
}

std::optional<PatchWindow> CodePlan::examine(CodeSite& site, const Memory& memory, const Mapping& mapping) {
  if (std::exchange(site.examined, true)) return site.window;
  if (!code_) {
    // Nothing is patched yet: what is ready has been examined.
    Bytes code(mapping.length());
    code.resize(memory.read_some(mapping.start, code.data(), code.size()));
    code_.emplace(std::move(code));
  }
  const uint64_t at = site.offset - offset_;
  return site.window = site.kind == SiteKind::cpuid ? code_->window(at, site.front) : code_->window(at);
}

std::vector<SitePatch> CodePlan::ready(Address start) const {
  std::vector<SitePatch> patches;
  for (const auto& [at, site] : sites_) {
    if (!site.original.empty()) patches.push_back({start + at, *site.window, site.original, site.kind});
  }
  return patches;
}

bool PatchPlans::is_code(const Mapping& mapping) {
  return mapping.inode != 0 && !mapping.shared && (mapping.protection & PROT_EXEC) &&
         !(mapping.protection & PROT_WRITE);
}

CodePlan& PatchPlans::of(const FileVersion& file, const Mapping& mapping) {
  const auto key = std::make_tuple(file, mapping.offset, mapping.length());
  return plans_.try_emplace(key, mapping).first->second;
}

std::vector<PatchPlans::Stopping> PatchPlans::worst(size_t count) const {
  std::vector<Stopping> out;
  for (const auto& [key, plan] : plans_) {
    for (const auto& [at, site] : plan.sites()) {
      if (site.stops) out.push_back({&plan, &site});
    }
  }
  std::sort(out.begin(), out.end(), [](const Stopping& a, const Stopping& b) { return a.site->stops > b.site->stops; });
  if (out.size() > count) out.resize(count);
  return out;
}

}  // namespace redrive
