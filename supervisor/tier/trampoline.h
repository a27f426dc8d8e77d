// Instructions that are replaced by jumps, and the code that these jump to.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/page.h"
#include "base/remote.h"
#include "interceptors/patch_window.h"

namespace redrive {

// `pausing`, `polling`: any instruction of a loop in which threads wait, with and without a pause instruction. It is
// preceded, not replaced: the trampoline has the tier count how often the thread comes there, and then executes it. A
// thread that continues at the instruction from elsewhere begins with the jump, too, and is counted.
enum class SiteKind : uint8_t { syscall, cpuid, rdtsc, rdtscp, pausing, polling };
constexpr bool is_loop(SiteKind kind) { return kind == SiteKind::pausing || kind == SiteKind::polling; }
constexpr const char* name_of(SiteKind kind) {
  constexpr const char* kNames[] = {"syscall", "cpuid", "rdtsc", "rdtscp", "pausing", "polling"};
  return kNames[static_cast<size_t>(kind)];
}
// Whether the program may need what is in rcx: system calls and cpuid change it.
constexpr bool keeps_rcx(SiteKind kind) { return kind != SiteKind::syscall && kind != SiteKind::cpuid; }
// The size of what is executed elsewhere in the place of the instruction.
constexpr uint64_t instruction_size(SiteKind kind) { return is_loop(kind) ? 0 : kind == SiteKind::rdtscp ? 3 : 2; }

inline constexpr uint8_t kNothing = 0xcc;  // int3: it fills what is never executed
inline constexpr uint64_t kTrampolineSize = 64;
inline constexpr uint64_t kTrampolinesSize = 4 * kPageSize;

// An instruction that can be replaced, or preceded, by a jump.
struct SitePatch {
  Address site;
  PatchWindow window;
  Bytes original;  // what the window must hold; empty: anything
  SiteKind kind = SiteKind::syscall;

  bool counter() const { return kind == SiteKind::rdtsc || kind == SiteKind::rdtscp; }
  Address start() const { return site - window.before; }
  size_t size() const { return window.before ? window.before : instruction_size(kind) + window.after; }
};

// An instruction that was replaced.
struct PatchedSite {
  Address site;    // of the instruction
  Address start;   // of the window
  Bytes original;  // what the window held
  Address stop;    // the instruction in the trampoline that stops; the thread continues right after it
  Address moved;   // where the instructions after it were moved to; of a loop, these are all, and `stop` is the same
  SiteKind kind = SiteKind::syscall;

  Address trampoline() const { return stop / kTrampolineSize * kTrampolineSize; }
  Address behind() const { return site + instruction_size(kind); }
  Address end() const { return start + original.size(); }
  uint64_t moved_size() const { return end() > behind() ? end() - behind() : 0; }
};

// The bytes of a trampoline at `at` for the site; sets the site's `stop` and `moved`. Empty if a moved instruction
// cannot reach what it refers to from there.
Bytes trampoline(Address at, Address entry_pointer, const PatchWindow& window, PatchedSite& site);
// Appends to code that will lie at `at` the instructions at the end of a window, which lay at `from`, so that they mean
// the same, and a jump to what follows them. False if one of them cannot move.
bool append_moved(Bytes& code, Address at, Bytes moved, const PatchWindow& window, Address from);
// jmp to `target`, padded to the window's size.
Bytes jump(Address at, Address target, size_t size);

}  // namespace redrive
