// The in-process tier of address spaces: the memory that it shares with the supervisor, and the patched syscall sites.
#pragma once

#include <array>
#include <bitset>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/fd.h"
#include "base/file_version.h"
#include "base/mutex.h"
#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "checkpoint/stub_filter.h"
#include "interceptors/cpuid_sites.h"
#include "interceptors/inprocess/layout.h"
#include "interceptors/patch_window.h"
#include "interceptors/syscall_table.h"
#include "supervisor/tier/code_file.h"
#include "supervisor/tier/shared_memory.h"

namespace redrive {

// What all tracees have mapped: the code and its table, which they cannot change, and the clock. What an address space
// writes, its slot, is in memory of its own, because processes have different privileges. Thread-safe.
class GateArena {
 public:
  static Result<std::unique_ptr<GateArena>> make();
  GateArena(const GateArena&) = delete;
  GateArena& operator=(const GateArena&) = delete;

  const gate::Header& header() const { return *reinterpret_cast<const gate::Header*>(code_.data()); }
  // What a stub lets the code do when it is mapped there.
  StubTier stub_tier() const { return {header().executed, {gate::kCode, gate::kEnd}, header().patience}; }
  // The code that is written into a program in which none of this is mapped, to be run there (Header::load), with a
  // slot's file.
  Bytes loader(const SharedMemory& slot) const;
  // The value of r15 in calls that open files for the supervisor in a tracee.
  uint64_t secret() const { return secret_; }
  // What the filter must know to let the code's own calls through.
  std::vector<UntracedSite> untraced() const;
  std::array<ExactCall, 3> loader_calls() const;
  const SharedMemory& code() const { return code_; }
  const SharedMemory& clock() const { return clock_; }
  // Whether a tracee sees the same processes as this process and may access it.
  static bool can_open(pid_t pid);

  // The last stamp that a call has taken.
  uint64_t now() const {
    return __atomic_load_n(&reinterpret_cast<const gate::Clock*>(clock_.data())->now, __ATOMIC_ACQUIRE);
  }
  // Sets what a served rdtsc answers.
  void set_counter(const Counter& counter) { orders().counter = counter; }

  // From now on mappings of this file are served, as far as it is known what its code requires. Returns its place in
  // the list; nullopt if there are too many files.
  std::optional<uint32_t> add_file(const FileVersion& file, gate::MappedCode code);
  // From now on no mapping of any version of this file is served.
  void forget_file(uint64_t device, uint64_t inode);
  // An instruction of this file may be replaced from now on wherever its code is mapped.
  void code_is_replaced(const FileVersion& file);

  // From now on calls that may change a file with this inode stop. watch_none() ends this for all files.
  void watch(uint64_t inode);
  void watch_none();

  // Sets what tracees find at gate::kOrders.
  void set_injected(std::span<const gate::InjectedCall> calls);
  void set_slot_path(const std::string& path);
  static constexpr Address kSlotPath = gate::kOrders + offsetof(gate::Orders, slot_path);
  void set_answers(std::span<const gate::CpuidAnswer> answers);

 private:
  GateArena(SharedMemory code, SharedMemory clock) : code_(std::move(code)), clock_(std::move(clock)) {}
  gate::Orders& orders() { return *reinterpret_cast<gate::Orders*>(at(gate::kOrders)); }
  gate::WatchedFiles& watched() { return *reinterpret_cast<gate::WatchedFiles*>(at(gate::kWatched)); }
  gate::KnownFile* files();
  uint32_t place_of(const FileVersion& file);
  uint8_t* at(Address address) const { return code_.data() + (address - gate::kCode); }

  SharedMemory code_, clock_;
  uint64_t secret_ = 0;
  uint32_t files_ = 0;
};

// The ring of a slot that is mapped in this process.
inline uint8_t* ring(gate::Slot& slot) { return reinterpret_cast<uint8_t*>(&slot) + (gate::kRing - gate::kSlot); }

enum class SiteKind : uint8_t { syscall, cpuid, rdtsc, rdtscp };
constexpr const char* name_of(SiteKind kind) {
  constexpr const char* kNames[] = {"syscall", "cpuid", "rdtsc", "rdtscp"};
  return kNames[static_cast<size_t>(kind)];
}
constexpr uint64_t instruction_size(SiteKind kind) { return kind == SiteKind::rdtscp ? 3 : 2; }

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
  Address moved;   // where the instructions after it were moved to
  SiteKind kind = SiteKind::syscall;

  Address behind() const { return site + instruction_size(kind); }
  Address end() const { return start + original.size(); }
  uint64_t moved_size() const { return end() > behind() ? end() - behind() : 0; }
};

// What replays have learnt about the sites in mapped files: where a jump fits, and which sites are worth one.
// Thread-safe.
class CodeSegments {
 public:
  // Call this if a thread will come to the site `times` times. Nullopt if the mapping is not the unchanging code of a
  // file, if the site has no window, or if searching for one is not worth the time yet.
  std::optional<PatchWindow> window(const Memory& memory, const Mapping& mapping, Address site, SiteKind kind,
                                    uint64_t times);
  // The same for any instruction (CodeSegment::window_at).
  std::optional<PatchWindow> window_at(const Memory& memory, const Mapping& mapping, Address place);
  // Whether the file is that of a program that is linked with libraries.
  bool is_program(const Mapping& mapping);

 private:
  struct Site {
    SiteKind kind = SiteKind::syscall;
    uint64_t times = 0;
    bool examined = false;
    std::optional<PatchWindow> window;  // set once it was examined
  };
  struct Segment {
    std::optional<CodeFile> file;
    std::optional<CodeSegment> code;              // set once it was read
    uint64_t times = 0;                           // at all sites
    std::map<uint64_t, Site> sites;               // by the distance from the start
    std::optional<std::vector<CpuidSite>> cpuid;  // of the file; set once they were looked for
  };
  static bool is_unchanging(const Mapping& mapping);
  static const CodeSegment& code_of(Segment& segment, const Memory& memory, const Mapping& mapping);
  static auto key(const Mapping& mapping) {
    return std::make_tuple(mapping.device, mapping.inode, mapping.offset, mapping.length());
  }

  Mutex mutex_;
  std::map<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>, Segment> segments_
      GUARDED_BY(mutex_);  // device, inode, offset, length
};

inline constexpr uint64_t kTrampolineSize = 64;
inline constexpr uint64_t kTrampolinesSize = 4 * kPageSize;

// The tier in one address space. Processes that share the memory share it.
class Gate {
 public:
  explicit Gate(GateArena& arena) : arena_(arena) {}
  // The tier of a forked child, before it has a slot.
  Gate(GateArena& arena, const Gate& parent);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  GateArena& arena() const { return arena_; }
  bool take_slot();
  gate::Slot* slot() const { return slot_; }  // null before it is set, or if there was no memory for it
  SharedMemory& slot_memory() { return *memory_; }

  // Translates between addresses as the program knows them and as they are while it is patched.
  Address canonical(Address ip) const;
  Address physical(Address ip) const;
  // For a stopped thread, which may stand right after a trampoline's system call. That leaves its address in rcx.
  void make_canonical(user_regs_struct& regs) const;
  const PatchedSite* patched(Address site) const;  // null if it is not patched

  struct Trampolines {
    explicit Trampolines(Address start) : start(start) { used.set(0); }
    Address start;
    std::bitset<kTrampolinesSize / kTrampolineSize> used;  // the first one holds the addresses of the entries
  };
  // Trampoline memory within reach of the site that has room; null if there is none.
  Trampolines* trampolines_near(Address site);
  // Where such memory could be mapped: in a gap below `near`. Nullopt if there is no such gap.
  static std::optional<Address> gap_near(const std::vector<Mapping>& mappings, Address near);
  // Such memory was mapped there.
  void add_trampolines(const Memory& memory, Address start);
  // Replaces the instructions of windows by jumps to new trampolines, in memory that is mapped for them. A site stays
  // as it is if its window does not hold what it should, or if there is no such memory nearby. A thread inside a window
  // must not continue except through `physical`.
  void patch(const Memory& memory, std::vector<SitePatch> patches);
  // Restores the original bytes of windows in a copy of the memory from `address` on.
  void undo_patches(Address address, std::span<uint8_t> copy) const;
  // Whether the address is in the code inside tracees.
  static bool executes_at(Address ip) { return ip >= gate::kCode && ip < gate::kCode + gate::kCodeSize; }
  // Whether a range overlaps memory that is not the program's.
  bool owns(Address start, Address end) const;
  // ... or one where the program's own code was changed.
  bool touches(Address start, Address end) const;
  // The program has unmapped this range, or mapped something else there.
  void forget(Address start, Address end);

  struct {
    Address start = 0, end = 0;
  } messages;                      // in replay: memory with messages that its calls send and receive
  std::vector<PatchedSite> sites;  // sorted by address
  std::vector<Trampolines> trampolines;

 private:
  void release(const PatchedSite& site);  // another site can use its trampoline
  void list_areas();

  GateArena& arena_;
  std::optional<SharedMemory> memory_;
  gate::Slot* slot_ = nullptr;  // in this process
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
