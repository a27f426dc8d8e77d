// What makes a trace keep its bound, or say that it does not, once it is recorded or prepared: its certificate, and
// what is added to the trace for replays that would be late.
#pragma once

#include <memory>
#include <optional>

#include "logstore/certificate.h"

namespace redrive {

struct BoundKeeping {
  int jobs = 1;
  bool in_process = true;
  bool repairs = true;    // adds what late replays need; otherwise the certificate says which ones are late
  bool progress = false;  // standard error is a terminal
  Pace known_pace = {};   // that was measured for the trace before it was changed
};

// Predicts the replay of every interval; none if the trace promises no bound. If some are late, or nearly, replays are
// measured; if some are late, what they lack is taken from a replay, and the trace changes. The certificate is kept in
// the trace. An error leaves the trace as it was, or with a part of what it needs.
Result<std::optional<Certificate>> keep_bound(const Trace& trace, const BoundKeeping& how);

// The same; says on standard error if the bound is not kept, or if that is not known. Returns whether it is kept.
bool keep_bound_or_say(const BoundKeeping& how, const Trace& trace);

}  // namespace redrive
