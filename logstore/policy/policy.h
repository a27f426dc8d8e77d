// Policies: which messages' payloads a recording keeps, so that every replay stays within its limit (DESIGN.md).
//
// A policy does pure bookkeeping: no I/O, no clocks, no locks. The same object, given the same events, serves the
// recorder, off-line evaluation and the tests. Times are nanoseconds of CPU time of the unit since its checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace redrive {

// `later`: not known yet; on_settle() will tell. A caller that cannot hold the payload until then keeps it, which is
// always correct.
enum class Keep : uint8_t { keep, drop, later };

// What is needed of an interval: its execution from the checkpoint up to `cpu_ns`. Intervals are numbered by
// on_checkpoint(), from 0 for each unit.
struct Need {
  uint32_t unit = 0;
  uint32_t interval = 0;
  uint64_t cpu_ns = 0;
  bool operator==(const Need&) const = default;
};
// Sorted by unit and interval, each interval once.
using Needs = std::vector<Need>;
// For each unit, how many of its checkpoints happened before. Units past the end of the vector: none.
using VectorClock = std::vector<uint32_t>;

// What the papers piggyback on a message; the recorder keeps it beside the message's byte range. Fields that a policy
// does not use stay empty. What tags share is never changed, so a tag is copied in constant time.
struct Tag {
  uint64_t critical_path_ns = 0;
  std::shared_ptr<const Needs> needs = nullptr;
  std::shared_ptr<const VectorClock> clock = nullptr;
  uint64_t line = 0;  // how many lines of checkpoints had been drawn
};

struct PolicyParameters {
  uint64_t critical_path_ns = 0;      // C
  uint64_t checkpoint_period_ns = 0;  // T
  uint32_t set_bound = 16;            // replay-set: intervals in a replay set, at least 1
  uint32_t multiplicity = 2;          // critical-path-multiplicity: M, at least 1
  bool approximate = false;           // ... remember only the earliest and the latest interval of each unit
  uint32_t cores = 2;                 // deadline, makespan: J, at least 1
};

class Policy {
 public:
  virtual ~Policy() = default;

  struct Decision {
    Keep keep = Keep::keep;
    // The receiver must take a checkpoint before this receive. A caller that can do so does it and asks again. Any
    // other caller keeps the message, says so (on_kept), and takes a checkpoint soon.
    bool force_checkpoint_first = false;
    uint64_t ticket = 0;  // for `later`: identifies the receive in on_settle()
  };
  struct Settled {
    uint64_t ticket = 0;
    bool keep = true;
  };

  // Events come in an order in which they may have happened: a send before its receive. A new interval of the unit
  // begins; `ended_ns` is the length of the previous one.
  virtual void on_checkpoint(uint32_t unit, uint64_t ended_ns = 0) = 0;
  // A checkpoint that was due was skipped: the interval goes on until this time of it at least. What the policy then
  // expects of the interval's length is its own; one that comes late is told by its length, once it has come.
  virtual void on_skipped(uint32_t /*unit*/, uint64_t /*until_ns*/) {}
  // Called right after on_checkpoint() if checkpoints are already known, as in an evaluation: the length of the new
  // interval.
  virtual void on_length_known(uint32_t /*unit*/, uint64_t /*length_ns*/) {}
  // Called after on_checkpoint() when more is known of what the new interval starts from: how long restoring it takes,
  // and, about, how much memory it is.
  virtual void on_restore_known(uint32_t /*unit*/, uint64_t /*restore_ns*/, uint64_t /*memory_bytes*/) {}
  // Called before on_receive() if checkpoints come by a clock that all units share and that continues while they wait,
  // as in an evaluation: the time of the interval at which it ends at the latest, which is before T if the unit has
  // waited. By that clock, critical-path at C = 2T keeps only what crosses checkpoints (tests/bench/papers.md, "Figure
  // 4").
  virtual void on_end_known(uint32_t /*unit*/, uint64_t /*by_ns*/) {}
  virtual Tag on_send(uint32_t unit, uint64_t at_ns, uint64_t bytes) = 0;
  virtual Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag, uint64_t bytes) = 0;
  // The receive has happened and its payload was kept, although the receive should have come after a checkpoint.
  virtual void on_kept(uint32_t /*unit*/, const Tag& /*tag*/) {}
  // Asked before each event of the unit: whether this is a good place for a checkpoint. That is a wish about where one
  // is cheap, on which no promise depends. The recorder asks late, at times after those of events that are still in a
  // ring, so asking changes nothing that decisions depend on.
  virtual bool wants_checkpoint(uint32_t /*unit*/, uint64_t /*at_ns*/) { return false; }
  // Whether one of the next events may be a good place. The recorder then asks before every event, of all units.
  virtual bool looks_for_place() const { return false; }
  // The time in the unit's interval at which a checkpoint should come, if that is before T. It changes with events.
  virtual uint64_t checkpoint_by_ns(uint32_t /*unit*/) const { return UINT64_MAX; }
  // Whether it compares times of different units. An evaluation that has a clock for all units tells them by that one,
  // by which no message is received before it is sent.
  virtual bool compares_units() const { return false; }
  virtual void on_end(uint32_t /*unit*/, uint64_t /*at_ns*/) {}  // no event of unit follows
  // C and T change from now on. The promise holds with the new ones for intervals that begin later, or, if both are
  // longer than before, for all. False if the policy cannot change them; then nothing has changed.
  virtual bool set_limits(uint64_t /*critical_path_ns*/, uint64_t /*period_ns*/) { return true; }
  // The receives that were decided since the previous call. Once every unit has ended, all are decided.
  virtual std::vector<Settled> on_settle() { return {}; }
};

// The join of the tags of several sends, for a receive that takes bytes of all of them.
Tag join(const Tag& a, const Tag& b);

// Which of the PolicyParameters a policy uses.
enum Parameter : unsigned {
  kCriticalPath = 1,
  kCheckpointPeriod = 2,
  kSetBound = 4,
  kMultiplicity = 8,
  kApproximate = 16,
  kCores = 32,
};

struct PolicyInfo {
  const char* name;
  const char* summary;
  unsigned parameters;  // Parameters
  std::unique_ptr<Policy> (*make)(const PolicyParameters&);
};
inline constexpr const char* kDefaultPolicy = "deadline";
// The list of policies, the default first. Command line, man page and tests are derived from it.
const std::vector<PolicyInfo>& policies();
Result<const PolicyInfo*> find_policy(const std::string& name);
Result<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyParameters& parameters);

// The parameters that are numbers, and the options that set them. Each is at least 1 and at most kMaxPolicyNumber.
inline constexpr int64_t kMaxPolicyNumber = 1'000'000;
struct PolicyNumber {
  Parameter parameter;
  const char* option;
  uint32_t PolicyParameters::*value;
};
const std::vector<PolicyNumber>& policy_numbers();
const PolicyNumber& policy_number(Parameter parameter);

// A policy and its parameters except C and T, in the form of options: "replay-set --set-bound 16". Traces hold this
// text.
std::string policy_text(const PolicyInfo& policy, const PolicyParameters& parameters);
// The reverse, of a trace's text: sets the parameters in the text and leaves the others. Status::damaged if the policy
// or a parameter is not known, or a number is out of its range.
Result<const PolicyInfo*> parse_policy_text(const std::string& text, PolicyParameters& parameters);

}  // namespace redrive
