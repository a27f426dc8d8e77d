#include "interceptors/inprocess/replay.h"

#include "interceptors/inprocess/spans.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

// What the compiler and xxhash expect of a C library.
extern "C" void* memcpy(void* to, const void* from, size_t length) {
  void* at = to;
  asm volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(length) : : "memory");
  return to;
}
extern "C" void* memset(void* to, int byte, size_t length) {
  void* at = to;
  asm volatile("rep stosb" : "+D"(at), "+c"(length) : "a"(byte) : "memory");
  return to;
}

namespace redrive::gate {
namespace {

// As preserved_registers_hash (registers.h).
uint32_t registers_hash(const Registers& r) {
  uint64_t fs_base, gs_base;
  asm volatile("rdfsbase %0" : "=r"(fs_base));
  asm volatile("rdgsbase %0" : "=r"(gs_base));
  const uint64_t values[] = {r.rbx, r.rbp, r.rsp, r.r12, r.r13, r.r14, r.r15, fs_base, gs_base};
  return static_cast<uint32_t>(XXH3_64bits(values, sizeof values));
}

// The fingerprint of what the kernel would read (payload.h). One piece, as nearly all have, needs no state.
class InputHash {
 public:
  [[gnu::noinline]] void add(uint64_t address, uint64_t length) {
    if (pieces_++ == 0) {
      address_ = address, length_ = length;
      return;
    }
    if (pieces_ == 2) {
      XXH3_64bits_reset(&state_);
      XXH3_64bits_update(&state_, reinterpret_cast<const void*>(address_), length_);
    }
    XXH3_64bits_update(&state_, reinterpret_cast<const void*>(address), length);
  }
  [[gnu::noinline]] uint64_t value() const {
    if (pieces_ == 0) return 0;
    return pieces_ == 1 ? XXH3_64bits(reinterpret_cast<const void*>(address_), length_) : XXH3_64bits_digest(&state_);
  }

 private:
  int pieces_ = 0;
  uint64_t address_ = 0, length_ = 0;
  XXH3_state_t state_;
};

[[gnu::noinline]] uint64_t hash_inputs(const Call& call, const Registers& regs) {
  InputHash hash;
  const auto reads = [&](uint64_t address, uint64_t length) {
    hash.add(address, length);
    return true;
  };
  for (int i = 0; i < call.spans; ++i) {
    const Span& span = call.span[i];
    if (argument(regs, span.arg)) {
      visit_memory(span, regs, capacity(span, regs), reads, [](uint64_t, uint64_t) { return true; });
    }
  }
  return hash.value();
}

bool same_call(const Expected& expected, const Slot& slot) {
  const Registers& regs = slot.regs;
  if (expected.site != slot.site || static_cast<int64_t>(regs.rax) != expected.number) return false;
  for (uint32_t i = 0; i < expected.arguments; ++i) {
    if (argument(regs, static_cast<int>(i)) != expected.args[i]) return false;
  }
  if (registers_hash(regs) != expected.regs_hash) return false;
  const Call* const call = call_of(regs);
  return call && (expected.in_hash == 0 || hash_inputs(*call, regs) == expected.in_hash);
}

}  // namespace

bool answer(Slot& slot) {
  if (slot.taken == slot.head) return false;
  const auto& expected = *reinterpret_cast<const Expected*>(kRing + slot.taken);
  if (!same_call(expected, slot)) return false;
  const auto* piece = reinterpret_cast<const Piece*>(&expected + 1);
  for (uint32_t i = 0; i < expected.writes; ++i) {
    memcpy(reinterpret_cast<void*>(piece->address), piece + 1, piece->length);
    piece = reinterpret_cast<const Piece*>(reinterpret_cast<uint64_t>(piece + 1) + padded(piece->length));
  }
  slot.regs.rax = static_cast<uint64_t>(expected.result);
  if (++slot.repeated == expected.repeat) {
    slot.repeated = 0;
    slot.taken += expected.size;
  }
  return true;
}

}  // namespace redrive::gate
