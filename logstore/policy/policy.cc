#include "logstore/policy/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "logstore/policy/needs.h"

namespace redrive {

// One factory per policy, each in the file of that name.
std::unique_ptr<Policy> make_critical_path(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_fewest_bytes(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_critical_path_multiplicity(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_deadline(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_makespan(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_replay_set(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_domino(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_mrt(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_mrt_waits(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_ros(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_ros_nt(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_all(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_none(const PolicyParameters& parameters);

const std::vector<PolicyInfo>& policies() {
  static const std::vector<PolicyInfo> kPolicies{
      {kDefaultPolicy, "keep the fewest bytes with which no replay on J cores takes longer than C, restores included",
       kCriticalPath | kCheckpointPeriod | kCores, make_deadline},
      {"fewest-bytes", "like critical-path, with checkpoints where few bytes are in flight",
       kCriticalPath | kCheckpointPeriod, make_fewest_bytes},
      {"critical-path", "keep a message if recomputing it could make a replay's critical path exceed C (Netzer et al.)",
       kCriticalPath | kCheckpointPeriod, make_critical_path},
      {"critical-path-multiplicity", "... or a replay set could have more than M intervals of a unit (Netzer et al.)",
       kCriticalPath | kCheckpointPeriod | kMultiplicity | kApproximate, make_critical_path_multiplicity},
      {"makespan", "keep a message if a replay on J cores could take longer than C",
       kCriticalPath | kCheckpointPeriod | kCores, make_makespan},
      {"replay-set", "keep a message if a replay set could exceed N intervals (Zambonelli and Netzer)", kSetBound,
       make_replay_set},
      {"domino", "keep a message if a replay could need an earlier interval of its unit (Netzer and Xu)", 0,
       make_domino},
      {"mrt",
       "keep what a replay of 2T from a recovery line at most 2T before any breakpoint needs (Thoai and Volkert)", 0,
       make_mrt},
      {"mrt-waits", "like mrt, with a clock that goes on while a unit waits, and checkpoints by it", 0, make_mrt_waits},
      {"ros", "like mrt, with a replay of 2nT for n units (rule 2 is derived)", 0, make_ros},
      {"ros-nt", "like ros, with a replay of nT", 0, make_ros_nt},
      {"all", "keep every message: any interval replays alone", 0, make_all},
      {"none", "keep no message, only order and hashes: smallest trace, unbounded replay", 0, make_none},
  };
  return kPolicies;
}

Result<const PolicyInfo*> find_policy(const std::string& name) {
  std::string known;
  for (const auto& policy : policies()) {
    if (name == policy.name) return &policy;
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  return Error{"unknown policy '" + name + "' (choose from " + known + ")", Status::usage};
}

Result<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyParameters& parameters) {
  ASSIGN_OR_RETURN(const PolicyInfo* policy, find_policy(name));
  return policy->make(parameters);
}

const std::vector<PolicyNumber>& policy_numbers() {
  static const std::vector<PolicyNumber> kNumbers{
      {kSetBound, "--set-bound", &PolicyParameters::set_bound},
      {kMultiplicity, "--multiplicity", &PolicyParameters::multiplicity},
      {kCores, "--cores", &PolicyParameters::cores},
  };
  return kNumbers;
}

const PolicyNumber& policy_number(Parameter parameter) {
  return *std::find_if(policy_numbers().begin(), policy_numbers().end(),
                       [&](const PolicyNumber& number) { return number.parameter == parameter; });
}

namespace {

constexpr char kApproximateOption[] = "--approximate";

}  // namespace

std::string policy_text(const PolicyInfo& policy, const PolicyParameters& parameters) {
  std::string text = policy.name;
  for (const auto& number : policy_numbers()) {
    if (policy.parameters & number.parameter) {
      text += fmt::format(" {} {}", number.option, parameters.*number.value);
    }
  }
  if ((policy.parameters & kApproximate) && parameters.approximate) text += fmt::format(" {}", kApproximateOption);
  return text;
}

Result<const PolicyInfo*> parse_policy_text(const std::string& text, PolicyParameters& parameters) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  const Error damaged{"the trace was recorded with a policy that is not known here, or is damaged", Status::damaged};
  const auto found = find_policy(word);
  if (!found) return damaged;
  while (words >> word) {
    const auto number = std::find_if(policy_numbers().begin(), policy_numbers().end(),
                                     [&](const PolicyNumber& known) { return word == known.option; });
    if (word == kApproximateOption) {
      parameters.approximate = true;
      continue;
    }
    int64_t value = 0;
    if (number == policy_numbers().end() || !(words >> value) || value < 1 || value > kMaxPolicyNumber) return damaged;
    parameters.*number->value = static_cast<uint32_t>(value);
  }
  return *found;
}

namespace {

// If only one of two values is present, that one; otherwise `merge` of both.
template <typename Value, typename Merge>
std::shared_ptr<const Value> join(const std::shared_ptr<const Value>& a, const std::shared_ptr<const Value>& b,
                                  Merge merge) {
  if (!a || a == b) return b;
  return b ? std::make_shared<const Value>(merge(*a, *b)) : a;
}

VectorClock later_of(const VectorClock& a, const VectorClock& b) {
  VectorClock out = a;
  out.resize(std::max(a.size(), b.size()));
  for (size_t i = 0; i < b.size(); ++i) out[i] = std::max(out[i], b[i]);
  return out;
}

}  // namespace

Tag join(const Tag& a, const Tag& b) {
  return Tag{std::max(a.critical_path_ns, b.critical_path_ns), join(a.needs, b.needs, unite),
             join(a.clock, b.clock, later_of), std::max(a.line, b.line)};
}

}  // namespace redrive
