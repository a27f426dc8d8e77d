#include "checkpoint/register_images.h"

#include <cpuid.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace redrive {
namespace {

// Intel SDM volume 1, 13.4: the legacy region, the header, and the components in the standard format.
struct LegacyRegisters {
  uint16_t cwd = 0, swd = 0, twd = 0, fop = 0;
  uint64_t rip = 0, rdp = 0;
  uint32_t mxcsr = 0, mxcsr_mask = 0;
};
constexpr size_t kStacked = 32, kXmm = 160, kPadding = 416, kHeader = 512, kExtended = 576;
constexpr size_t kLongest = 16 << 10;  // as much is asked of the kernel; AMX needs 11,008
enum Component : uint32_t { kYmmUpper = 2, kBoundRegisters, kBoundSettings, kOpmask, kZmmUpper, kZmmHigh, kPkru = 9 };

// Each list of the message, with where its bytes are and how many; once for both directions.
void visit_lists(criu::user_x86_fpregs_entry& fpregs, const auto& offsets, const auto& visit) {
  visit(*fpregs.mutable_st_space(), kStacked, kXmm - kStacked);
  visit(*fpregs.mutable_xmm_space(), kXmm, kPadding - kXmm);
  visit(*fpregs.mutable_padding(), kPadding, kHeader - kPadding);
  auto& xsave = *fpregs.mutable_xsave();
  const auto component = [&](auto& list, Component number, size_t bytes) {
    if (offsets[number]) visit(list, offsets[number], bytes);
  };
  component(*xsave.mutable_ymmh_space(), kYmmUpper, 256);
  component(*xsave.mutable_bndreg_state(), kBoundRegisters, 64);
  component(*xsave.mutable_bndcsr_state(), kBoundSettings, 64);
  component(*xsave.mutable_opmask_reg(), kOpmask, 64);
  component(*xsave.mutable_zmm_upper(), kZmmUpper, 512);
  component(*xsave.mutable_hi16_zmm(), kZmmHigh, 1024);
  component(*xsave.mutable_pkru(), kPkru, 8);
}

template <typename List>
using ElementOf = typename std::remove_reference_t<List>::value_type;

bool all_zero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

}  // namespace

void add_registers(const user_regs_struct& regs, criu::user_x86_regs_entry& out) {
  out.set_r15(regs.r15);
  out.set_r14(regs.r14);
  out.set_r13(regs.r13);
  out.set_r12(regs.r12);
  out.set_bp(regs.rbp);
  out.set_bx(regs.rbx);
  out.set_r11(regs.r11);
  out.set_r10(regs.r10);
  out.set_r9(regs.r9);
  out.set_r8(regs.r8);
  out.set_ax(regs.rax);
  out.set_cx(regs.rcx);
  out.set_dx(regs.rdx);
  out.set_si(regs.rsi);
  out.set_di(regs.rdi);
  out.set_orig_ax(regs.orig_rax);
  out.set_ip(regs.rip);
  out.set_cs(regs.cs);
  out.set_flags(regs.eflags);
  out.set_sp(regs.rsp);
  out.set_ss(regs.ss);
  out.set_fs_base(regs.fs_base);
  out.set_gs_base(regs.gs_base);
  out.set_ds(regs.ds);
  out.set_es(regs.es);
  out.set_fs(regs.fs);
  out.set_gs(regs.gs);
}

user_regs_struct registers_of(const criu::user_x86_regs_entry& in) {
  user_regs_struct regs{};
  regs.r15 = in.r15();
  regs.r14 = in.r14();
  regs.r13 = in.r13();
  regs.r12 = in.r12();
  regs.rbp = in.bp();
  regs.rbx = in.bx();
  regs.r11 = in.r11();
  regs.r10 = in.r10();
  regs.r9 = in.r9();
  regs.r8 = in.r8();
  regs.rax = in.ax();
  regs.rcx = in.cx();
  regs.rdx = in.dx();
  regs.rsi = in.si();
  regs.rdi = in.di();
  regs.orig_rax = in.orig_ax();
  regs.rip = in.ip();
  regs.cs = in.cs();
  regs.eflags = in.flags();
  regs.rsp = in.sp();
  regs.ss = in.ss();
  regs.fs_base = in.fs_base();
  regs.gs_base = in.gs_base();
  regs.ds = in.ds();
  regs.es = in.es();
  regs.fs = in.fs();
  regs.gs = in.gs();
  return regs;
}

XstateLayout XstateLayout::of_processor() {
  static const XstateLayout known = [] {
    constexpr uint32_t kLeaf = 0xd, kFirst = 2;
    XstateLayout made;
    for (uint32_t number = kFirst; number < made.offsets_.size(); ++number) {
      uint32_t size = 0, offset = 0, unused = 0;
      if (__get_cpuid_count(kLeaf, number, &size, &offset, &unused, &unused) && size) made.offsets_[number] = offset;
    }
    return made;
  }();
  return known;
}

XstateLayout XstateLayout::of(const images::State& state) {
  XstateLayout made;
  for (const images::Component& component : state.components()) {
    if (component.number() < made.offsets_.size()) made.offsets_[component.number()] = component.offset();
  }
  return made;
}

void XstateLayout::add_to(images::State& state) const {
  for (uint32_t number = 0; number < offsets_.size(); ++number) {
    if (!offsets_[number]) continue;
    auto& component = *state.add_components();
    component.set_number(number);
    component.set_offset(static_cast<uint32_t>(offsets_[number]));
  }
}

void XstateLayout::write(const Bytes& xstate, images::Thread& out) const {
  ASSERT(xstate.size() <= kLongest);
  out.set_xstate_size(static_cast<uint32_t>(xstate.size()));
  auto& fpregs = *out.mutable_core()->mutable_thread_info()->mutable_fpregs();
  Bytes rest = xstate;
  LegacyRegisters legacy;
  uint64_t present = 0;
  const bool has_fields = xstate.size() >= kExtended;
  if (has_fields) {
    std::memcpy(&legacy, rest.data(), sizeof legacy);
    std::memcpy(&present, rest.data() + kHeader, sizeof present);
    std::memset(rest.data(), 0, sizeof legacy);
    std::memset(rest.data() + kHeader, 0, sizeof present);
    visit_lists(fpregs, offsets_, [&](auto& list, size_t offset, size_t bytes) {
      using Element = ElementOf<decltype(list)>;
      if (offset + bytes > rest.size() || all_zero({rest.data() + offset, bytes})) return;
      list.Resize(static_cast<int>(bytes / sizeof(Element)), 0);
      std::memcpy(list.mutable_data(), rest.data() + offset, bytes);
      std::memset(rest.data() + offset, 0, bytes);
    });
  }
  fpregs.set_cwd(legacy.cwd);
  fpregs.set_swd(legacy.swd);
  fpregs.set_twd(legacy.twd);
  fpregs.set_fop(legacy.fop);
  fpregs.set_rip(legacy.rip);
  fpregs.set_rdp(legacy.rdp);
  fpregs.set_mxcsr(legacy.mxcsr);
  fpregs.set_mxcsr_mask(legacy.mxcsr_mask);
  fpregs.mutable_xsave()->set_xstate_bv(present);
  if (!all_zero(rest)) out.set_xstate(rest.data(), rest.size());
}

bool XstateLayout::read(images::Thread& in, Bytes& xstate) const {
  const bool has_rest = in.has_xstate();
  if (in.xstate_size() > kLongest || (has_rest && in.xstate().size() != in.xstate_size())) return false;
  xstate.assign(in.xstate_size(), 0);
  if (has_rest) std::memcpy(xstate.data(), in.xstate().data(), xstate.size());
  if (xstate.size() < kExtended) return true;
  auto& fpregs = *in.mutable_core()->mutable_thread_info()->mutable_fpregs();
  bool fits = true;
  visit_lists(fpregs, offsets_, [&](auto& list, size_t offset, size_t bytes) {
    using Element = ElementOf<decltype(list)>;
    if (list.empty()) return;
    fits = fits && static_cast<size_t>(list.size()) == bytes / sizeof(Element) && offset + bytes <= xstate.size();
    if (fits) std::memcpy(xstate.data() + offset, list.data(), bytes);
  });
  const LegacyRegisters legacy{static_cast<uint16_t>(fpregs.cwd()),
                               static_cast<uint16_t>(fpregs.swd()),
                               static_cast<uint16_t>(fpregs.twd()),
                               static_cast<uint16_t>(fpregs.fop()),
                               fpregs.rip(),
                               fpregs.rdp(),
                               fpregs.mxcsr(),
                               fpregs.mxcsr_mask()};
  std::memcpy(xstate.data(), &legacy, sizeof legacy);
  const uint64_t present = fpregs.xsave().xstate_bv();
  std::memcpy(xstate.data() + kHeader, &present, sizeof present);
  return fits;
}

}  // namespace redrive
