// Durations and sizes as people write and read them. Inside redrive, names carry the unit.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace redrive {

// Three years: what users give may be as long as this.
inline constexpr double kLongestDuration_s = 1e8;

// "500ms", "2s", "1.5m", "1h" or "100us" in seconds. A number without a unit is refused as ambiguous.
Result<double> parse_duration(std::string_view text);

// "500M" or "2G" in bytes: K, M, G and T are powers of 1024, and a number without one of them is bytes.
Result<uint64_t> parse_size(std::string_view text);

// A point in time: a duration ago ("2h"), a day ("today", "yesterday", "2026-11-22") or a time of the local clock
// ("2026-11-22 18:30", "18:30:05").
bool is_in_calendar(const std::tm& day);  // false for February 30
Result<std::chrono::system_clock::time_point> parse_time(const std::string& text,
                                                         std::chrono::system_clock::time_point now);

constexpr double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
constexpr uint64_t nanoseconds(double seconds) { return static_cast<uint64_t>(seconds * 1e9); }

// Three significant digits: "1.23 ms", "12.3 s", "2 min 5 s".
std::string format_duration(double seconds);
// "0 B", "12.3 KiB", "1.00 GiB".
std::string format_size(uint64_t bytes);

}  // namespace redrive
