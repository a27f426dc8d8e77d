#include "supervisor/record/settings/triggers.h"

#include <fmt/format.h>
#include <regex.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/units.h"
#include "supervisor/record/front/interrupts.h"
#include "supervisor/record/kernel/tracer.h"

namespace redrive {
namespace {

constexpr size_t kMostRequests = 1 << 16;
constexpr size_t kMostLines = 1 << 12;
constexpr size_t kLongestLine = 1 << 12;  // of what comes in pieces, so much counts
constexpr size_t kShownOfLine = 100;

std::string name_of_signal(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::optional<int> number_in(std::string_view text, int most) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 && number <= most ? std::optional(number) : std::nullopt;
}

// By its number, or its name with or without SIG.
std::optional<int> signal_in(std::string_view text) {
  if (const auto number = number_in(text, SIGRTMAX); number && *number > 0) return number;
  if (text.starts_with("SIG")) text.remove_prefix(3);
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    const char* const name = sigabbrev_np(signal);
    if (name && text == name) return signal;
  }
  return std::nullopt;
}

// Those that make a core by default (signal(7)).
bool is_crash(int signal) {
  constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ};
  return std::find(std::begin(kCrashes), std::end(kCrashes), signal) != std::end(kCrashes);
}

bool is_there(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

Result<LinePattern> LinePattern::parse(const std::string& text) {
  // regcomp(3) leaves nothing to be freed if it fails.
  auto compiled = std::make_unique<regex_t>();
  if (const int wrong = regcomp(compiled.get(), text.c_str(), REG_EXTENDED | REG_NEWLINE); wrong != 0) {
    char reason[200];
    regerror(wrong, compiled.get(), reason, sizeof reason);
    return Error{fmt::format("'{}' is not a regular expression: {}", text, reason), Status::usage};
  }
  LinePattern pattern;
  pattern.compiled_ = std::shared_ptr<regex_t>(compiled.release(), [](regex_t* expression) {
    regfree(expression);
    delete expression;
  });
  return pattern;
}

std::optional<std::string_view> LinePattern::find_line(std::string_view text) const {
  regmatch_t match{};
  match.rm_eo = static_cast<regoff_t>(text.size());
  if (regexec(compiled_.get(), text.data(), 1, &match, REG_STARTEND) != 0) return std::nullopt;
  const auto begin = static_cast<size_t>(match.rm_so), end = static_cast<size_t>(match.rm_eo);
  const size_t before = begin == 0 ? std::string_view::npos : text.rfind('\n', begin - 1);
  const size_t first = before == std::string_view::npos ? 0 : before + 1;
  return text.substr(first, std::min(text.find('\n', end), text.size()) - first);
}

Result<Trigger> parse_trigger(const std::string& text) {
  Trigger trigger;
  trigger.text = text;
  const auto after = [&](std::string_view begin) -> std::optional<std::string> {
    if (!text.starts_with(begin)) return std::nullopt;
    return text.substr(begin.size());
  };
  const Error wrong{
      fmt::format("'{}' is not a trigger: write exit=N, exit!=N, crash, killed, killed=SIGNAL, file=PATH, "
                  "signal=SIGNAL, reply>200ms or writes=REGEX",
                  text),
      Status::usage};
  std::optional<int> number = 0;
  if (text == "crash" || text == "killed") {
    trigger.kind = Trigger::Kind::killed;
    trigger.crash = text == "crash";
  } else if (const auto signal = after("killed=")) {
    trigger.kind = Trigger::Kind::killed;
    number = signal_in(*signal);
  } else if (const auto status = after("exit=")) {
    number = number_in(*status, 255);
  } else if (const auto status = after("exit!=")) {
    number = number_in(*status, 255);
    trigger.other = true;
  } else if (const auto signal = after("signal=")) {
    trigger.kind = Trigger::Kind::signal;
    number = signal_in(*signal);
    if (number && !is_for_program(*number)) {
      return Error{fmt::format("'{}' cannot happen: redrive takes no {}", text, name_of_signal(*number)),
                   Status::usage};
    }
  } else if (const auto path = after("file=")) {
    trigger.kind = Trigger::Kind::file;
    trigger.path = *path;
    if (path->empty()) return wrong;
  } else if (const auto duration = after("reply>")) {
    trigger.kind = Trigger::Kind::reply;
    ASSIGN_OR_RETURN(const double longest_s, parse_duration(*duration));
    trigger.longest_ns = nanoseconds(longest_s);
    if (trigger.longest_ns == 0) return wrong;
  } else if (const auto pattern = after("writes=")) {
    trigger.kind = Trigger::Kind::writes;
    if (pattern->empty()) return wrong;
    ASSIGN_OR_RETURN(trigger.pattern, LinePattern::parse(*pattern));
  } else {
    return wrong;
  }
  if (!number) return wrong;
  trigger.number = *number;
  return trigger;
}

Triggers::Triggers(std::vector<Trigger> triggers, const EventTime& now) : triggers_(std::move(triggers)), now_(now) {
  for (const auto& trigger : triggers_) {
    was_there_.push_back(trigger.kind == Trigger::Kind::file && is_there(trigger.path));
    watches_writes_ |= trigger.kind == Trigger::Kind::writes;
    if (trigger.kind != Trigger::Kind::reply) continue;
    longest_ns_ = longest_ns_ ? std::min(longest_ns_, trigger.longest_ns) : trigger.longest_ns;
  }
}

void Triggers::report(const Trigger& trigger, const std::string& detail, uint64_t at_ns) {
  if (!happened_) happened_ = {fmt::format("{}: {}", trigger.text, detail), at_ns};
}

void Triggers::note_end(UnitId unit, const std::string& program, const TraceeEnd& end) {
  const Lock lock(mutex_);
  for (const auto& trigger : triggers_) {
    const bool fits =
        trigger.kind == Trigger::Kind::exit
            ? !end.killed() && (end.exit_status == trigger.number) != trigger.other
            : trigger.kind == Trigger::Kind::killed && end.killed() &&
                  (trigger.crash ? is_crash(end.signal) : !trigger.number || trigger.number == end.signal);
    if (!fits) continue;
    const std::string how = end.killed() ? fmt::format("was ended by {}", name_of_signal(end.signal))
                                         : fmt::format("exited with status {}", end.exit_status);
    report(trigger, fmt::format("{}, in unit {}, {}", program, unit, how), now_.to_ns);
  }
}

// A request may come in several pieces: the first counts.
void Triggers::note_request(UnitId unit, uint64_t reply_channel) {
  if (longest_ns_ == 0 || reply_channel == 0) return;
  const Lock lock(mutex_);
  if (requests_.size() >= kMostRequests) requests_.erase(requests_.begin());
  requests_.try_emplace(reply_channel, Request{unit, now_, false});
}

void Triggers::note_reply(uint64_t channel) {
  if (longest_ns_ == 0) return;
  const Lock lock(mutex_);
  const auto found = requests_.find(channel);
  if (found == requests_.end()) return;
  check(found->second, now_.from_ns);
  requests_.erase(found);
}

// It took at least so long, whatever the error of the times.
void Triggers::check(Request& request, uint64_t now_ns) {
  const uint64_t least_ns = now_ns - std::min(now_ns, request.at.to_ns);
  if (request.reported || least_ns <= longest_ns_) return;
  request.reported = true;
  for (const auto& trigger : triggers_) {
    if (trigger.kind != Trigger::Kind::reply || least_ns <= trigger.longest_ns) continue;
    report(trigger, fmt::format("unit {} had not answered for {}", request.unit, format_duration(seconds(least_ns))),
           now_ns);
  }
}

void Triggers::note_written(UnitId unit, pid_t process, int descriptor, std::string_view bytes) {
  const Lock lock(mutex_);
  if (lines_.size() >= kMostLines) lines_.erase(lines_.begin());
  std::string& text = lines_[{unit, process, descriptor}];
  text.append(bytes);
  bool found = false;
  for (const auto& trigger : triggers_) {
    if (trigger.kind != Trigger::Kind::writes) continue;
    const auto line = trigger.pattern.find_line(text);
    if (!line) continue;
    report(trigger, fmt::format("unit {} wrote '{}'", unit, line->substr(0, kShownOfLine)), now_.to_ns);
    found = true;
  }
  const size_t last = text.rfind('\n');
  size_t done = found ? text.size() : last == std::string::npos ? 0 : last + 1;
  done = std::max(done, text.size() - std::min(text.size(), kLongestLine));
  text.erase(0, done);
}

std::optional<Triggers::Happened> Triggers::take() {
  if (triggers_.empty()) return std::nullopt;  // at each stop
  const Lock lock(mutex_);
  return std::exchange(happened_, std::nullopt);
}

bool Triggers::takes_signal(int signal, uint64_t now_ns) {
  const Lock lock(mutex_);
  bool takes = false;
  for (const auto& trigger : triggers_) {
    if (trigger.kind != Trigger::Kind::signal || trigger.number != signal) continue;
    report(trigger, "it was sent", now_ns);
    takes = true;
  }
  return takes;
}

void Triggers::look(uint64_t now_ns) {
  const Lock lock(mutex_);
  for (size_t i = 0; i < triggers_.size(); ++i) {
    const Trigger& trigger = triggers_[i];
    if (trigger.kind != Trigger::Kind::file) continue;
    const bool there = is_there(trigger.path);
    if (there && !was_there_[i]) report(trigger, "it is there", now_ns);
    was_there_[i] = there;
  }
  for (auto& [channel, request] : requests_) check(request, now_ns);
}

}  // namespace redrive
