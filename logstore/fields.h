// Records whose fields are listed once, in a function that both directions call: Writing and Reading.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "logstore/journal.h"

namespace redrive {

class Writing {
 public:
  void field(bool value) { out_.u(value); }
  void field(int32_t value) { out_.s(value); }
  void field(int64_t value) { out_.s(value); }
  void field(uint32_t value) { out_.u(value); }
  void field(uint64_t value) { out_.u(value); }
  void field(double value) { out_.real(value); }
  void field(const std::string& value) { out_.str(value); }
  void field(const Bytes& value) { out_.bytes(value); }
  void field(CheckpointKind value) { out_.u(static_cast<uint64_t>(value)); }
  void field(const EventRef& value) {
    field(value.unit);
    field(value.event);
  }
  void field(const FileEnd& value) {
    field(value.name);
    field(value.size);
    field(value.items);
  }
  template <typename T>
  void field(const std::vector<T>& values) {
    list(values, [&](const T& value) { field(value); });
  }
  template <typename T, typename Each>
  void list(const std::vector<T>& values, const Each& each) {
    out_.u(values.size());
    for (const auto& value : values) each(value);
  }
  template <typename... T>
  void operator()(const T&... values) {
    (field(values), ...);
  }
  // A field that formats before 4 lack.
  void since_4(uint64_t value, bool absent) {
    if (!absent) field(value);
  }
  // A field at the end of a record, which older formats lack.
  template <typename T>
  void added(const T& value) {
    field(value);
  }
  // 8 bytes, whatever the value.
  void fixed(uint64_t value) { out_.fixed64(value); }
  Bytes take() { return out_.take(); }

 private:
  Encoder out_;
};

class Reading {
 public:
  explicit Reading(std::span<const uint8_t> data) : in_(data) {}
  void field(bool& value) { value = bounded(1); }
  void field(int32_t& value) {
    const int64_t wide = in_.s();
    value = static_cast<int32_t>(wide);
    if (value != wide) in_.fail();
  }
  void field(int64_t& value) { value = in_.s(); }
  void field(uint32_t& value) { value = static_cast<uint32_t>(bounded(UINT32_MAX)); }
  void field(uint64_t& value) { value = in_.u(); }
  void field(double& value) { value = in_.real(); }
  void field(std::string& value) { value = in_.str(); }
  void field(Bytes& value) {
    const auto bytes = in_.bytes();
    value.assign(bytes.begin(), bytes.end());
  }
  void field(CheckpointKind& value) {
    value = static_cast<CheckpointKind>(bounded(static_cast<uint64_t>(CheckpointKind::image)));
  }
  void field(EventRef& value) {
    field(value.unit);
    field(value.event);
  }
  void field(FileEnd& value) {
    field(value.name);
    field(value.size);
    field(value.items);
  }
  template <typename T>
  void field(std::vector<T>& values) {
    list(values, [&](T& value) { field(value); });
  }
  template <typename T, typename Each>
  void list(std::vector<T>& values, const Each& each) {
    const size_t count = in_.count();
    for (size_t i = 0; i < count && in_.ok(); i++) each(values.emplace_back());
  }
  template <typename... T>
  void operator()(T&... values) {
    (field(values), ...);
  }
  void since_4(uint64_t& value, bool& absent) {
    absent = in_.at_end();
    if (!absent) field(value);
  }
  template <typename T>
  void added(T& value) {
    if (!in_.at_end()) field(value);
  }
  void fixed(uint64_t& value) { value = in_.fixed64(); }
  bool done() const { return in_.ok() && in_.at_end(); }

 private:
  uint64_t bounded(uint64_t limit) {
    const uint64_t value = in_.u();
    if (value > limit) in_.fail();
    return value;
  }
  Decoder in_;
};

}  // namespace redrive
