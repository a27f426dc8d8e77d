// Reads the ring in which the code inside tracees records the calls that it serves (interceptors/inprocess/layout.h).
//
// A reader takes a stretch of complete records off the ring while the program goes on and appends others. The stretch
// stays where it is until empty(), or is copied. Its records are then read one after the other. A send's record can be
// taken before the call has its result, because the bytes may be received before that.
//
// The program shares the ring's memory, and can write there whatever it likes, whenever it likes. So each field is read
// once and checked before it is used. What the code inside tracees cannot have written is reported to the caller. The
// reader does not make events and does not know what the calls mean.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/remote.h"
#include "interceptors/inprocess/layout.h"
#include "logstore/event.h"

namespace redrive {

// Reads a value that the code inside the tracee, or the program, may change at the same time.
template <typename T>
T read_once(const T& value) {
  T read;
  __atomic_load(&value, &read, __ATOMIC_ACQUIRE);
  return read;
}

// Consecutive records. The last one may have no result yet.
class RingStretch {
 public:
  // `complete` bytes of complete records begin at `at`. After them may come one without a result, in `unfinished`
  // bytes.
  RingStretch(const uint8_t* at, uint64_t complete, uint64_t unfinished)
      : at_(at), complete_(complete), unfinished_(unfinished) {}

  uint64_t bytes() const { return complete_ + unfinished_; }
  uint64_t complete_bytes() const { return complete_; }
  // How many calls the complete records before each of these places stand for. The places ascend.
  std::vector<uint64_t> calls_before(std::span<const uint64_t> places) const;
  // Copies the stretch to this place, where it is read from now on.
  void move_to(uint8_t* place);

  // Goes to the next record, at first to the first one.
  enum class Next : uint8_t { record, end, broken };
  Next next();
  // Ends the stretch here: no other record is read.
  void drop() { complete_ = unfinished_ = size_ = 0; }
  // Whether there is no current record: next() was not called yet, or found none.
  bool at_end() const { return size_ == 0; }

  // ---- The record that next() has found
  const gate::Record& record() const { return *reinterpret_cast<const gate::Record*>(at_); }
  // Whether the current record has its result.
  bool complete() const { return complete_ != 0; }
  uint64_t stamp() const { return stamp_; }
  ThreadSerial thread() const { return thread_; }
  // read() is the memory that the call read. pieces() has what it wrote too, if the record has its result.
  std::span<const Memory::Piece> read() const { return std::span(pieces_).first(read_); }
  std::span<const Memory::Piece> pieces() const { return pieces_; }
  // Whether the record was taken before, when it had no result. Returns true only once.
  bool take_begun() { return std::exchange(begun_, false); }

 private:
  friend class RingReader;

  bool split(uint64_t available);

  const uint8_t* at_;
  uint64_t complete_, unfinished_;
  bool begun_ = false;
  uint64_t size_ = 0;  // of the record
  uint64_t stamp_ = 0;
  ThreadSerial thread_ = 0;
  uint32_t read_ = 0;
  std::vector<Memory::Piece> pieces_;
};

class RingReader {
 public:
  struct Nothing {};
  struct Broken {};
  using Taken = std::variant<Nothing, RingStretch, Broken>;
  // Takes what was recorded with a stamp up to `now` and not taken before.
  Taken take(gate::Slot& slot, uint64_t now);
  // Empties the ring if all of it was taken; stretches of it are then invalid. No thread may run that could write into
  // it.
  void empty(gate::Slot& slot);

  // Call this if the tracee leaves a call to a stop that it was about to serve, when all before it has been taken.
  // Returns the call's record, which has no result; nullopt if that was taken before.
  std::optional<RingStretch> take_entry(const gate::Slot& slot);
  // Call this if such a call is not made after all. Returns whether its record was taken before.
  bool cancel_entry() { return std::exchange(entry_taken_, false); }
  // Bytes of the ring that were taken: a stretch ends there.
  uint64_t taken() const { return taken_; }
  // The record of the call that the thread is making, as far as it is written. It is not taken.
  static std::optional<RingStretch> current(const gate::Slot& slot);

 private:
  uint64_t taken_ = 0;        // bytes of the ring that were taken
  uint64_t last_stamp_ = 0;   // of the last complete record among them
  bool entry_taken_ = false;  // whether the record of the send at the ring's head was taken
};

// Copies of stretches, so that their rings can be emptied before the stretches are read. It holds two batches.
class StretchCopies {
 public:
  // How many bytes a batch can have. Most have a few hundred KiB. The memory of the largest one is not returned.
  static constexpr uint64_t kMost = 4 * gate::kRingSize;

  // Begins a batch. The one before the last becomes invalid.
  void begin_batch();
  // Moves the stretch into the batch, which must have room for it.
  void add(RingStretch& stretch);

 private:
  std::unique_ptr<uint8_t[]> copies_, other_copies_;  // kMost bytes; null: none yet
  uint8_t* next_ = nullptr;
};

}  // namespace redrive
