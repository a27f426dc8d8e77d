// An execution, as far as policies and replay times depend on it: which units computed for how long, sent and received.
// `evaluate` works on this; it is made from a trace or by a generator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "logstore/event.h"
#include "logstore/trace.h"

namespace redrive {

struct Execution {
  enum class What : uint8_t {
    program,     // the start of a unit, or an exec: a checkpoint that costs nothing
    birth,       // the start of a forked unit: a program, and a receive of its parent's fork
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
    uint32_t first_sender = 0;  // receive, birth: its senders are `sender_count` elements of `senders` from here on
    uint32_t sender_count = 0;
    uint64_t at_ns = 0;    // CPU time of the unit since its start; ascends
    uint64_t bytes = 0;    // send, receive
    double restore_s = 0;  // program, birth, checkpoint: the time to restore memory from it
  };
  std::vector<Step> steps;  // in an order in which they may have happened: a send before its receive
  std::vector<uint32_t> senders;
  std::span<const uint32_t> senders_of(const Step& step) const {
    return std::span(senders).subspan(step.first_sender, step.sender_count);
  }
  std::vector<EventRef> events;  // by step: its event in the trace; for `program`, `birth` and `checkpoint` the next
  uint32_t units = 0;
  double stub_s = 0;  // what an empty stub took on the recording host: a part of each restore_s
};

// Reads all events of a trace. A receive of which the trace does not hold a send is not a step. Older traces do not
// have the times of forks, which are then estimated from the events around them.
Result<Execution> read_execution(const Trace& trace);

// By step: when it would have happened if each unit had had a processor of its own, messages had taken no time, and
// nothing but messages and births had been waited for. A trace does not say when its events really happened.
std::vector<uint64_t> elapsed_ns(const Execution& execution);

// Executions with well-known patterns of communication, each generated from a seed.
struct SyntheticOptions {
  std::string pattern;  // one of synthetic_patterns()
  uint32_t units = 16;
  uint64_t messages = 100'000;
  uint64_t seed = 1;
};
const std::vector<std::string>& synthetic_patterns();
Execution make_execution(const SyntheticOptions& options);

}  // namespace redrive
