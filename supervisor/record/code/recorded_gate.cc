#include "supervisor/record/code/recorded_gate.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "supervisor/tier/registers.h"

namespace redrive {

bool RecordedGate::StoppingSite::stopped() {
  if (!site || !site->stopped()) return false;
  // A loop has cost as much as many stops.
  return ++stops >= kOwnCodeWorthPatching || !own || is_loop(site->kind);
}

RecordedGate::RecordedGate(GateArena& arena, const RecordedGate& parent, Unit* unit)
    : Gate(arena, parent),
      unit(unit),
      program(parent.program),
      stopping_(parent.stopping_),
      known_(parent.known_),
      patches_nothing_(parent.patches_nothing_) {}

void RecordedGate::patch_code(const Memory& memory, const std::vector<PlannedPatch>& patches) {
  if (patches_nothing_) return;
  std::vector<SitePatch> bare;
  for (const PlannedPatch& each : patches) bare.push_back(each.patch);
  patch(memory, std::move(bare));
  last_stops_ = {};
  for (const PlannedPatch& each : patches) {
    if (patched(each.patch.site)) known_.try_emplace(each.patch.site, Known{each.site});
  }
}

void RecordedGate::forget_code(Address start, Address end) {
  const size_t before = sites.size();
  forget(start, end);
  last_stops_ = {};
  if (sites.size() != before) std::erase_if(known_, [&](const auto& entry) { return !patched(entry.first); });
  std::erase_if(stopping_, [&](const auto& entry) { return start <= entry.first && entry.first < end; });
}

RecordedGate::StoppingSite* RecordedGate::stopping(Address at) {
  const auto found = stopping_.find(at);
  return found == stopping_.end() ? nullptr : &found->second;
}

void RecordedGate::replace(const Memory& memory, Address at, CodeSite& site) {
  stopping_[at] = {};
  patch_code(memory, {{{at, *site.window, site.original, site.kind}, &site}});
  if (const PatchedSite* made = patched(at)) {
    site.original = made->original;
    come_by(made->stop);
    stopping_.erase(at);
  }
}

bool RecordedGate::is_changed_by(Special call, std::span<const uint64_t, 6> args) const {
  const auto is_own = [&](Address start, uint64_t length) { return owns(start, start + length); };
  switch (call) {
    case Special::mmap:
      return (args[3] & MAP_FIXED) && is_own(args[0], args[1]);
    case Special::munmap:
    case Special::mprotect:
    case Special::madvise:
      return is_own(args[0], args[1]);
    case Special::mremap:
      return is_own(args[0], args[1]) || ((args[3] & MREMAP_FIXED) && is_own(args[4], args[2]));
    default:
      return false;
  }
}

void RecordedGate::put_back_moved(const Memory& memory, std::span<const uint64_t, 6> args) {
  put_back(memory, args[0], page_up(args[0] + args[1]));
}

void RecordedGate::put_back_all(const Memory& memory) {
  patches_nothing_ = true;
  put_back(memory, 0, ~Address{0});
}

void RecordedGate::put_back(const Memory& memory, Address start, Address end) {
  for (const PatchedSite& site : sites) {
    if (start < site.end() && site.start < end) memory.write(site.start, site.original.data(), site.original.size());
  }
  forget_code(start, end);
}

bool RecordedGate::begins_trampoline(Address ip) const {
  return std::any_of(sites.begin(), sites.end(), [&](const PatchedSite& site) { return site.trampoline() == ip; });
}

void RecordedGate::forget_changed(Special call, std::span<const uint64_t, 6> args, int64_t result) {
  if (is_error(result)) return;
  const auto made = static_cast<Address>(result);
  switch (call) {
    case Special::munmap:
      forget_code(args[0], args[0] + args[1]);
      break;
    case Special::mmap:
      forget_code(made, made + args[1]);
      break;
    case Special::mremap:
      forget_code(args[0], args[0] + args[1]);
      forget_code(made, made + args[2]);
      break;
    default:
      break;
  }
}

const PatchedSite* RecordedGate::come_by(Address stop) {
  Stop& last = last_stops_[stop / kTrampolineSize % last_stops_.size()];
  if (last.stop == stop) return last.site;
  const auto site = std::find_if(sites.begin(), sites.end(), [&](const auto& each) { return each.stop == stop; });
  last = {stop, site == sites.end() ? nullptr : &*site};
  if (!last.site || !program) return last.site;
  const auto known = known_.find(site->site);
  if (known != known_.end() && !std::exchange(known->second.used, true)) known->second.site->used_by.insert(program);
  return last.site;
}

void RecordedGate::use_table(const std::shared_ptr<FdCache>& table) {
  if (!slot() || table_ == table) return;
  table_ = table;
  std::fill(std::begin(slot()->known), std::end(slot()->known), 0);
  std::fill(std::begin(slot()->fresh), std::end(slot()->fresh), 0);
  std::fill(std::begin(slot()->no_file), std::end(slot()->no_file), 0);
  if (!table) return;
  table->known.for_each([&](int descriptor) { set_known(*table, descriptor, true); });
}

void RecordedGate::forget_fresh(uint32_t first, uint32_t last) {
  if (!slot()) return;
  constexpr uint32_t kBits = 64;
  last = std::min(last, gate::kDescriptors - 1);
  for (uint32_t word = first / kBits; word <= last / kBits; ++word) {
    if (!slot()->fresh[word]) continue;
    const uint32_t begin = std::max(first, word * kBits), end = std::min(last, word * kBits + kBits - 1);
    for (uint32_t fd = begin; fd <= end; ++fd) gate::set_bit(slot()->fresh, fd, false);
  }
}

void RecordedGate::set_known(const FdCache& table, int descriptor, bool known) {
  if (table_.get() != &table || table.in_several_memories) return;
  gate::set_known(*slot(), static_cast<uint32_t>(descriptor), known);
}

}  // namespace redrive
