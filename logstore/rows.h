// A block of rows of numbers and byte strings, written as what could not be predicted. FORMAT.md, "Rows".
//
// Rows come from few places, and each resembles an earlier one from the same place. So the values of a row are compared
// with those of a model, which is such an earlier row, and only those that differ are written, each into the column of
// its kind. The writer chooses the models, and the reader follows it.
//
// RowWriter makes a block, RowReader reads one from its beginning. Nothing is known of other blocks. RowReader trusts
// nothing: as in a Decoder, bad bytes make it fail(). It needs no more memory than the block and its models.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace redrive {

namespace rows {

inline constexpr size_t kPredicted = 48;  // values of a row that models have; all further ones are written
inline constexpr size_t kMostModels = 256;
inline constexpr size_t kSeries = 64;
enum Column : size_t { kModels, kChanges, kNumbers, kSteps, kHashes, kBytes, kColumns };

struct Model {
  std::array<uint64_t, kPredicted> values{};
  uint64_t changed = 0;  // which values the last row changed, a bit for each
  uint32_t next = 0;     // which model came after it the last time
};

// The models of a block, which its writer and its reader change in the same way. A row uses one of them, and has its
// values afterwards.
class Models {
 public:
  // The first is blank.
  void clear();
  size_t count() const { return count_; }
  Model& operator[](uint32_t index) { return all_[index]; }
  uint32_t last() const { return last_; }                 // used
  uint32_t expected() const { return all_[last_].next; }  // to be used next
  // Makes a copy, in the place of the oldest one if there are too many.
  uint32_t copy(uint32_t from);
  Model& use(uint32_t index) {
    last_ = all_[last_].next = index;
    return all_[index];
  }

 private:
  std::vector<Model> all_ = std::vector<Model>(1);  // more than count_, to reuse their memory
  size_t count_ = 1, copies_ = 0;
  uint32_t last_ = 0;
};

}  // namespace rows

class RowWriter {
 public:
  // Begins a row. Those with the same `place` have a model of their own; their first is predicted by a row of the same
  // `likeness`, if there was one.
  void begin(uint64_t place, uint64_t likeness);
  // A number that is probably the same as in the row before, or differs little.
  void u(uint64_t value) {
    put(value, [&](uint64_t before) { columns_[rows::kNumbers].s(static_cast<int64_t>(value - before)); });
  }
  void s(int64_t value) { u(static_cast<uint64_t>(value)); }
  // A number that probably differs from `base` by as much as in the row before.
  void near(uint64_t value, uint64_t base) { u(value - base); }
  // A number that is probably larger than the last one of its series, in whatever row, by as much as that was.
  void since(size_t series, uint64_t value) {
    const uint64_t step = value - std::exchange(series_[series], value);
    put(step, [&](uint64_t) { columns_[rows::kSteps].s(static_cast<int64_t>(step)); });
  }
  // A number that is probably the same as in the row before, or random.
  void fixed8(uint8_t value) {
    put(value, [&](uint64_t) { columns_[rows::kHashes].raw(&value, sizeof value); });
  }
  void fixed32(uint32_t value) {
    put(value, [&](uint64_t) { columns_[rows::kHashes].fixed32(value); });
  }
  void fixed64(uint64_t value) {
    put(value, [&](uint64_t) { columns_[rows::kHashes].fixed64(value); });
  }
  void raw(const void* data, size_t size) { columns_[rows::kBytes].raw(data, size); }
  void bytes(std::span<const uint8_t> data) {
    u(data.size());
    raw(data.data(), data.size());
  }
  void end();

  size_t size() const;  // of the block, in bytes
  Bytes block() const;
  void clear();  // begins another block

 private:
  // Where a model is found; an entry of an earlier block is void.
  struct Place {
    uint64_t key = 0;
    uint32_t model = 0;
    uint32_t block = 0;
  };
  static constexpr size_t kPlaces = 512, kTried = 4;

  template <typename Write>
  void put(uint64_t value, Write write) {
    const size_t at = at_++;
    uint64_t before = 0;
    if (at < rows::kPredicted) {
      before = std::exchange(model_->values[at], value);
      if (before == value) return;
      changed_ |= uint64_t{1} << at;
    }
    write(before);
  }
  uint32_t find(uint64_t key) const;
  void note(uint64_t key, uint32_t model);

  std::array<Encoder, rows::kColumns> columns_;
  std::array<uint64_t, rows::kSeries> series_{};
  rows::Models models_;
  std::vector<Place> places_ = std::vector<Place>(kPlaces);
  std::array<uint64_t, rows::kMostModels> place_of_{};  // of each model
  uint32_t block_ = 1;
  // The row that was begun:
  rows::Model* model_ = nullptr;
  uint64_t choice_ = 0;
  bool copied_ = false;
  size_t at_ = 0;
  uint64_t changed_ = 0;
};

// The bytes must outlive it. All values are read as they were written; what was written with near(), since() and so on
// is read with the function of the same name.
class RowReader {
 public:
  explicit RowReader(std::span<const uint8_t> block = {}) { read(block); }
  // Reads another block from now on.
  void read(std::span<const uint8_t> block);

  void begin();
  uint64_t u() {
    return get([&](uint64_t before) { return before + static_cast<uint64_t>(columns_[rows::kNumbers].s()); });
  }
  int64_t s() { return static_cast<int64_t>(u()); }
  uint64_t near(uint64_t base) { return base + u(); }
  uint64_t since(size_t series) {
    return series_[series] += get([&](uint64_t) { return static_cast<uint64_t>(columns_[rows::kSteps].s()); });
  }
  uint8_t fixed8() {
    return static_cast<uint8_t>(get([&](uint64_t) {
      const auto byte = columns_[rows::kHashes].take(1);
      return byte.empty() ? uint64_t{0} : byte[0];
    }));
  }
  uint32_t fixed32() {
    return static_cast<uint32_t>(get([&](uint64_t) { return columns_[rows::kHashes].fixed32(); }));
  }
  uint64_t fixed64() {
    return get([&](uint64_t) { return columns_[rows::kHashes].fixed64(); });
  }
  std::span<const uint8_t> take(uint64_t size) { return columns_[rows::kBytes].take(size); }
  std::span<const uint8_t> bytes() { return take(u()); }
  // The number of elements that follow, each of one number or more; fails if that cannot be.
  size_t count(size_t min_numbers = 1);

  bool ok() const;
  void fail() { columns_[rows::kModels].fail(); }
  bool at_end() const;

 private:
  template <typename Read>
  uint64_t get(Read read) {
    const size_t at = at_++;
    if (at >= rows::kPredicted) return read(0);
    uint64_t& value = model_->values[at];
    if (changed_ >> at & 1) value = read(value);
    return value;
  }

  std::array<Decoder, rows::kColumns> columns_;
  std::array<uint64_t, rows::kSeries> series_{};
  rows::Models models_;
  rows::Model* model_ = nullptr;
  size_t at_ = 0;
  uint64_t changed_ = 0;
};

}  // namespace redrive
