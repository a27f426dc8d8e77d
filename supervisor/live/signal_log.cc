#include "supervisor/live/signal_log.h"

#include <algorithm>
#include <list>
#include <optional>
#include <tuple>

namespace redrive {
namespace {

// A call that sends ends when its recorder has seen it, and the signal may have been seen to arrive before.
constexpr uint64_t kLate_ns = 100'000'000;

struct SignalSend {
  const SignalLog::Sent* sent = nullptr;
  std::optional<EventRef> reaped;  // the wait that has returned the process that ended
};
using Sends = std::list<SignalSend>;  // the earliest first

bool surely_before(const SignalSend& send, const SignalLog::Received& received) {
  const SignalLog::Sent& sent = *send.sent;
  if (sent.ended) return send.reaped && send.reaped->unit == received.at.unit && send.reaped->event < received.at.event;
  if (sent.at.unit == received.at.unit) return sent.at.event < received.at.event;
  return sent.time.to_ns <= received.time.from_ns;
}

// Whether the receiver's unit has made the unit, or one from which it descends, after the receipt.
bool is_born_later(UnitId unit, const SignalLog::Received& received, const std::map<UnitId, EventRef>& births) {
  for (auto birth = births.find(unit); birth != births.end(); birth = births.find(birth->second.unit)) {
    if (birth->second.unit == received.at.unit) return birth->second.event >= received.at.event;
  }
  return false;
}

bool maybe_before(const SignalLog::Sent& sent, const SignalLog::Received& received,
                  const std::map<UnitId, EventRef>& births) {
  if (sent.at.unit == received.at.unit) return sent.at.event < received.at.event;
  return sent.time.from_ns <= received.time.to_ns + kLate_ns && !is_born_later(sent.at.unit, received, births);
}

// Takes those that the receipt depends on out of what was sent to its process or thread.
Sends take_causes(const SignalLog::Received& received, const std::map<UnitId, EventRef>& births, Sends& sends) {
  Sends causes;
  auto maybe = sends.end();
  for (auto each = sends.begin(); each != sends.end() && each->sent->time.from_ns <= received.time.to_ns + kLate_ns;) {
    const auto here = each++;
    if (surely_before(*here, received)) {
      causes.splice(causes.end(), sends, here);
    } else if (maybe == sends.end() && maybe_before(*here->sent, received, births)) {
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
  std::map<int32_t, std::list<EventRef>> waits;  // numbers are used again
  for (const auto& wait : log.waits) waits[wait.pid].push_back(wait.at);
  std::map<std::tuple<bool, int32_t, int>, Sends> sends;
  for (const auto* sent : in_order) {
    SignalSend& send = sends[{sent->to_thread, sent->to, sent->number}].emplace_back(SignalSend{sent, {}});
    const auto wait = waits.find(sent->ended);
    if (!sent->ended || wait == waits.end() || wait->second.empty()) continue;
    send.reaped = wait->second.front();
    wait->second.pop_front();
  }
  SignalCauses causes;
  for (const auto& received : log.received) {
    for (const bool thread : {true, false}) {
      const auto found = sends.find({thread, thread ? received.thread : received.process, received.number});
      if (found == sends.end()) continue;
      const Sends taken = take_causes(received, log.births, found->second);
      for (const SignalSend& send : taken) {
        if (send.sent->at.unit != received.at.unit) causes.emplace(received.at, send.sent->at);
      }
      if (!taken.empty()) break;
    }
  }
  return causes;
}

}  // namespace redrive
