#include "base/units.h"

#include <fmt/format.h>
#include <time.h>

#include <array>
#include <charconv>
#include <cmath>

namespace redrive {

namespace {

struct DurationUnit {
  std::string_view name;
  double seconds;
};
constexpr std::array<DurationUnit, 5> kDurationUnits{{{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};

// Three significant digits of a number in [0, 1024).
std::string three_digits(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, value >= 10 ? 1 : 2);
}

}  // namespace

Result<double> parse_duration(std::string_view text) {
  double number = 0;
  const auto [rest, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view unit(rest, text.size() - static_cast<size_t>(rest - text.data()));
  if (failure == std::errc{} && std::isfinite(number) && number >= 0) {
    for (const auto& known : kDurationUnits) {
      if (unit != known.name) continue;
      const double seconds = number * known.seconds;
      if (seconds <= kLongestDuration_s) return seconds;
      return Error{fmt::format("'{}' is too long: at most {:.0f}h", text, std::floor(kLongestDuration_s / 3600)),
                   Status::usage};
    }
  }
  return Error{fmt::format("'{}' is not a duration: write 500ms, 2s or 10m", text), Status::usage};
}

Result<uint64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [rest, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view unit(rest, text.size() - static_cast<size_t>(rest - text.data()));
  constexpr std::string_view kPrefixes = "KMGT";
  const size_t power = unit.empty() ? 0 : kPrefixes.find(unit) + 1;
  const double bytes = std::ldexp(number, static_cast<int>(10 * power));
  const bool known = unit.empty() || (unit.size() == 1 && power > 0);
  if (failure == std::errc{} && known && bytes >= 0 && bytes < 0x1p63) return static_cast<uint64_t>(bytes);
  return Error{fmt::format("'{}' is not a size: write 500M or 2G", text), Status::usage};
}

std::string format_duration(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 119.5) return three_digits(seconds) + " s";
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string format_size(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array kPrefixes{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t prefix = 0;
  while (value >= 1023.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1024;
    ++prefix;
  }
  return three_digits(value) + " " + kPrefixes[prefix];
}

bool is_in_calendar(const std::tm& day) {
  std::tm noon{};
  noon.tm_year = day.tm_year, noon.tm_mon = day.tm_mon, noon.tm_mday = day.tm_mday, noon.tm_hour = 12;
  return timegm(&noon) != -1 && noon.tm_mday == day.tm_mday;
}

// A field that a format leaves out is taken from midnight of the current day.
Result<std::chrono::system_clock::time_point> parse_time(const std::string& text,
                                                         std::chrono::system_clock::time_point now) {
  using std::chrono::system_clock;
  if (const auto ago_s = parse_duration(text)) {
    return now - std::chrono::duration_cast<system_clock::duration>(std::chrono::duration<double>(ago_s.value()));
  }
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm midnight{};
  localtime_r(&seconds, &midnight);
  midnight.tm_hour = midnight.tm_min = midnight.tm_sec = 0;
  midnight.tm_isdst = -1;
  const auto wrong = [&] {
    return Error{"'" + text + "' is not a time: write 2h (ago), today, yesterday, 2026-11-22 or 2026-11-22 18:30",
                 Status::usage};
  };
  // The clock has 64 bits for nanoseconds.
  const auto at = [&](std::tm local) -> Result<system_clock::time_point> {
    const std::time_t then = std::mktime(&local);
    constexpr auto kMost = std::chrono::duration_cast<std::chrono::seconds>(system_clock::duration::max()).count();
    if (then < -kMost || then > kMost) return wrong();
    return system_clock::from_time_t(then);
  };
  if (text == "today") return at(midnight);
  if (text == "yesterday") {
    --midnight.tm_mday;
    return at(midnight);
  }
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%H:%M", "%H:%M:%S"}) {
    std::tm local = midnight;
    const char* end = strptime(text.c_str(), format, &local);
    if (end && *end == '\0') return is_in_calendar(local) ? at(local) : wrong();
  }
  return wrong();
}

}  // namespace redrive
