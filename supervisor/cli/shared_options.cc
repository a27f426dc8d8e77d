#include "supervisor/cli/shared_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parallel.h"
#include "base/text.h"

namespace redrive {
namespace {

constexpr uint64_t kMaxJobs = 4096;

}  // namespace

void add_jobs(Arguments& arguments, const char* help, int& jobs) {
  arguments.number("--jobs", "N", 1, kMaxJobs, help, [&jobs](uint64_t given) { jobs = static_cast<int>(given); });
}

void add_tuning(Arguments& arguments, TuningRule& rule) {
  arguments.choice(
      "--tuning", "RULE",
      "how to derive C: promise keeps the bound for every replay, paper takes 1.25 times the bound (promise)",
      {"promise", "paper"},
      [&rule](const std::string& text) { rule = text == "paper" ? TuningRule::paper : TuningRule::promise; });
}

void add_interception(Arguments& arguments, bool& in_process) {
  arguments.choice("--interception", "TIER", "how system calls are intercepted: in-process, stops (in-process)",
                   {"in-process", "stops"},
                   [&in_process](const std::string& text) { in_process = text == "in-process"; });
}

void add_until(Arguments& arguments, std::optional<uint64_t>& until) {
  arguments.option("--until", "EVENT", "stop before this event; only with a single interval",
                   [&until](const std::string& text) -> Result<void> {
                     until = parse_number(text);
                     if (!until) return Error{fmt::format("'{}' is not an event number", text)};
                     return {};
                   });
}

void add_break(Arguments& arguments, const char* help, std::vector<PlaceSpec>& breaks) {
  arguments.each("--break", "UNIT@EVENT", help, [&breaks](const std::string& text) -> Result<void> {
    ASSIGN_OR_RETURN(const PlaceSpec place, parse_place_spec(text));
    breaks.push_back(place);
    return {};
  });
}

Result<void> parse_standing(const std::vector<std::string>& words, std::string& trace,
                            std::optional<UnitSpec>& interval, std::optional<PlaceSpec>& place,
                            const std::vector<PlaceSpec>& breaks) {
  if (!breaks.empty()) {
    if (words.size() > 1) return Error{"--break takes a TRACE, not a UNIT"};
    if (!words.empty()) trace = words[0];
    return {};
  }
  if (words.empty() || words.size() > 2) return Error{"expected [TRACE] UNIT:I, UNIT@EVENT, or --break"};
  if (words.size() == 2) trace = words[0];
  if (const auto event = parse_place_spec(words.back())) {
    place = *event;
    return {};
  }
  const auto unit = parse_unit_spec(words.back());
  if (!unit || !unit->single()) {
    return Error{fmt::format("'{}' names no place: write UNIT:I or UNIT@EVENT, such as jacobi.2:4 or jacobi.2@120",
                             words.back())};
  }
  interval = *unit;
  return {};
}

void add_policy(Arguments& arguments, const std::string& standard, std::string& policy, PolicyParameters& parameters) {
  std::vector<std::string> names;
  for (const auto& known : policies()) names.emplace_back(known.name);
  const auto help = fmt::format("policy that selects the payloads to keep: {} ({})", fmt::join(names, ", "), standard);
  arguments.choice("--policy", "P", help, names, [&policy](const std::string& text) { policy = text; });
  const auto number = [&](Parameter parameter, const char* value, const char* text) {
    const PolicyNumber& known = policy_number(parameter);
    arguments.number(known.option, value, 1, kMaxPolicyNumber, fmt::format("{} ({})", text, parameters.*known.value),
                     [&parameters, &known](uint64_t given) { parameters.*known.value = static_cast<uint32_t>(given); });
  };
  number(kSetBound, "N", "replay-set: largest number of intervals in a replay set");
  number(kMultiplicity, "M", "critical-path-multiplicity: largest number of intervals of one unit");
  arguments.flag("--approximate", parameters.approximate,
                 "critical-path-multiplicity: remember only the first and last interval of a unit");
  parameters.cores = static_cast<uint32_t>(processor_count());
  number(kCores, "J", "deadline, makespan: number of intervals that a replay executes at once");
}

std::optional<std::string> unknown_parameter(const Arguments& arguments, unsigned known) {
  for (const PolicyNumber& number : policy_numbers()) {
    if (arguments.count(number.option) > 0 && !(known & number.parameter)) return number.option;
  }
  constexpr char kFlag[] = "--approximate";
  if (arguments.count(kFlag) > 0 && !(known & kApproximate)) return kFlag;
  return {};
}

Result<void> check_policy(const Arguments& arguments, const std::string& name) {
  unsigned known = 0;
  if (!name.empty()) {
    ASSIGN_OR_RETURN(const PolicyInfo* policy, find_policy(name));
    known = policy->parameters;
  }
  const auto option = unknown_parameter(arguments, known);
  if (!option) return {};
  return Error{name.empty() ? fmt::format("{} needs --policy", *option)
                            : fmt::format("{}: policy {} has no such parameter", *option, name)};
}

}  // namespace redrive
