#include "supervisor/cli/unit_spec.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/text.h"
#include "logstore/home.h"

namespace redrive {

Result<UnitSpec> parse_unit_spec(const std::string& text) {
  const Error wrong{
      fmt::format("'{}' does not name a unit: write UNIT, UNIT:I or UNIT:I-J, such as 3 or jacobi.2:4-6", text),
      Status::usage};
  const size_t colon = text.rfind(':');
  UnitSpec spec;
  spec.unit = text.substr(0, colon);
  if (spec.unit.empty()) return wrong;
  if (colon == std::string::npos) return spec;

  const std::string range = text.substr(colon + 1);
  const size_t dash = range.find('-');
  const auto first = parse_number(range.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parse_number(range.substr(dash + 1));
  constexpr uint64_t kLimit = std::numeric_limits<IntervalIndex>::max();
  if (!first || !last || *first > *last || *last > kLimit) return wrong;
  spec.first_interval = static_cast<IntervalIndex>(*first);
  spec.last_interval = static_cast<IntervalIndex>(*last);
  return spec;
}

bool names_trace(const std::string& word) {
  if (word.find('/') != std::string::npos) return true;
  if (parse_number(word)) return false;
  const auto directory = find_trace(word);
  return directory && is_directory(directory.value());
}

Result<PlaceSpec> parse_place_spec(const std::string& text) {
  const size_t at = text.rfind('@');
  const auto event = at == std::string::npos ? std::nullopt : parse_number(std::string_view(text).substr(at + 1));
  if (at == 0 || !event) {
    return Error{
        fmt::format("'{}' does not name an event of a unit: write UNIT@EVENT, such as 3@120 or jacobi.2@120", text),
        Status::usage};
  }
  return PlaceSpec{text.substr(0, at), *event};
}

Result<DeliverySpec> parse_delivery_spec(const std::string& text) {
  const size_t equals = text.rfind('=');
  const auto place = parse_place_spec(text.substr(0, equals));
  if (equals == std::string::npos || equals + 1 == text.size() || !place) {
    return Error{
        fmt::format("'{}' does not name a receive and a sender: write UNIT@EVENT=SENDER, such as 1@120=3", text),
        Status::usage};
  }
  return DeliverySpec{*place, text.substr(equals + 1)};
}

Result<std::vector<EventRef>> find_events(const Trace& trace, const std::vector<PlaceSpec>& places) {
  std::vector<EventRef> events;
  for (const PlaceSpec& place : places) {
    ASSIGN_OR_RETURN(const UnitId unit, trace.find_unit(place.unit));
    events.push_back({unit, place.event});
  }
  return events;
}

namespace {

std::optional<uint64_t> parse_hexadecimal(std::string_view text) {
  if (!text.starts_with("0x")) return parse_number(text);
  uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// `text`: what was given, in this form.
Result<MemorySpec> memory_spec(const std::string& unit, const std::string& address, const std::string& length,
                               const std::string& text, const char* form) {
  const auto first = parse_hexadecimal(address);
  const auto size = parse_hexadecimal(length);
  if (unit.empty() || !first || !size) {
    return Error{fmt::format("'{}' does not name memory: write {}", text, form), Status::usage};
  }
  if (*size == 0 || *size > kMaxShownMemory) {
    return Error{fmt::format("cannot show {} bytes: choose 1 to {}", *size, kMaxShownMemory), Status::usage};
  }
  return MemorySpec{unit, *first, *size};
}

}  // namespace

Result<MemorySpec> parse_memory_spec(const std::string& unit, const std::string& address, const std::string& length) {
  return memory_spec(unit, address, length, fmt::format("{} {} {}", unit, address, length), "UNIT ADDRESS LENGTH");
}

Result<MemorySpec> parse_memory_spec(const std::string& text) {
  const std::string unit = text.substr(0, text.rfind(':'));
  const std::string range = text.substr(std::min(unit.size() + 1, text.size()));
  const std::string address = range.substr(0, range.find('+'));
  const std::string length = range.substr(std::min(address.size() + 1, range.size()));
  return memory_spec(unit, address, length, text, "UNIT:ADDRESS+LENGTH, such as 3:0x404000+64");
}

Result<Selection> select(const Trace& trace, const UnitSpec& spec) {
  ASSIGN_OR_RETURN(const UnitId unit, trace.find_unit(spec.unit));
  const size_t count = trace.intervals(unit).size();
  if (count == 0)
    return Error{fmt::format("unit {} has no intervals: it was recorded only up to its birth", spec.unit)};
  Selection selection{unit, 0, static_cast<IntervalIndex>(count - 1)};
  if (spec.first_interval) selection.first = *spec.first_interval;
  if (spec.last_interval) selection.last = *spec.last_interval;
  if (selection.last >= count) {
    return Error{count == 1
                     ? fmt::format("unit {} has no interval {}: its only interval is 0", spec.unit, selection.last)
                     : fmt::format("unit {} has no interval {}: it has 0 to {}", spec.unit, selection.last, count - 1)};
  }
  return selection;
}

}  // namespace redrive
