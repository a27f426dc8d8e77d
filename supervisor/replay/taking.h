// Takes from a replay what a trace does not hold: images of checkpoints that were not stored, payloads of messages that
// were not logged.
#pragma once

#include <functional>
#include <set>
#include <utility>

#include "logstore/trace.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {

using Checkpoint = std::pair<UnitId, IntervalIndex>;

// What is to be taken.
struct Missing {
  std::set<Checkpoint> images;
  std::set<EventRef> payloads;  // all that these receives returned
  bool empty() const { return images.empty() && payloads.empty(); }
};

struct Taken {
  uint64_t images = 0;
  uint64_t payloads = 0;
  uint64_t payload_bytes = 0;
};

// Executes what leads to them, and adds them to the trace, which gets these settings. `advance` is called by any thread
// whenever there is more. Fails if not all could be taken, above all if a replay diverges; what was taken before is
// added nevertheless, and the settings stay as they are.
Result<Taken> take(const SetRun& run, const Missing& missing, const Settings& settings,
                   const std::function<void(const Taken&)>& advance);

}  // namespace redrive
