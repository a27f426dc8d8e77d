// Re-drives every interval of a trace once: what one sends again, all others that need it receive.
//
// A piece is an interval that can be started from, with those after it that cannot. Pieces are started in the order in
// which they were recorded, as many as there are processors; if some wait for messages, others are started. A process
// that comes to a piece's end continues into the next one unless that is already being executed. What is in memory at a
// time does not grow with the trace, apart from some 80 bytes for each unlogged message: restored processes, and
// contents of messages until all intervals that receive them have ended.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "supervisor/replay/replay_set.h"

namespace redrive {

struct RedrivenOnce {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  double seconds = 0;      // from its first event to its last; where a piece begins, from before its restore
  bool verified = false;   // compared with the next checkpoint, and equal
  std::string unverified;  // as in a Replayer's Outcome
  std::optional<Divergence> divergence;
  std::optional<Error> error;  // it could not be executed, or not to its end
};
struct WholeOutcome {
  std::vector<RedrivenOnce> intervals;  // all of the trace, by unit and index
  std::vector<uint64_t> arrivals;       // of receives, in their order; only with total_order
};
// `verify`: compares with every checkpoint; then each piece starts from its own. `advance`: called by any thread when
// an interval has ended. An error: nothing was executed.
Result<WholeOutcome> redrive_once(const SetRun& run, bool verify, const std::function<void()>& advance);

}  // namespace redrive
