#include "supervisor/tier/trampoline.h"

#include <cstring>

#include "base/assert.h"
#include "interceptors/inprocess/layout.h"
#include "interceptors/trap_sites.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {
Bytes jump(Address at, Address target, size_t size) {
  Bytes code(size, kNothing);
  code[0] = 0xe9;
  const auto distance = static_cast<int32_t>(target - (at + kJumpSize));
  std::memcpy(code.data() + 1, &distance, sizeof distance);
  return code;
}

bool append_moved(Bytes& code, Address at, Bytes moved, const PatchWindow& window, Address from) {
  const Address to = at + code.size(), behind = from + moved.size();
  for (size_t k = 0; k + sizeof(int32_t) <= moved.size(); ++k) {
    if (!(window.displacements >> k & 1)) continue;
    int32_t distance;
    std::memcpy(&distance, moved.data() + k, sizeof distance);
    const int64_t farther = distance + static_cast<int64_t>(from - to);
    if (farther != static_cast<int32_t>(farther)) return false;
    distance = static_cast<int32_t>(farther);
    std::memcpy(moved.data() + k, &distance, sizeof distance);
  }
  const auto append_distance = [&](Address target) {
    const auto distance = static_cast<int32_t>(target - (at + code.size() + sizeof(int32_t)));
    code.resize(code.size() + sizeof distance);
    std::memcpy(code.data() + code.size() - sizeof distance, &distance, sizeof distance);
  };
  code.insert(code.end(), moved.begin(), moved.end() - (window.ends_in_jump ? kShortJumpSize : 0));
  if (window.ends_in_jump) {
    constexpr uint8_t kNearJump = 0xe9;
    const uint8_t opcode = moved[moved.size() - kShortJumpSize];
    if (opcode == kShortJump) {
      code.push_back(kNearJump);
    } else if (is_counting_jump(opcode)) {  // over a jump over the near one: near jumps have no such condition
      code.insert(code.end(), {opcode, 2, kShortJump, kJumpSize, kNearJump});
    } else {
      code.insert(code.end(), {0x0f, static_cast<uint8_t>(0x10 + opcode)});
    }
    append_distance(behind + static_cast<uint64_t>(static_cast<int8_t>(moved.back())));
  }
  code.push_back(0xe9);
  append_distance(behind);
  return true;
}

Bytes trampoline(Address at, Address entry_pointer, const PatchWindow& window, PatchedSite& site) {
  constexpr auto kSavedRcx = static_cast<uint32_t>(gate::kSlot + offsetof(gate::Slot, regs.rcx));
  const SiteKind kind = site.kind;
  Bytes code(site.original.begin(), site.original.begin() + window.before);
  const auto append = [&](std::initializer_list<uint8_t> bytes) { code.insert(code.end(), bytes); };
  const auto relative_to = [&](Address target) {
    const auto distance = static_cast<int32_t>(target - (at + code.size() + 4));
    uint8_t bytes[4];
    std::memcpy(bytes, &distance, sizeof distance);
    code.insert(code.end(), std::begin(bytes), std::end(bytes));
  };
  if (keeps_rcx(kind)) {
    append({0x48, 0x89, 0x0c, 0x25});  // mov %rcx, to where the gate restores it from
    for (int shift = 0; shift < 32; shift += 8) append({static_cast<uint8_t>(kSavedRcx >> shift)});
  }
  // lea stop to %rcx, or to a register that the instruction overwrites and does not read: %rdx
  append({0x48, 0x8d, kind == SiteKind::cpuid ? uint8_t{0x15} : uint8_t{0x0d}});
  site.stop = at + code.size() + 4 + 6;
  relative_to(site.stop);
  append({0xff, 0x25});  // jmp *entry_pointer
  relative_to(entry_pointer);
  switch (kind) {
    case SiteKind::syscall:
      append({0x0f, 0x05});
      append({0x48, 0x8d, 0x0d});  // lea: the value that the syscall instruction leaves in %rcx
      relative_to(site.behind());
      break;
    case SiteKind::cpuid:
    case SiteKind::rdtsc:
    case SiteKind::rdtscp: {
      const Bytes stops = stand_in(static_cast<int>(instruction_size(kind)));
      code.insert(code.end(), stops.begin(), stops.end());
      break;
    }
    case SiteKind::pausing:
    case SiteKind::polling:
      break;
  }
  site.moved = at + code.size();
  const Bytes after(site.original.end() - window.after, site.original.end());
  if (!append_moved(code, at, after, window, site.behind())) return {};
  ASSERT(code.size() <= kTrampolineSize);
  return code;
}

}  // namespace redrive
