// Reads the ring in which the code inside tracees records the calls that it serves (interceptors/inprocess/layout.h).
//
// A reader takes a stretch of complete records off the ring while the program goes on and appends others. The stretch
// stays where it is until empty(), or is copied; its records are then read one after the other. A send's record can be
// taken before the call has its result, because what was sent may be received before that.
//
// The program shares the ring's memory, and can write there whatever it likes, whenever it likes. So each field is read
// once and checked before it is used. What the code inside tracees cannot have written is reported, and nothing else
// becomes of it: the reader neither makes events nor knows what the calls are.
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

// A value that the code inside the tracee, or the program, may change meanwhile.
template <typename T>
T read_once(const T& value) {
  return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}

// Consecutive records. The last one may have no result yet.
class RingStretch {
 public:
  // From `at` on lie `complete` bytes of complete records, and then one without a result, if any, in `unfinished`
  // bytes.
  RingStretch(const uint8_t* at, uint64_t complete, uint64_t unfinished)
      : at_(at), complete_(complete), unfinished_(unfinished) {}

  uint64_t bytes() const { return complete_ + unfinished_; }
  // How many calls the complete records stand for.
  uint64_t calls() const;
  // Copies what is left of it to this place. It is read there from now on.
  void move_to(uint8_t* place);

  // Goes to the next record; the first call of this goes to the first.
  enum class Next : uint8_t { record, end, broken };
  Next next();
  // Nothing more is read of it.
  void drop() { complete_ = unfinished_ = size_ = 0; }
  // Whether next() has found none.
  bool at_end() const { return size_ == 0; }

  // ---- The record that next() has found
  const gate::Record& record() const { return *reinterpret_cast<const gate::Record*>(at_); }
  // Whether it has its result.
  bool complete() const { return complete_ != 0; }
  uint64_t stamp() const { return stamp_; }
  ThreadSerial thread() const { return thread_; }
  // The memory that the call read, and all that it read or wrote, if the record has its result.
  std::span<const Memory::Piece> read() const { return std::span(pieces_).first(read_); }
  std::span<const Memory::Piece> pieces() const { return pieces_; }
  // Whether its entry was taken before, when it had no result. Says so once.
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
  // What was recorded with a stamp up to `now`, and not taken before.
  Taken take(gate::Slot& slot, uint64_t now);
  // No thread runs that could write: if all was taken, what was taken is gone, and the ring is empty.
  void empty(gate::Slot& slot);

  // The thread makes a call that was to be served, and leaves it to a stop. All before it has been taken. Its record,
  // of which only the entry is written; nothing if that was taken before.
  std::optional<RingStretch> take_entry(const gate::Slot& slot);
  // The call is not made after all. Whether its entry was taken before.
  bool cancel_entry() { return std::exchange(entry_taken_, false); }
  // The record of the call that the thread makes right now, as far as it is written. Nothing is taken.
  static std::optional<RingStretch> current(const gate::Slot& slot);

 private:
  uint64_t taken_ = 0;        // bytes of the ring
  uint64_t last_stamp_ = 0;   // of the last complete record among them
  bool entry_taken_ = false;  // of the send at the ring's head
};

// Copies of stretches, so that their rings can be emptied before they are read. Two batches last at a time.
class StretchCopies {
 public:
  // The bytes of a batch, a few hundred KiB in most. What the largest one needed stays in memory.
  static constexpr uint64_t kMost = 4 * gate::kRingSize;

  // A batch begins, and the one before the last is gone.
  void begin_batch();
  // Has the stretch lie in the batch, which has room for it.
  void add(RingStretch& stretch);

 private:
  std::unique_ptr<uint8_t[]> copies_, other_copies_;  // kMost bytes; null: none yet
  uint8_t* next_ = nullptr;
};

}  // namespace redrive
