#include "checkpoint/unit_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace redrive {
namespace {

constexpr uint64_t kSharedAndSized = 2;  // instead of `shared`: the size of the object follows, since format 5

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

void encode(const UnitState& state, Encoder& out) {
  out.u(state.trigger);
  out.u(state.next_thread);
  out.u(state.next_process);
  out.u(state.first_joined_thread);
  out.u(state.first_joined_process);
  out.u(state.processes.size());
  for (const auto& process : state.processes) {
    out.u(process.process);
    out.u(static_cast<uint64_t>(process.pid));
    out.u(process.brk);
    out.u(process.mappings.size());
    for (const auto& m : process.mappings) {
      out.u(m.start);
      out.u(m.end);
      out.u(static_cast<uint64_t>(m.protection));
      out.u(m.object_size ? kSharedAndSized : m.shared);
      if (m.object_size) out.u(*m.object_size);
      out.u(m.offset);
      out.u(m.file);
      out.u(m.shared_object);
      out.str(m.name);
    }
  }
  out.u(state.zero_pages.size());
  for (const auto& page : state.zero_pages) {
    out.u(page.process);
    out.u(page.address);
  }
  out.u(state.threads.size());
  for (const auto& thread : state.threads) {
    out.u(thread.thread);
    out.u(thread.process);
    out.u(thread.in_syscall);
    out.raw(&thread.regs, sizeof thread.regs);
    out.bytes(thread.xstate);
  }
  for (const auto& process : state.processes) {
    out.u(process.stack_limit);
    out.u(process.memory_of ? *process.memory_of + uint64_t{1} : 0);
  }
  for (const auto& process : state.processes) {
    out.u(process.descriptors.size());
    for (const auto& [entry, descriptor] : process.descriptors) out.raw(&descriptor, sizeof descriptor);
  }
}

bool decode(Decoder& in, UnitState& state) {
  state = {};
  state.trigger = static_cast<uint32_t>(in.u());
  state.next_thread = static_cast<uint32_t>(in.u());
  state.next_process = static_cast<uint32_t>(in.u());
  state.first_joined_thread = static_cast<uint32_t>(in.u());
  state.first_joined_process = static_cast<uint32_t>(in.u());
  state.processes.resize(in.count(4));
  for (auto& process : state.processes) {
    process.process = static_cast<uint32_t>(in.u());
    process.pid = static_cast<int32_t>(in.u());
    process.brk = in.u();
    process.mappings.resize(in.count(8));
    for (auto& m : process.mappings) {
      m.start = in.u();
      m.end = in.u();
      m.protection = static_cast<int>(in.u());
      const uint64_t shared = in.u();
      m.shared = shared != 0;
      if (shared == kSharedAndSized) m.object_size = in.u();
      if (shared > kSharedAndSized || m.object_size.value_or(0) >> 62) in.fail();
      m.offset = in.u();
      m.file = in.u();
      m.shared_object = in.u();
      m.name = in.str();
      if (m.end < m.start || m.start % kPageSize || m.end % kPageSize) in.fail();
    }
  }
  state.zero_pages.resize(in.count(2));
  for (auto& page : state.zero_pages) {
    page.process = static_cast<uint32_t>(in.u());
    page.address = in.u();
  }
  state.threads.resize(in.count(sizeof(user_regs_struct)));
  for (auto& thread : state.threads) {
    thread.thread = static_cast<uint32_t>(in.u());
    thread.process = static_cast<uint32_t>(in.u());
    thread.in_syscall = in.u() != 0;
    const auto regs = in.take(sizeof thread.regs);
    if (regs.size() == sizeof thread.regs) std::memcpy(&thread.regs, regs.data(), sizeof thread.regs);
    const auto xstate = in.bytes();
    thread.xstate.assign(xstate.begin(), xstate.end());
  }
  const bool goes_on = !in.at_end();  // present since format 5
  for (auto& process : state.processes) {
    if (!goes_on) break;
    process.stack_limit = in.u();
    if (const uint64_t owner = in.u()) process.memory_of = static_cast<uint32_t>(owner - 1);
  }
  const bool has_descriptors = !in.at_end();  // present since format 7
  for (auto& process : state.processes) {
    if (!has_descriptors) break;
    for (size_t left = in.count(sizeof(LocalDescriptor)); left > 0; --left) {
      LocalDescriptor descriptor;
      const auto held = in.take(sizeof descriptor);
      if (held.size() != sizeof descriptor) break;
      std::memcpy(&descriptor, held.data(), sizeof descriptor);
      process.descriptors[descriptor.entry] = descriptor;
    }
  }
  return in.ok();
}

Result<UnitState> read_state(std::span<const uint8_t> header, uint32_t unit, uint32_t interval) {
  UnitState state;
  Decoder in(header);
  if (decode(in, state)) return state;
  return Error{fmt::format("the image of interval {} of unit {} cannot be understood", interval, unit),
               Status::damaged};
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
