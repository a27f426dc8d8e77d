#include "supervisor/record/stops/partial_change.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/page.h"
#include "checkpoint/address_space.h"

namespace redrive {
namespace {

// The bytes from the range's start on that have this protection.
uint64_t protected_part(AddressRange range, const std::vector<Mapping>& mappings, int protection, bool implies_exec) {
  const auto has_it = [&](const Mapping& mapping) {
    return mapping.protection == protection || (implies_exec && mapping.protection == (protection | PROT_EXEC));
  };
  Address end = range.start;
  for (const Mapping& mapping : mappings) {
    if (mapping.start > end || !has_it(mapping)) break;
    end = std::min(mapping.end, range.end);
  }
  return end - range.start;
}

// The bytes from the range's start on in which no private page is left. Nothing if that cannot be told.
std::optional<uint64_t> emptied_part(pid_t pid, AddressRange range, const std::vector<Mapping>& mappings) {
  const auto table = PageTable::open(pid);
  if (!table) return {};
  for (const Mapping& mapping : mappings) {
    if (mapping.shared) continue;
    Mapping part = mapping;
    part.start = std::max(mapping.start, range.start);
    part.end = std::min(mapping.end, range.end);
    part.offset += part.start - mapping.start;
    const auto left = table->stored_pages(part);
    if (!left.empty()) return left.front().start - range.start;
  }
  return range.end - range.start;
}

// The first address from there on where something is mapped, at most the range's end.
Address first_mapped(const std::vector<Mapping>& mappings, Address from, Address end) {
  for (const Mapping& mapping : mappings) {
    if (mapping.end > from) return std::min(std::max(mapping.start, from), end);
  }
  return end;
}

// mremap(2) moves what is mapped in its source, one mapping after the other, each after it has unmapped what is in its
// place.
std::optional<MapSource> moved_part(pid_t pid, const std::array<uint64_t, 6>& args) {
  const uint64_t length = page_up(args[1]);
  const AddressRange source{args[0], args[0] + length}, target{args[4], args[4] + length};
  if (source.end <= source.start || target.end <= target.start || page_up(args[2]) != length) return {};
  const auto from = mappings_in(pid, source), to = mappings_in(pid, target);
  if (!from || !to) return {};
  uint64_t moved = 0;
  if (!(args[3] & MREMAP_DONTUNMAP)) {
    moved = first_mapped(*from, source.start, source.end) - source.start;
    if (first_mapped(*to, target.start, target.start + moved) == target.start + moved) moved = 0;
  } else if (from->size() > 1) {
    return {};  // it is still there
  }
  MapSource part;
  part.length = moved;
  part.offset = first_mapped(*to, target.start + moved, target.end) - (target.start + moved);
  return part;
}

}  // namespace

std::optional<MapSource> changed_in_part(const Thread& thread, int64_t error) {
  const auto& args = thread.call.args;
  const pid_t pid = thread.process->memory.pid();
  const Special special = thread.call.row->special;
  if (special == Special::mremap) return args[3] & MREMAP_FIXED ? moved_part(pid, args) : std::nullopt;
  const bool protects = special == Special::mprotect && error != -EINVAL;  // that is checked first
  const bool empties = special == Special::madvise && args[2] == MADV_DONTNEED;
  const AddressRange range{args[0], args[0] + page_up(args[1])};
  MapSource part;
  if (range.start % kPageSize != 0 || range.end < range.start) return empties ? std::optional(part) : std::nullopt;
  if (!protects && !empties) return {};
  const auto mappings = mappings_in(pid, range);
  if (!mappings) return {};
  if (protects) {
    constexpr uint64_t kProtection = PROT_READ | PROT_WRITE | PROT_EXEC;
    part.length = protected_part(range, *mappings, static_cast<int>(args[2] & kProtection), thread.read_implies_exec);
  } else if (const auto emptied = emptied_part(pid, range, *mappings)) {
    part.length = *emptied;
  } else {
    return {};
  }
  return part;
}

}  // namespace redrive
