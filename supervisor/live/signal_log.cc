#include "supervisor/live/signal_log.h"

#include <algorithm>
#include <list>
#include <tuple>

namespace redrive {
namespace {

// A call that sends ends when its recorder has seen it, and the signal may have been seen to arrive before.
constexpr uint64_t kLate_ns = 100'000'000;

using Sends = std::list<const SignalLog::Sent*>;  // the earliest first

bool surely_before(const SignalLog::Sent& sent, const SignalLog::Received& received) {
  if (sent.at.unit == received.at.unit) return sent.at.event < received.at.event;
  return sent.time.to_ns <= received.time.from_ns;
}

bool maybe_before(const SignalLog::Sent& sent, const SignalLog::Received& received) {
  return sent.at.unit != received.at.unit && sent.time.from_ns <= received.time.to_ns + kLate_ns;
}

// Takes those that the receipt depends on out of what was sent to its process or thread.
Sends take_causes(const SignalLog::Received& received, Sends& sends) {
  Sends causes;
  auto maybe = sends.end();
  for (auto each = sends.begin(); each != sends.end() && (*each)->time.from_ns <= received.time.to_ns + kLate_ns;) {
    const auto here = each++;
    if (surely_before(**here, received)) {
      causes.splice(causes.end(), sends, here);
    } else if (maybe == sends.end() && maybe_before(**here, received)) {
      maybe = here;
    }
  }
  if (causes.empty() && maybe != sends.end()) causes.splice(causes.end(), sends, maybe);
  return causes;
}

}  // namespace

SignalCauses causes_of_signals(const SignalLog& log) {
  std::vector<const SignalLog::Sent*> in_order;
  for (const auto& sent : log.sent) {
    if (sent.time.known()) in_order.push_back(&sent);
  }
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const auto* a, const auto* b) { return a->time.from_ns < b->time.from_ns; });
  std::map<std::tuple<bool, int32_t, int>, Sends> sends;
  for (const auto* sent : in_order) sends[{sent->to_thread, sent->to, sent->number}].push_back(sent);
  SignalCauses causes;
  for (const auto& received : log.received) {
    for (const bool thread : {true, false}) {
      const auto found = sends.find({thread, thread ? received.thread : received.process, received.number});
      if (found == sends.end()) continue;
      const Sends taken = take_causes(received, found->second);
      for (const auto* sent : taken) {
        if (sent->at.unit != received.at.unit) causes.emplace(received.at, sent->at);
      }
      if (!taken.empty()) break;
    }
  }
  return causes;
}

}  // namespace redrive
