// Options that several commands share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "logstore/policy/policy.h"
#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"
#include "supervisor/plan/tuning.h"

namespace redrive {

void add_jobs(Arguments& arguments, const char* help, int& jobs);
void add_tuning(Arguments& arguments, TuningRule& rule);
void add_interception(Arguments& arguments, bool& in_process);
void add_until(Arguments& arguments, std::optional<uint64_t>& until);
void add_break(Arguments& arguments, const char* help, std::vector<PlaceSpec>& breaks);
// The words of a command that is told where units are to stand: [TRACE] and UNIT:I or UNIT@EVENT, or with --break only
// [TRACE]. An Error says what is wrong, for Command::usage().
Result<void> parse_standing(const std::vector<std::string>& words, std::string& trace,
                            std::optional<UnitSpec>& interval, std::optional<PlaceSpec>& place,
                            const std::vector<PlaceSpec>& breaks);

// `standard`: the policy if none is given.
void add_policy(Arguments& arguments, const std::string& standard, std::string& policy, PolicyParameters& parameters);
// Whether the policy has all parameters that were given; giving it another parameter is probably a mistake. An Error
// says what is wrong, for Command::usage(). `name`: empty if no policy was given.
Result<void> check_policy(const Arguments& arguments, const std::string& name);
// The first option that was given for a parameter of policies that is not among these (PolicyInfo::parameters).
std::optional<std::string> unknown_parameter(const Arguments& arguments, unsigned known);

}  // namespace redrive
