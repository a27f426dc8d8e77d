#include "supervisor/replay/memory_change.h"

#include <sys/mman.h>

#include <algorithm>

#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {

std::vector<AddressRange> changed_memory(const Event& event, Special special, Address brk) {
  const auto& args = event.args;
  const auto result = static_cast<Address>(event.result);
  if (is_error(event.result)) {
    if (!may_have_changed(event, special)) return {};
    if (special == Special::mremap) {
      const AddressRange target{args[4], args[4] + page_up(args[2])};
      if (!event.map || event.map->length == 0) return {target};
      return {{args[0], args[0] + page_up(args[1])}, target};
    }
  }
  switch (special) {
    case Special::mmap:
    case Special::shmat:
      return {{result, result + (event.map ? event.map->length : page_up(args[1]))}};
    case Special::munmap:
    case Special::mprotect:
    case Special::madvise:
      return {{args[0], args[0] + page_up(args[1])}};
    case Special::mremap:
      return {{args[0], args[0] + page_up(args[1])}, {result, result + page_up(args[2])}};
    case Special::brk:
      return {{std::min(brk, result), page_up(std::max(brk, result))}};
    default:
      return {};
  }
}

bool makes_code(const Event& event, Special special) { return protection_asked(special, event.args) & PROT_EXEC; }

Result<void> read_code_again(pid_t pid, const std::vector<AddressRange>& changed, std::vector<Mapping>& code) {
  for (const AddressRange& range : changed) {
    AddressRange whole = range;  // with what is left of mappings that were changed in part
    std::erase_if(code, [&](const Mapping& mapping) {
      if (!range.meets(mapping)) return false;
      whole = {std::min(whole.start, mapping.start), std::max(whole.end, mapping.end)};
      return true;
    });
    ASSIGN_OR_RETURN(const auto mapped, mappings_in(pid, whole));
    for (const Mapping& mapping : mapped) {
      if (!(mapping.protection & PROT_EXEC)) continue;
      const AddressRange joined{mapping.start, mapping.end};  // with code beside it, as the kernel does
      std::erase_if(code, [&](const Mapping& known) { return joined.meets(known); });
      code.push_back(mapping);
    }
  }
  return {};
}

bool overlap(const std::vector<AddressRange>& ranges, const std::vector<Mapping>& mappings) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const AddressRange& range) {
    return std::any_of(mappings.begin(), mappings.end(), [&](const Mapping& mapping) { return range.meets(mapping); });
  });
}

}  // namespace redrive
