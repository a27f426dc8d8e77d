#include "checkpoint/unit_state.h"

#include <algorithm>
#include <cstring>

namespace redrive {
namespace {

// Bit fields of struct user_desc (asm/ldt.h).
constexpr uint32_t kReadExecOnly = 1u << 3, kSegmentNotPresent = 1u << 5, kUseable = 1u << 6, kFlags = 0xff;

}  // namespace

std::optional<LocalDescriptor> LocalDescriptor::read(const Memory& memory, Address address, bool older) {
  LocalDescriptor descriptor;
  if (!memory.get(address, descriptor)) return std::nullopt;
  if (!older) return descriptor;
  descriptor.flags &= ~kUseable;
  if (descriptor.base == 0 && descriptor.limit == 0) descriptor.flags = kReadExecOnly | kSegmentNotPresent;
  return descriptor;
}

bool LocalDescriptor::clears_entry() const {
  return base == 0 && limit == 0 && (flags & kFlags) == (kReadExecOnly | kSegmentNotPresent);
}

void apply(const LocalDescriptor& descriptor, LocalDescriptors& descriptors) {
  if (descriptor.clears_entry()) {
    descriptors.erase(descriptor.entry);
  } else {
    descriptors[descriptor.entry] = descriptor;
  }
}

void UnitState::note_zero_pages(uint32_t process, const Mapping& mapping, Address address,
                                std::span<const uint8_t> pages) {
  if (!mapping.file || mapping.shared_object) return;
  for (size_t at = 0; at < pages.size(); at += kPageSize) {
    if (is_zero_page(pages.data() + at)) zero_pages.push_back({process, address + at});
  }
}

uint32_t UnitState::memory_of(uint32_t process) const {
  const auto found =
      std::find_if(processes.begin(), processes.end(), [&](const ProcessState& p) { return p.process == process; });
  return found == processes.end() ? process : found->memory_of.value_or(process);
}

std::array<uint64_t, 18> comparable_registers(const user_regs_struct& regs) {
  constexpr uint64_t kVolatileFlags = 0x100 | 0x10000;  // TF, RF
  return {regs.rax, regs.rbx, regs.rdx, regs.rsi,     regs.rdi,     regs.rbp,
          regs.rsp, regs.r8,  regs.r9,  regs.r10,     regs.r12,     regs.r13,
          regs.r14, regs.r15, regs.rip, regs.fs_base, regs.gs_base, regs.eflags | kVolatileFlags};
}

bool same_registers(const user_regs_struct& a, const user_regs_struct& b) {
  return comparable_registers(a) == comparable_registers(b);
}

// Intel SDM volume 1, "XSAVE-Managed State": the legacy area, the header, the components in the standard format.
Bytes comparable_xstate(Bytes xstate) {
  constexpr struct {
    size_t start, size;
  } kLeftOut[] = {{6, 18},    // FOP, FIP, FDP
                  {464, 48},  // for software
                  {512, 8}};  // XSTATE_BV
  for (const auto& range : kLeftOut) {
    if (range.start + range.size <= xstate.size()) std::memset(&xstate[range.start], 0, range.size);
  }
  return xstate;
}

bool same_xstate(const Bytes& a, const Bytes& b) {
  constexpr size_t kCommon = 832;  // up to the upper halves of YMM
  Bytes x = comparable_xstate(a), y = comparable_xstate(b);
  if (x.size() != y.size()) {
    const size_t common = std::min({kCommon, x.size(), y.size()});
    x.resize(common), y.resize(common);
  }
  return x == y;
}

}  // namespace redrive
