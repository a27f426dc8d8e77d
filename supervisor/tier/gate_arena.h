// What the supervisor shares with all tracees of a command.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_version.h"
#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/stub_filter.h"
#include "interceptors/inprocess/layout.h"
#include "interceptors/syscall_table.h"
#include "interceptors/trapped_instructions.h"
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
  // What the filter must know to let the code's own calls through: where they are made, and of the loader's, which are
  // made anywhere, their arguments. Some of these the kernel ignores, and they hold the secret, which no program knows.
  std::vector<UntracedSite> untraced() const;
  std::array<ExactCall, 3> loader_calls() const;
  const SharedMemory& code() const { return code_; }
  const SharedMemory& clock() const { return clock_; }

  // The last stamp that a call has taken.
  uint64_t now() const {
    return __atomic_load_n(&reinterpret_cast<const gate::Clock*>(clock_.data())->now, __ATOMIC_ACQUIRE);
  }
  // Which calls of an address space note when they are made: each so manieth. 0 or 1: all.
  void set_notes_every(uint32_t calls) { __atomic_store_n(&orders().notes_every, calls, __ATOMIC_RELEASE); }
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
  // The same for calls that do not change and are made at any time: at kLasting.
  void set_lasting(std::span<const gate::InjectedCall> calls);
  static constexpr Address kLasting = gate::kOrders + sizeof(gate::Orders);
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

}  // namespace redrive
