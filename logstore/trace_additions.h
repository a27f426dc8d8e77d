// Adds to a trace after its recording (`redrive prepare`): images of virtual checkpoints, payloads of messages that
// were not logged, other settings. Nothing that the trace holds is changed, and each addition is complete as soon as
// the journal has it. So if the adding process is killed, it leaves an intact trace, to which more can be added.
#pragma once

#include <memory>

#include "logstore/trace.h"

namespace redrive {

class TraceAdditions {
 public:
  // Fails if the trace is not finished, or another process is adding to it. `trace` does not show what is added; it
  // must be opened again for that.
  static Result<std::unique_ptr<TraceAdditions>> begin(const Trace& trace);
  ~TraceAdditions();

  // Thread-safe; the first error of the storage is returned by all later calls.
  //
  // The image is part of the trace when this returns.
  Result<void> add_image(UnitId unit, IntervalIndex interval, const ReadImage& read);
  // All the bytes that a receive returned. They are part of the trace after the next add_image() or publish().
  Result<void> add_payload(EventRef receiver, std::span<const uint8_t> payload);
  Result<void> publish();
  // Replaces the trace's settings.
  Result<void> finish(const Settings& settings);

 private:
  struct State;
  explicit TraceAdditions(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace redrive
