// Byte strings and the variable-length integers that the trace is written in.
//
// A Decoder never reads past its input: the first bad length makes it fail(), and every later read yields zero or
// nothing, so that decoding code checks ok() once, at the end. Integers are LEB128 (unsigned) and zig-zag (signed).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redrive {

using Bytes = std::vector<uint8_t>;

class Encoder {
 public:
  void u(uint64_t value) {
    constexpr size_t kLongest = 10;
    uint8_t* const first = room(kLongest);
    uint8_t* at = first;
    for (; value >= 0x80; value >>= 7) *at++ = static_cast<uint8_t>(value | 0x80);
    *at++ = static_cast<uint8_t>(value);
    size_ += static_cast<size_t>(at - first);
  }
  void s(int64_t value) { u((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63)); }
  void fixed64(uint64_t value) { raw(&value, sizeof value); }
  void fixed32(uint32_t value) { raw(&value, sizeof value); }
  void real(double value) { raw(&value, sizeof value); }
  void bytes(std::span<const uint8_t> data) {
    u(data.size());
    raw(data.data(), data.size());
  }
  void str(std::string_view text) { bytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()}); }
  void raw(const void* data, size_t size) {
    if (size) std::memcpy(room(size), data, size);
    size_ += size;
  }
  size_t size() const { return size_; }
  std::span<const uint8_t> data() const { return {out_.data(), size_}; }
  Bytes take() {
    out_.resize(std::exchange(size_, 0));
    return std::move(out_);
  }
  void clear() { size_ = 0; }

 private:
  uint8_t* room(size_t size) {
    if (out_.size() - size_ < size) out_.resize(std::max(2 * out_.size(), size_ + size));
    return out_.data() + size_;
  }

  Bytes out_;  // longer than what was written
  size_t size_ = 0;
};

class Decoder {
 public:
  Decoder() = default;  // of nothing
  explicit Decoder(std::span<const uint8_t> data) : data_(data) {}

  uint64_t u() {
    if (at_ < data_.size() && data_[at_] < 0x80) return data_[at_++];
    const uint8_t* at = data_.data() + at_;
    const uint8_t* const end = data_.data() + data_.size();
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at != end; shift += 7) {
      const uint8_t byte = *at++;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte & 0x80) continue;
      at_ = static_cast<size_t>(at - data_.data());
      return value;
    }
    ok_ = false;
    return 0;
  }
  int64_t s() {
    const uint64_t value = u();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  uint64_t fixed64() { return fixed<uint64_t>(); }
  uint32_t fixed32() { return fixed<uint32_t>(); }
  double real() { return fixed<double>(); }
  std::span<const uint8_t> bytes() { return take(u()); }
  std::string str() {
    const auto data = bytes();
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  std::span<const uint8_t> take(uint64_t size) {
    if (!ok_ || size > data_.size() - at_) {
      ok_ = false;
      return {};
    }
    const auto out = data_.subspan(at_, size);
    at_ += size;
    return out;
  }
  // The number of elements that follow; fails if fewer than `min_bytes` bytes per element are left.
  size_t count(size_t min_bytes = 1) {
    const uint64_t n = u();
    if (n > (data_.size() - at_) / (min_bytes ? min_bytes : 1)) {
      ok_ = false;
      return 0;
    }
    return n;
  }
  bool ok() const { return ok_; }
  void fail() { ok_ = false; }
  bool at_end() const { return at_ == data_.size(); }
  size_t position() const { return at_; }
  size_t left() const { return data_.size() - at_; }

 private:
  template <typename T>
  T fixed() {
    T value{};
    const auto data = take(sizeof value);
    if (data.size() == sizeof value) std::memcpy(&value, data.data(), sizeof value);
    return value;
  }

  std::span<const uint8_t> data_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace redrive
