// An execution as far as logging policies and replay times depend on it: who computed for how long, sent and received.
// What evaluate works on, made from a trace or by a generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "logstore/event.h"
#include "logstore/trace.h"

namespace redrive {

struct Execution {
  enum class What : uint8_t {
    program,     // a unit's beginning, or an exec: a checkpoint that costs nothing
    birth,       // the beginning of a forked unit: a program, and a receive of its parent's fork
    checkpoint,  // as recorded
    send,        // or a fork
    receive,
    end,
  };
  struct Step {
    What what = What::send;
    bool message = false;       // receive: from another unit
    bool logged = false;        // receive, birth: as recorded
    uint32_t unit = 0;          // from 0
    uint32_t first_sender = 0;  // receive, birth: `sender_count` indexes of sends from here on in `senders`
    uint32_t sender_count = 0;
    uint64_t at_ns = 0;    // CPU time of the unit since its beginning; ascends
    uint64_t bytes = 0;    // send, receive
    double restore_s = 0;  // program, birth, checkpoint: to restore memory from it
  };
  std::vector<Step> steps;  // in an order in which they may have happened: a send before its receive
  std::vector<uint32_t> senders;
  std::vector<EventRef> events;  // by step: of the trace, those of `program`, `birth` and `checkpoint` the next one
  uint32_t units = 0;
};

// Reads all events of a trace. What a receive had from a send that the trace does not hold makes it no step. Times of
// forks that an older trace does not say are estimated from the events around them.
Result<Execution> read_execution(const Trace& trace);

// Executions of well-known patterns of communication, each from its seed.
struct SyntheticOptions {
  std::string pattern;  // one of synthetic_patterns()
  uint32_t units = 16;
  uint64_t messages = 100'000;
  uint64_t seed = 1;
};
const std::vector<std::string>& synthetic_patterns();
Execution make_execution(const SyntheticOptions& options);

}  // namespace redrive
