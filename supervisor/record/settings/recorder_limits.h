// What a recording may cost, and what it may use: chosen by the user or by what the host can do. LiveControl changes T,
// the bound and the window while the recording lasts, the rest is fixed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "interceptors/trapped_instructions.h"
#include "supervisor/record/settings/checkpoint_engine.h"
#include "supervisor/record/settings/triggers.h"

namespace redrive {

struct RecorderLimits {
  uint64_t checkpoint_period_ns = 0;  // T, CPU time; 0: no image checkpoints
  double restore_budget_s = 0;        // the bound, if T follows from it: units with much memory get less than T
  double spawn_s = 0;                 // a replay takes to make an empty process ready
  // What is kept of the recording: its last part, of this length, and of this size; 0: all.
  uint64_t keep_ns = 0;
  uint64_t keep_bytes = 0;
  std::vector<Trigger> triggers;
  // Checkpoint copies alive at once; one for each unit, so that all can take theirs together, as long as what they have
  // copied is not more than this.
  size_t copies = 8;
  uint64_t copied_bytes = 512 << 20;
  CheckpointEngine checkpoint_engine;
  bool virtual_checkpoints = false;      // every T, only the place is noted, for `prepare` to make an image there
  bool independent_checkpoints = false;  // units do not take theirs together
  unsigned processors = 0;               // that the programs may run on; 0: all
  unsigned processors_seen = 0;          // that they find; 0: those that there are
  // What a replay needs for a served call in addition to what the call itself takes: reading and comparing it.
  uint64_t replayed_call_ns = 1000;
  uint64_t replayed_stop_ns = 8000;  // ... of one at which a replay stops, and for each step that it takes
  // ... for a fault at memory that was missing, which it takes away and gives back.
  uint64_t replayed_fault_ns = 100000;
  double replayed_byte_ns = 1;  // ... for each byte that it reads from the trace
  bool attached = false;        // the programs ran before, and run on afterwards
  double attached_for_s = 0;    // ... after this time at the latest; 0: there is no limit
  // From when threads of a unit wait for each other until some of their turns end amid code (StepTurns).
  std::chrono::milliseconds first_steps{100};
  ProcessorTraps traps;  // instructions that do not trap are replaced
};

}  // namespace redrive
