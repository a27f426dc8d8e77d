// The past of a cut through a recording: what the kernel held there, and what was on its way.
#pragma once

#include <map>

#include "base/result.h"
#include "logstore/trace.h"
#include "supervisor/live/in_flight.h"
#include "supervisor/live/kernel_model.h"
#include "supervisor/plan/breakpoint.h"

namespace redrive {

struct Past {
  KernelModel model;
  InFlight in_flight;
  uint64_t latest_ns = 0;  // the time of the latest event, on the recording host's CLOCK_MONOTONIC; 0: not known
};

// Where units stand: right before these events.
using Places = std::map<UnitId, EventIndex>;

// Reads all events before the places, about in the order of their times. Sends of signals are read before their
// receipts, so that no signal that has arrived is pending. Fails if the recording does not begin with a program that it
// has started, because then nothing tells what that had.
Result<Past> read_past(const Trace& trace, const Places& places, const SignalCauses& causes = {});

// Lets a breakpoint also hold what waits have seen: a process that was waited for has ended.
Result<void> add_waits(const Trace& trace, Communication& communication);
// ... and connections: one that was accepted has been made. `later`: the past of the recording's end.
Result<void> add_connections(const Trace& trace, const Past& later, Communication& communication);
// ... and packets of socket pairs, also empty ones and those that were cut. They come in the order of sending, and none
// is lost, so the nth receipt needs the nth send.
void add_packets(const Past& later, Communication& communication);
// ... and signals: one that has arrived was sent.
void add_signals(const SignalCauses& causes, Communication& communication);
// ... and what pipes can hold: a writer that is a MiB ahead had a reader that has made room, because a pipe cannot be
// made to hold more.
Result<void> add_capacities(const Trace& trace, Communication& communication);

}  // namespace redrive
