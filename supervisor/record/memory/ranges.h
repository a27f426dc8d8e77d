// Ranges from `start` up to `end`, of a file or of memory (FileRange, AddressRange).
#pragma once

#include <algorithm>
#include <vector>

namespace redrive {

// The parts of a range that none of the others covers.
template <typename Range>
std::vector<Range> without(Range range, std::vector<Range> others) {
  std::sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  std::vector<Range> rest;
  for (const auto& other : others) {
    if (other.end <= range.start) continue;
    if (other.start >= range.end) break;
    if (other.start > range.start) rest.push_back({range.start, other.start});
    range.start = other.end;
    if (range.start >= range.end) return rest;
  }
  if (range.start < range.end) rest.push_back(range);
  return rest;
}

// Whether the range has something in common with any of these.
template <typename Range, typename Other>
bool meets_any(const Range& range, const std::vector<Other>& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const Other& other) { return other.start < range.end && range.start < other.end; });
}

}  // namespace redrive
