#include "supervisor/unit_spec.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace redrive {

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

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

Result<Selection> select(const Trace& trace, const UnitSpec& spec) {
  ASSIGN_OR_RETURN(const UnitId unit, trace.find_unit(spec.unit));
  const size_t count = trace.intervals(unit).size();
  if (count == 0)
    return Error{fmt::format("unit {} has no intervals: it was recorded up to its birth only", spec.unit)};
  Selection selection{unit, 0, static_cast<IntervalIndex>(count - 1)};
  if (spec.first_interval) selection.first = *spec.first_interval;
  if (spec.last_interval) selection.last = *spec.last_interval;
  if (selection.last >= count) {
    return Error{count == 1
                     ? fmt::format("unit {} has no interval {}: its only one is 0", spec.unit, selection.last)
                     : fmt::format("unit {} has no interval {}: it has 0 to {}", spec.unit, selection.last, count - 1)};
  }
  return selection;
}

}  // namespace redrive
