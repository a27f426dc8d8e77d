#include "logstore/rows.h"

#include <algorithm>

#include "base/assert.h"

namespace redrive {
namespace {

// How a row's model is given: 0 if it is the expected one, otherwise by its number. To this is added how it is used.
constexpr uint64_t kNumbered = 2, kPerModel = 4;
enum Use : uint64_t {
  kAsBefore,  // the same values change as in its last row
  kOtherwise,
  kCopied,  // the model is a copy; only of one that is numbered
};

}  // namespace

namespace rows {

void Models::clear() {
  all_[0] = Model();
  count_ = 1;
  copies_ = 0;
  last_ = 0;
}

uint32_t Models::copy(uint32_t from) {
  const auto to = static_cast<uint32_t>(1 + copies_++ % (kMostModels - 1));
  if (to == all_.size()) all_.emplace_back();
  count_ = std::max<size_t>(count_, to + 1);
  if (to != from) all_[to] = all_[from];
  return to;
}

}  // namespace rows

// ---- Writing

// The blank model, 0, if none is known.
uint32_t RowWriter::find(uint64_t key) const {
  for (size_t i = 0; i < kTried; ++i) {
    const Place& place = places_[(key + i) % kPlaces];
    if (place.block == block_ && place.key == key) return place.model;
  }
  return 0;
}

// In a full table, one of the places is forgotten.
void RowWriter::note(uint64_t key, uint32_t model) {
  Place* noted = &places_[key % kPlaces];
  for (size_t i = 0; i < kTried; ++i) {
    Place& place = places_[(key + i) % kPlaces];
    if (place.block == block_ && place.key != key) continue;
    noted = &place;
    break;
  }
  *noted = {key, model, block_};
}

void RowWriter::begin(uint64_t place, uint64_t likeness) {
  ASSERT(!model_);
  uint32_t model = find(place);
  copied_ = model == 0 || place_of_[model] != place;
  if (!copied_) {
    choice_ = model == models_.expected() ? 0 : kNumbered + kPerModel * model;
  } else {
    const uint32_t like = find(likeness);
    const uint32_t from = like ? like : models_.last();
    choice_ = kNumbered + kPerModel * from;
    model = models_.copy(from);
    note(place, model);
    note(likeness, model);
    place_of_[model] = place;
  }
  model_ = &models_.use(model);
  at_ = 0;
  changed_ = 0;
}

void RowWriter::end() {
  ASSERT(model_);
  const Use use = copied_ ? kCopied : changed_ == model_->changed ? kAsBefore : kOtherwise;
  columns_[rows::kModels].u(choice_ + use);
  if (use != kAsBefore) columns_[rows::kChanges].u(changed_);
  model_->changed = changed_;
  model_ = nullptr;
}

size_t RowWriter::size() const {
  size_t sum = 0;
  for (const Encoder& column : columns_) sum += column.size();
  return sum;
}

Bytes RowWriter::block() const {
  ASSERT(!model_);
  Encoder out;
  for (const Encoder& column : columns_) out.u(column.size());
  for (const Encoder& column : columns_) out.raw(column.data().data(), column.size());
  return out.take();
}

void RowWriter::clear() {
  ASSERT(!model_);
  for (Encoder& column : columns_) column.clear();
  series_ = {};
  models_.clear();
  ++block_;
}

// ---- Reading

void RowReader::read(std::span<const uint8_t> block) {
  models_.clear();
  model_ = nullptr;
  series_ = {};
  columns_ = {};
  Decoder in(block);
  std::array<uint64_t, rows::kColumns> sizes{};
  for (uint64_t& size : sizes) size = in.u();
  for (size_t i = 0; i < sizes.size(); ++i) columns_[i] = Decoder(in.take(sizes[i]));
  if (!in.ok() || !in.at_end()) fail();
}

void RowReader::begin() {
  const uint64_t choice = columns_[rows::kModels].u();
  uint32_t model = models_.expected();
  uint64_t use = choice;
  if (choice >= kNumbered) {
    const uint64_t number = (choice - kNumbered) / kPerModel;
    use = (choice - kNumbered) % kPerModel;
    if (use > kCopied || number >= models_.count()) {
      fail();
      use = kOtherwise;
    } else {
      model = static_cast<uint32_t>(number);
      if (use == kCopied) model = models_.copy(model);
    }
  }
  model_ = &models_.use(model);
  if (use != kAsBefore) model_->changed = columns_[rows::kChanges].u();
  changed_ = model_->changed;
  at_ = 0;
}

size_t RowReader::count(size_t min_numbers) {
  const uint64_t n = u();
  // The first numbers of a row may take no space.
  if (n <= (rows::kPredicted + columns_[rows::kNumbers].left()) / std::max<size_t>(min_numbers, 1)) return n;
  fail();
  return 0;
}

bool RowReader::ok() const {
  return std::all_of(columns_.begin(), columns_.end(), [](const Decoder& column) { return column.ok(); });
}

bool RowReader::at_end() const {
  return std::all_of(columns_.begin(), columns_.end(), [](const Decoder& column) { return column.at_end(); });
}

}  // namespace redrive
