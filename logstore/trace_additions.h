// What is added to a trace after its recording (`redrive prepare`): images of checkpoints that were virtual, contents
// of messages that were not logged, other settings. Nothing that the trace holds is changed, and each addition is
// complete as soon as the journal has it: whoever is killed while adding leaves a good trace, to which more can be
// added.
#pragma once

#include <memory>

#include "logstore/trace.h"

namespace redrive {

class TraceAdditions {
 public:
  // Fails if the trace is not finished, or somebody else is adding to it. `trace` must not be used for what is added:
  // it is to be opened again.
  static Result<std::unique_ptr<TraceAdditions>> begin(const Trace& trace);
  ~TraceAdditions();

  // Thread-safe; the first error of the storage is returned by all later calls.
  //
  // Part of the trace when it returns.
  Result<void> add_image(UnitId unit, IntervalIndex interval, const ReadImage& read);
  // Part of the trace by the next add_image() or publish(): the bytes that a receive brought, all of them.
  Result<void> add_payload(EventRef receiver, std::span<const uint8_t> payload);
  Result<void> publish();
  // Replaces the trace's settings, and makes its catalog anew.
  Result<void> finish(const Settings& settings);

 private:
  struct State;
  explicit TraceAdditions(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace redrive
