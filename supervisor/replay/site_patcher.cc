#include "supervisor/replay/site_patcher.h"

#include "supervisor/replay/memory_change.h"
#include "supervisor/tier/code_file.h"

namespace redrive {

Result<std::vector<Mapping>*> SitePatcher::code_of(ProcessSerial process) {
  auto [known, fresh] = code_.try_emplace(process);
  if (fresh) {
    auto read = code_mappings(redriving_.unit.stub(process).pid());
    if (!read) {
      code_.erase(known);
      return read.error();
    }
    known->second = std::move(*read);
  }
  return &known->second;
}

Result<std::vector<AddressRange>> SitePatcher::code_changes(ProcessSerial process, const Event& event, Special special,
                                                            Address brk) {
  auto ranges = changed_memory(event, special, brk);
  if (ranges.empty() || makes_code(event, special)) return ranges;
  ASSIGN_OR_RETURN(const auto* code, code_of(process));
  return overlap(ranges, *code) ? std::move(ranges) : std::vector<AddressRange>();
}

Result<void> SitePatcher::read_code_again(ProcessSerial process, const std::vector<AddressRange>& changed) {
  std::erase_if(code_, [&](const auto& other) { return other.first != process; });  // they may share the memory
  const auto known = code_.find(process);
  return known == code_.end() ? Result<void>()
                              : redrive::read_code_again(redriving_.unit.stub(process).pid(), changed, known->second);
}

Result<void> SitePatcher::patch_ahead(const RedrivenThread& thread, Address site, SiteKind kind, uint64_t times,
                                      bool keeps_gaps) {
  if (unpatchable_.contains({thread.process, site})) return {};
  ASSIGN_OR_RETURN(auto* const code, code_of(thread.process));
  Mapping* const found = mapping_at(*code, site);
  if (!found) return {};
  if (found->inode != 0 && found->name.empty()) {
    ASSIGN_OR_RETURN(const Mapping named, mapping_of(redriving_.unit.stub(thread.process).pid(), site));
    found->name = named.name;
  }
  const Mapping mapping = *found;
  Gate* const gate = redriving_.gates.of(thread);
  if (keeps_gaps && !gate->trampolines_near(site)) return {};
  if (tier_->code.is_program(mapping)) {
    if ((own_calls_[{thread.process, site}] += times) < kOwnCodeWorthPatching) return {};
  }
  const auto window = tier_->code.window(redriving_.unit.memory(thread), mapping, site, kind, times);
  if (!window) return {};
  TRY(redriving_.gates.replace(thread, {site, *window, {}, kind}));
  if (!gate->patched(site)) unpatchable_.insert({thread.process, site});
  return {};
}

}  // namespace redrive
