#include "supervisor/cli/time_of_day.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <ctime>

#include "base/text.h"
#include "base/units.h"
#include "supervisor/plan/graph.h"

namespace redrive {
namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;
constexpr int64_t kMinute_ns = 60 * kSecond_ns;
constexpr int64_t kMost_s = INT64_MAX / kSecond_ns - 24 * 60 * 60;  // so that any moment ends in what can be counted

std::tm fields_of(int64_t unix_ns, bool utc) {
  const std::time_t seconds = unix_ns / kSecond_ns - (unix_ns % kSecond_ns < 0 ? 1 : 0);
  std::tm fields{};
  utc ? gmtime_r(&seconds, &fields) : localtime_r(&seconds, &fields);
  return fields;
}

int64_t microseconds_of(int64_t unix_ns) {
  const int64_t rest_ns = (unix_ns % kSecond_ns + kSecond_ns) % kSecond_ns;
  return rest_ns / 1000;
}

Moment moment_of(int64_t first_ns, int64_t length_ns) { return {first_ns, first_ns + length_ns - 1}; }

// Reads digits after a point, as what they are of a second; nothing if there is something else.
std::optional<Moment> parse_fraction(std::string_view text) {
  if (text.empty()) return moment_of(0, kSecond_ns);
  if (text[0] != '.' || text.size() < 2 || text.size() > 10) return std::nullopt;
  int64_t value = 0, unit_ns = kSecond_ns;
  for (const char digit : text.substr(1)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    value = value * 10 + (digit - '0');
    unit_ns /= 10;
  }
  return moment_of(value * unit_ns, unit_ns);
}

Moment later(const Moment& moment, int64_t seconds) {
  return {moment.first_ns + seconds * kSecond_ns, moment.last_ns + seconds * kSecond_ns};
}

// Seconds since the epoch, with a fraction.
std::optional<Moment> parse_unix(std::string_view text) {
  int64_t seconds = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const auto fraction = parse_fraction(text.substr(static_cast<size_t>(rest - text.data())));
  if (failure != std::errc{} || seconds < 0 || seconds > kMost_s || !fraction) return std::nullopt;
  return later(*fraction, seconds);
}

std::optional<int64_t> parse_span(std::string text) {
  if (text.ends_with("min")) text.resize(text.size() - 2);
  const auto seconds = parse_duration(text);
  if (!seconds || seconds.value() > 1e9) return std::nullopt;
  return std::llround(seconds.value() * 1e9);
}

// "Z", "+01:00" or nothing: how far the clock is from UTC. False if it is something else.
bool parse_zone(std::string_view text, std::optional<int64_t>& zone_s) {
  if (text.empty()) return true;
  if (text == "Z") {
    zone_s = 0;
    return true;
  }
  constexpr size_t kLongest = std::string_view("+01:00").size();
  const size_t colon = text.find(':');
  if ((text[0] != '+' && text[0] != '-') || colon == std::string_view::npos || text.size() > kLongest) return false;
  const auto hours = parse_number(text.substr(1, colon - 1)), minutes = parse_number(text.substr(colon + 1));
  if (!hours || !minutes || *hours > 99 || *minutes > 99) return false;
  zone_s = (text[0] == '-' ? -1 : 1) * static_cast<int64_t>(*hours * 3600 + *minutes * 60);
  return true;
}

int64_t unix_s(std::tm fields, bool utc, const std::optional<int64_t>& zone_s) {
  fields.tm_isdst = -1;
  const int64_t seconds = zone_s ? timegm(&fields) - *zone_s : utc ? timegm(&fields) : std::mktime(&fields);
  return std::clamp(seconds, -kMost_s, kMost_s);
}

// A day with or without a time, or a time.
std::optional<Moment> parse_clock(const std::string& text, bool utc, int64_t end_ns) {
  std::tm midnight = fields_of(end_ns, utc);
  midnight.tm_hour = midnight.tm_min = midnight.tm_sec = 0;
  std::tm fields = midnight;
  const char* rest = strptime(text.c_str(), "%Y-%m-%d", &fields);
  const bool day = rest != nullptr;
  if (day && !is_in_calendar(fields)) return std::nullopt;
  if (!day) fields = midnight;
  std::optional<int64_t> zone_s;
  if (day && *rest == '\0') {
    std::tm next = fields;
    ++next.tm_mday;
    return Moment{unix_s(fields, utc, zone_s) * kSecond_ns, unix_s(next, utc, zone_s) * kSecond_ns - 1};
  }
  if (day && *rest != ' ' && *rest != 'T') return std::nullopt;
  const char* const time = day ? rest + 1 : text.c_str();
  const char* end = strptime(time, "%H:%M:%S", &fields);
  std::optional<Moment> fraction;
  if (end) {
    const size_t length = std::strspn(end, ".0123456789");
    fraction = parse_fraction({end, length});
    if (!fraction) return std::nullopt;
    end += length;
  } else {
    fields.tm_sec = 0;
    end = strptime(time, "%H:%M", &fields);
    fraction = moment_of(0, kMinute_ns);
  }
  if (!end || !parse_zone(end, zone_s) || (zone_s && !day)) return std::nullopt;
  const Moment at = later(*fraction, unix_s(fields, utc, zone_s));
  if (day || at.first_ns <= end_ns) return at;
  --fields.tm_mday;
  return later(*fraction, unix_s(fields, utc, zone_s));
}

Error no_times(const Trace& trace) {
  return Error{fmt::format("{} has no time of day: an older redrive recorded it", printable(trace.directory()))};
}

// The time of the last event before `end`.
Result<std::optional<WallTime>> last_event_time(const Trace& trace, UnitId unit, EventIndex first, EventIndex end) {
  std::optional<WallTime> time;
  if (first == end) return time;
  TRY(trace.for_each_event(unit, end - 1, end, [&](EventIndex, const Event& event) {
    time = wall_clock(trace).at(event.time);
    return true;
  }));
  return time;
}

}  // namespace

Result<Moment> parse_moment(const std::string& text, bool utc, const RecordedSpan& recorded) {
  std::optional<Moment> at;
  if (text.starts_with("@")) {
    at = parse_unix(std::string_view(text).substr(1));
  } else if (text.starts_with("-") || text.starts_with("+")) {
    const auto span_ns = parse_span(text.substr(1));
    if (span_ns) at = moment_of(text[0] == '-' ? recorded.end_ns - *span_ns : recorded.start_ns + *span_ns, 1);
  } else {
    at = parse_clock(text, utc, recorded.end_ns);
  }
  if (at) return *at;
  return Error{
      fmt::format("'{}' is not a time: write 14:03:07.250, '2026-11-25 14:03:07', @UNIXTIME, -5min or +2s", text),
      Status::usage};
}

void add_moment(Arguments& arguments, const char* name, const std::string& help, std::optional<std::string>& text) {
  arguments.option(name, "T", help, [&text](const std::string& given) -> Result<void> {
    ASSIGN_OR_RETURN([[maybe_unused]] const Moment at, parse_moment(given, false, {}));
    text = given;
    return {};
  });
}

void add_utc(Arguments& arguments, bool& utc) {
  arguments.flag("--utc", utc, "show and read times in UTC, not in local time");
}

std::string clock_text(int64_t unix_ns, bool utc) {
  return fmt::format("{:%H:%M:%S}.{:06}", fields_of(unix_ns, utc), microseconds_of(unix_ns));
}

std::string day_text(int64_t unix_ns, bool utc) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:06}", fields_of(unix_ns, utc), microseconds_of(unix_ns));
}

std::string rfc3339(int64_t unix_ns) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fields_of(unix_ns, true), microseconds_of(unix_ns));
}

std::string error_text(uint64_t error_ns) {
  const uint64_t us = (error_ns + 999) / 1000;
  if (us < 1000) return fmt::format("+-{}us", us);
  const uint64_t ms_100 = (us + 9) / 10;
  if (ms_100 < 100'000) return fmt::format("+-{}.{:02}ms", ms_100 / 100, ms_100 % 100);
  const uint64_t s_10 = (ms_100 + 9'999) / 10'000;
  return fmt::format("+-{}.{}s", s_10 / 10, s_10 % 10);
}

bool IntervalTimes::ran_at(const Moment& moment) const {
  const auto give = [](const WallTime& time) { return static_cast<int64_t>(time.error_ns); };
  return began && began->unix_ns - give(*began) <= moment.last_ns &&
         (!ended || moment.first_ns <= ended->unix_ns + give(*ended));
}

Result<IntervalTimes> interval_times(const Trace& trace, UnitId unit, IntervalIndex interval) {
  const auto& all = trace.intervals(unit);
  const WallClock& clock = wall_clock(trace);
  IntervalTimes times{clock.at(all[interval].began_ns), std::nullopt};
  if (const IntervalEnd* const end = trace.interval_end(unit, interval)) {
    times.ended = clock.at(end->ended_ns);
  } else if (interval + 1 < all.size()) {
    times.ended = clock.at(all[interval + 1].began_ns);
  } else if (!trace.recording()) {
    const IntervalExtent extent = interval_extent(trace, unit, interval);
    ASSIGN_OR_RETURN(times.ended, last_event_time(trace, unit, extent.first_event, extent.end_event));
    if (!times.ended) times.ended = times.began;
  }
  return times;
}

Result<RecordedSpan> recorded_span(const Trace& trace) {
  std::optional<RecordedSpan> span;
  for (const auto& unit : trace.units()) {
    for (const auto& interval : trace.intervals(unit.unit)) {
      ASSIGN_OR_RETURN(const IntervalTimes times, interval_times(trace, unit.unit, interval.interval));
      if (!times.began) continue;
      const int64_t began_ns = times.began->unix_ns;
      const int64_t now_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
      const int64_t ended_ns = times.ended ? times.ended->unix_ns : std::max(began_ns, now_ns);
      if (!span) span = RecordedSpan{began_ns, ended_ns};
      span = RecordedSpan{std::min(span->start_ns, began_ns), std::max(span->end_ns, ended_ns)};
    }
  }
  if (!span) return no_times(trace);
  return *span;
}

Result<std::vector<Selection>> intervals_at(const Trace& trace, const std::string& moment, bool utc,
                                            const std::optional<UnitId>& unit) {
  ASSIGN_OR_RETURN(const RecordedSpan span, recorded_span(trace));
  ASSIGN_OR_RETURN(const Moment at, parse_moment(moment, utc, span));
  std::vector<Selection> found;
  for (const auto& each : trace.units()) {
    if (unit && each.unit != *unit) continue;
    for (const auto& interval : trace.intervals(each.unit)) {
      ASSIGN_OR_RETURN(const IntervalTimes times, interval_times(trace, each.unit, interval.interval));
      if (times.ran_at(at)) found.push_back({each.unit, interval.interval, interval.interval});
    }
  }
  if (!found.empty()) return found;
  return Error{fmt::format("no interval{} ran at {}: the recording was from {} to {}",
                           unit ? " of " + printable(trace.unit_name(*unit)) : "", day_text(at.first_ns, utc),
                           day_text(span.start_ns, utc), day_text(span.end_ns, utc))};
}

}  // namespace redrive
