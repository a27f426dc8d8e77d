// Logging policies: which messages' payloads a recording keeps, so that every replay stays within its limit
// (ALGORITHMS.md).
//
// Pure bookkeeping: no I/O, no clocks, no locks. The same object, fed the same events, serves the recorder, off-line
// evaluation and the tests. Times are nanoseconds of CPU time of the unit since its checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace redrive {

enum class Keep : uint8_t { keep, drop, later };

// What the papers piggyback on a message; the recorder keeps it beside the message's byte range. The fields a policy
// does not use stay empty.
struct Tag {
  uint64_t critical_path_ns = 0;
};

struct PolicyParameters {
  uint64_t critical_path_ns = 0;      // C
  uint64_t checkpoint_period_ns = 0;  // T
};

class Policy {
 public:
  virtual ~Policy() = default;

  struct Decision {
    Keep keep = Keep::keep;
    bool force_checkpoint_first = false;
  };

  virtual void on_checkpoint(uint32_t unit) = 0;  // a new interval of unit begins
  virtual Tag on_send(uint32_t unit, uint64_t at_ns) = 0;
  virtual Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag) = 0;
};

// The join of the tags of several sends, for a receive that takes bytes of all of them.
Tag join(const Tag& a, const Tag& b);

struct PolicyInfo {
  const char* name;
  const char* summary;
  std::unique_ptr<Policy> (*make)(const PolicyParameters&);
};
// The list of policies: command line, man page and tests are derived from it.
const std::vector<PolicyInfo>& policies();
Result<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyParameters& parameters);

}  // namespace redrive
