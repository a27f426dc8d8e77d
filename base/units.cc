#include "base/units.h"

#include <fmt/format.h>

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
      if (unit == known.name) return number * known.seconds;
    }
  }
  return Error{fmt::format("'{}' is not a duration: write 500ms, 2s or 10m", text), Status::usage};
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

}  // namespace redrive
