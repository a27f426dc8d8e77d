#include "supervisor/record/recorded_gate.h"

#include <algorithm>
#include <utility>

namespace redrive {

bool RecordedGate::StoppingSite::stopped_again() {
  return site && site->stopped_again() && (++stops >= kOwnCodeWorthPatching || !own);
}

RecordedGate::RecordedGate(GateArena& arena, const RecordedGate& parent, Unit* unit)
    : Gate(arena, parent), unit(unit), program(parent.program), stopping(parent.stopping), known_(parent.known_) {}

void RecordedGate::patch_code(const Memory& memory, const std::vector<PlannedPatch>& patches) {
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
  std::erase_if(stopping, [&](const auto& entry) { return start <= entry.first && entry.first < end; });
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
