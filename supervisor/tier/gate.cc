#include "supervisor/tier/gate.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "checkpoint/stub.h"

namespace redrive {
namespace {

constexpr uint64_t kReach = 1ull << 31;  // of a jump
constexpr uint64_t kReachMargin = 1 << 24;

// Where trampolines of such an instruction jump to, among the addresses that add_trampolines() writes.
uint64_t entry_of(SiteKind kind) {
  return kind == SiteKind::cpuid ? 1 : kind == SiteKind::pausing ? 2 : kind == SiteKind::polling ? 3 : 0;
}

}  // namespace

user_regs_struct in_loop(const gate::Slot& slot, user_regs_struct regs) {
  regs.rip = slot.site;
  regs.rax = slot.regs.rax, regs.rcx = slot.regs.rcx, regs.r11 = slot.regs.r11;  // which a system call changes
  regs.orig_rax = ~0ull;
  return regs;
}

Gate::Gate(GateArena& arena, const Gate& parent)
    : messages(parent.messages),
      sites(parent.sites),
      trampolines(parent.trampolines),
      arena_(arena),
      stub_is_reserved_(parent.stub_is_reserved_) {}

bool Gate::take_slot() {
  auto memory = SharedMemory::make("redrive-slot", gate::kSlotSize, SharedMemory::Tracees::write);
  if (!memory) return false;
  memory_ = std::move(*memory);
  slot_ = reinterpret_cast<gate::Slot*>(memory_->data());
  list_areas();
  return true;
}

void Gate::list_areas() {
  uint32_t areas = 0;
  const auto add = [&](Address start, Address end) {
    if (areas < gate::kAreas) slot_->area[areas] = {start, end};
    ++areas;
  };
  if (stub_is_reserved_) add(kGateStart, kGateEnd);
  for (const Trampolines& area : trampolines) add(area.start, area.start + kTrampolinesSize);
  slot_->areas = areas;
}

void Gate::reserve_stub() {
  stub_is_reserved_ = true;
  if (slot_) list_areas();
}

Address Gate::canonical(Address ip) const {
  const bool inside = std::any_of(trampolines.begin(), trampolines.end(), [&](const Trampolines& area) {
    return ip >= area.start && ip < area.start + kTrampolinesSize;
  });
  if (!inside) return ip;
  for (const auto& site : sites) {
    if (ip == site.stop) return site.site;
    if (ip == site.stop + instruction_size(site.kind)) return site.behind();
    if (ip >= site.moved && ip - site.moved < site.moved_size()) return site.behind() + (ip - site.moved);
    if (ip == site.trampoline()) return site.start;
  }
  return ip;
}

Address Gate::physical(Address ip) const {
  for (const auto& site : sites) {
    // That the thread comes to a loop is counted.
    if (ip == site.site) return is_loop(site.kind) ? site.start : site.stop;
    if (ip == site.behind()) return site.stop + instruction_size(site.kind);
    if (ip > site.behind() && ip - site.behind() < site.moved_size()) return site.moved + (ip - site.behind());
  }
  return ip;
}

void Gate::make_canonical(user_regs_struct& regs) const {
  const Address ip = std::exchange(regs.rip, canonical(regs.rip));
  if (regs.rcx == ip) regs.rcx = regs.rip;
}

const PatchedSite* Gate::patched(Address site) const {
  const auto found = std::lower_bound(sites.begin(), sites.end(), site,
                                      [](const PatchedSite& each, Address wanted) { return each.site < wanted; });
  return found == sites.end() || found->site != site ? nullptr : &*found;
}

Gate::Trampolines* Gate::trampolines_near(Address site) {
  for (auto& known : trampolines) {
    const uint64_t distance = known.start > site ? known.start - site : site - known.start;
    if (distance < kReach - kReachMargin && !known.used.all()) return &known;
  }
  return nullptr;
}

std::optional<Address> Gate::gap_near(const std::vector<AddressRange>& mapped, Address near, uint64_t below) {
  constexpr uint64_t kGuard = 16 * kPageSize;
  constexpr Address kLowest = 1 << 20;
  constexpr uint64_t kFarthest = kReach - 2 * kReachMargin;
  for (auto above = mapped.rbegin(); above != mapped.rend(); ++above) {
    if (above->start > near) continue;
    const Address gap = above + 1 == mapped.rend() ? kLowest : (above + 1)->end;
    if (near - above->start > kFarthest) break;
    if (above->start < gap + 2 * kGuard + kTrampolinesSize) continue;
    const Address highest = above->start - kGuard - kTrampolinesSize;
    const Address lowest = std::max(gap + kGuard, page_up(near - std::min(near, kFarthest)));
    return std::max(std::min(lowest, highest), highest - std::min(highest, below));
  }
  return std::nullopt;
}

void Gate::add_trampolines(const Memory& memory, Address start) {
  const uint64_t entries[] = {arena_.header().entry, arena_.header().cpuid, arena_.header().pausing,
                              arena_.header().polling};
  memory.put(start, entries);
  trampolines.emplace_back(start);
  if (slot_) list_areas();
}

void Gate::patch(const Memory& memory, std::vector<SitePatch> patches) {
  std::stable_sort(patches.begin(), patches.end(), [](const auto& a, const auto& b) { return a.start() < b.start(); });
  std::vector<MemoryPiece> windows;
  for (const auto& patch : patches) windows.push_back({patch.start(), nullptr, patch.size()});
  std::vector<Stretch> code, stretches = memory.stretches(windows);
  std::vector<PatchedSite> made;
  auto stretch = stretches.begin();
  for (const SitePatch& patch : patches) {
    while (stretch != stretches.end() && stretch->end() < patch.start() + patch.size()) ++stretch;
    if (stretch == stretches.end()) break;
    if (stretch->start > patch.start()) continue;
    const auto overlaps = [&](const PatchedSite& other) {
      return patch.start() < other.end() && other.start < patch.start() + patch.size();
    };
    if (std::any_of(sites.begin(), sites.end(), overlaps) || (!made.empty() && overlaps(made.back()))) continue;
    uint8_t* const window = stretch->bytes.data() + (patch.start() - stretch->start);
    const Bytes held(window, window + patch.size());
    if (!patch.original.empty() && patch.original != held) continue;
    Trampolines* const area = trampolines_near(patch.site);
    if (!area) continue;
    size_t index = 0;
    while (area->used[index]) ++index;
    const Address at = area->start + index * kTrampolineSize;
    PatchedSite site{patch.site, patch.start(), held, 0, 0, patch.kind};
    const Address entry = area->start + entry_of(patch.kind) * sizeof(uint64_t);
    Bytes bytes = trampoline(at, entry, patch.window, site);
    if (bytes.empty()) continue;
    area->used.set(index);
    bytes.resize(kTrampolineSize, kNothing);
    if (code.empty() || code.back().end() != at) code.push_back({at, {}});
    code.back().bytes.insert(code.back().bytes.end(), bytes.begin(), bytes.end());
    const Bytes leads = jump(site.start, at, held.size());
    std::copy(leads.begin(), leads.end(), window);
    made.push_back(std::move(site));
  }
  // Whether such a change lies there.
  const auto is_changed = [&](const Stretch& each) {
    return std::any_of(made.begin(), made.end(),
                       [&](const auto& site) { return site.start >= each.start && site.start < each.end(); });
  };
  std::erase_if(stretches, [&](const Stretch& each) { return !is_changed(each); });
  const auto write = [&](const Stretch& each) {
    return memory.write(each.start, each.bytes.data(), each.bytes.size());
  };
  if (std::all_of(code.begin(), code.end(), write) && std::all_of(stretches.begin(), stretches.end(), write)) {
    sites.insert(sites.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    std::sort(sites.begin(), sites.end(), [](const auto& x, const auto& y) { return x.site < y.site; });
    return;
  }
  // Nothing of it may remain.
  for (const auto& site : made) {
    memory.write(site.start, site.original.data(), site.original.size());
    release(site);
  }
}

void Gate::undo_patches(Address address, std::span<uint8_t> copy) const {
  for (const auto& site : sites) {
    const Address first = std::max(address, site.start), last = std::min(address + copy.size(), site.end());
    if (first < last) std::copy_n(site.original.data() + (first - site.start), last - first, &copy[first - address]);
  }
}

void Gate::release(const PatchedSite& site) {
  for (auto& area : trampolines) {
    if (site.stop >= area.start && site.stop < area.start + kTrampolinesSize)
      area.used.reset((site.stop - area.start) / kTrampolineSize);
  }
}

bool Gate::owns(Address start, Address end) const {
  const auto overlaps = [&](Address first, Address last) { return start < last && first < end; };
  return overlaps(gate::kCode, gate::kEnd) || (stub_is_reserved_ && overlaps(kGateStart, kGateEnd)) ||
         overlaps(messages.start, messages.end) ||
         std::any_of(trampolines.begin(), trampolines.end(),
                     [&](const auto& area) { return overlaps(area.start, area.start + kTrampolinesSize); });
}

bool Gate::touches(Address start, Address end) const {
  return owns(start, end) || std::any_of(sites.begin(), sites.end(), [&](const PatchedSite& site) {
           return start < site.end() && site.start < end;
         });
}

void Gate::forget(Address start, Address end) {
  std::erase_if(sites, [&](const PatchedSite& site) {
    const bool gone = start < site.end() && site.start < end;
    if (gone) release(site);
    return gone;
  });
}

}  // namespace redrive
