#include "logstore/policy/policy.h"

#include <algorithm>

namespace redrive {

// One factory per policy, each in the file of its name.
std::unique_ptr<Policy> make_critical_path(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_all(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_none(const PolicyParameters& parameters);

const std::vector<PolicyInfo>& policies() {
  static const std::vector<PolicyInfo> kPolicies{
      {"critical-path", "keep a message if recomputing it could make a replay's critical path exceed C (Netzer et al.)",
       make_critical_path},
      {"all", "keep every message: any interval replays alone", make_all},
      {"none", "keep no message, only order and hashes: smallest trace, unbounded replay", make_none},
  };
  return kPolicies;
}

Result<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyParameters& parameters) {
  std::string known;
  for (const auto& policy : policies()) {
    if (name == policy.name) return policy.make(parameters);
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  return Error{"there is no policy '" + name + "': there are " + known, Status::usage};
}

Tag join(const Tag& a, const Tag& b) { return Tag{std::max(a.critical_path_ns, b.critical_path_ns)}; }

}  // namespace redrive
