#include "supervisor/live/past.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <queue>
#include <set>
#include <tuple>

#include "supervisor/live/written.h"

namespace redrive {
namespace {

// The events of a unit up to a place, one after the other.
class Cursor {
 public:
  Cursor(const Trace& trace, UnitId unit, EventIndex end) : trace_(&trace), unit_(unit), end_(end) {}

  UnitId unit() const { return unit_; }
  EventIndex index() const { return first_ + at_; }
  // Null at the end.
  Result<const Event*> current() {
    if (at_ < events_.size()) return &events_[at_];
    first_ += events_.size();
    at_ = 0;
    events_.clear();
    TRY(trace_->for_each_event(unit_, first_, std::min(end_, first_ + kAtOnce), [&](EventIndex, const Event& event) {
      events_.push_back(event);
      // One reading does not know what was guessed in the one before it.
      if (event.time.known()) events_.back().time.at_ns = latest_ns_ = std::max(latest_ns_, event.time.at_ns);
      return true;
    }));
    return events_.empty() ? nullptr : &events_[0];
  }
  void advance() { ++at_; }

 private:
  static constexpr EventIndex kAtOnce = 64;

  const Trace* trace_;
  UnitId unit_;
  EventIndex end_;
  EventIndex first_ = 0;
  size_t at_ = 0;
  uint64_t latest_ns_ = 0;
  std::vector<Event> events_;
};

// `call`: with the arguments.
bool leaves_bytes(const Event& call) {
  switch (call.number) {
    case SYS_recvfrom:
      return call.args[3] & MSG_PEEK;
    case SYS_recvmsg:
      return call.args[2] & MSG_PEEK;
    case SYS_tee:
      return true;
    default:
      return false;
  }
}

// Whether it sends or receives an urgent byte (send(2)).
bool is_urgent(const Event& call) {
  switch (call.number) {
    case SYS_sendto:
    case SYS_recvfrom:
    case SYS_sendmmsg:
      return call.args[3] & MSG_OOB;
    case SYS_sendmsg:
    case SYS_recvmsg:
      return call.args[2] & MSG_OOB;
    default:
      return false;
  }
}

class Reader {
 public:
  Reader(const Trace& trace, const Places& places, const SignalCauses& causes)
      : trace_(trace), places_(places), causes_(&causes) {}

  Result<Past> read() {
    for (const UnitRecord& unit : trace_.units()) {
      const auto& intervals = trace_.intervals(unit.unit);
      if (unit.parent.unit != 0 || intervals.empty()) continue;
      if (intervals.front().kind != CheckpointKind::exec || intervals.front().first_event != 0) {
        return Error{
            fmt::format("unit {} was not recorded from its start, so nothing tells what files it had open", unit.unit)};
      }
      past_.model.start(unit.unit, unit.pid);
      TRY(enter(unit.unit));
    }
    for (;;) {
      if (next_.empty() && delayed_.empty()) break;
      if (next_.empty()) TRY(go_on_without_causes());
      const Waiting waiting = next_.top();
      next_.pop();
      TRY(step(cursors_.at(waiting.unit)));
    }
    return std::move(past_);
  }

 private:
  struct Waiting {
    uint64_t at_ns = 0;
    UnitId unit = 0;
    bool operator<(const Waiting& other) const {  // the earliest is taken first
      return std::tie(at_ns, unit) > std::tie(other.at_ns, other.unit);
    }
  };

  Result<void> enter(UnitId unit) {
    const auto place = places_.find(unit);
    if (place == places_.end()) return {};
    const auto entered = cursors_.emplace(unit, Cursor(trace_, unit, place->second));
    return entered.second ? queue(entered.first->second) : Result<void>();
  }

  Result<void> queue(Cursor& cursor) {
    ASSIGN_OR_RETURN(const Event* const event, cursor.current());
    if (event) next_.push({event->time.at_ns, cursor.unit()});
    return {};
  }

  Result<void> step(Cursor& cursor) {
    ASSIGN_OR_RETURN(const Event* const event, cursor.current());
    const EventRef self{cursor.unit(), cursor.index()};
    if (const auto cause = missing_cause(self)) {
      delayed_.emplace(*cause, self.unit);
      return {};
    }
    past_.latest_ns = std::max(past_.latest_ns, event->time.at_ns);
    const OngoingCall* const entered = past_.model.call_of({self.unit, event->thread});
    const Event& call = event->kind == EventKind::exit && entered ? entered->event : *event;
    if (event->send) past_.in_flight.sent(self, *event->send, event->time.at_ns, is_urgent(call));
    if (event->receive && !leaves_bytes(call)) past_.in_flight.received(*event->receive, is_urgent(call));
    past_.model.apply(self.unit, self.event, *event);
    const UnitId born = event->child_unit;
    cursor.advance();
    if (born) TRY(enter(born));
    const auto [first, last] = delayed_.equal_range(self);
    for (auto each = first; each != last; ++each) TRY(queue(cursors_.at(each->second)));
    delayed_.erase(first, last);
    return queue(cursor);
  }

  // What the event depends on, and has not been read yet.
  std::optional<EventRef> missing_cause(EventRef event) const {
    if (!causes_) return std::nullopt;
    const auto [first, last] = causes_->equal_range(event);
    const auto missing = std::find_if(first, last, [&](const auto& entry) {
      const EventRef sender = entry.second;
      const auto place = places_.find(sender.unit);
      const auto cursor = cursors_.find(sender.unit);
      return place != places_.end() && sender.event < place->second &&
             (cursor == cursors_.end() || cursor->second.index() <= sender.event);
    });
    return missing == last ? std::nullopt : std::optional(missing->second);
  }

  // They contradict each other: times do not tell all.
  Result<void> go_on_without_causes() {
    causes_ = nullptr;
    for (const auto& [cause, unit] : delayed_) TRY(queue(cursors_.at(unit)));
    delayed_.clear();
    return {};
  }

  const Trace& trace_;
  const Places& places_;
  const SignalCauses* causes_;
  Past past_;
  std::map<UnitId, Cursor> cursors_;
  std::priority_queue<Waiting> next_;
  std::multimap<EventRef, UnitId> delayed_;  // units whose next event waits for this one
};

// The number of the process that a call has waited for, if that has ended. `args`: of the call that `event` ends.
int32_t waited_for(const Event& event, const std::array<uint64_t, 6>& args) {
  constexpr uint64_t kStops = WUNTRACED | WCONTINUED;
  int32_t status = 0, pid = 0, code = 0;
  if (event.number == SYS_wait4 && event.result > 0) {
    const bool known = args[1] && written(event, args[1], status);
    const bool ended = known ? WIFEXITED(status) || WIFSIGNALED(status) : !(args[2] & kStops);
    return ended ? static_cast<int32_t>(event.result) : 0;
  }
  if (event.number == SYS_waitid && event.result == 0 && written(event, args[2] + offsetof(siginfo_t, si_code), code) &&
      written(event, args[2] + offsetof(siginfo_t, si_pid), pid)) {
    return code == CLD_EXITED || code == CLD_KILLED || code == CLD_DUMPED ? pid : 0;
  }
  return 0;
}

// Where a call has returned.
Result<EventIndex> end_of(const Trace& trace, EventRef call) {
  EventIndex end = call.event;
  std::optional<ThreadSerial> thread;  // that has entered it
  TRY(trace.for_each_event(call.unit, call.event, trace.event_count(call.unit), [&](EventIndex at, const Event& event) {
    if (at == call.event) {
      if (event.kind != EventKind::entry) return false;
      thread = event.thread;
      return true;
    }
    if (event.kind != EventKind::exit || event.thread != thread) return true;
    end = at;
    return false;
  }));
  return end;
}

void sort_needs(std::vector<Communication::Need>& needs) {
  std::stable_sort(needs.begin(), needs.end(), [](const auto& a, const auto& b) { return a.event < b.event; });
}

}  // namespace

Result<void> add_capacities(const Trace& trace, Communication& communication) {
  constexpr uint64_t kMostHeld = 15 << 16;  // what a pipe can be made to hold (pipe(7)) is 1 MiB
  struct Part {
    EventRef receiver;
    MessagePart part;
  };
  std::map<uint64_t, std::map<std::pair<uint64_t, size_t>, Part>> parts;  // by channel; arrival, place
  std::map<EventRef, uint64_t> lengths;
  std::set<uint64_t> pipes;
  for (const ChannelRecord& channel : trace.channels()) {
    if (channel.kind == "pipe") pipes.insert(channel.channel);
  }
  if (pipes.empty()) return {};
  for (const UnitRecord& unit : trace.units()) {
    TRY(trace.for_each_event(unit.unit, 0, trace.event_count(unit.unit), [&](EventIndex at, const Event& event) {
      if (event.send && pipes.contains(event.send->channel)) lengths[{unit.unit, at}] = event.send->length;
      if (!event.receive || !pipes.contains(event.receive->channel)) return true;
      size_t place = 0;
      for (const MessagePart& part : event.receive->parts) {
        parts[event.receive->channel][{event.receive->arrival, place++}] = {{unit.unit, at}, part};
      }
      return true;
    }));
  }
  for (const auto& [channel, all] : parts) {
    std::map<EventRef, uint64_t> begins;
    std::vector<std::pair<uint64_t, EventRef>> receipts;  // until which byte
    uint64_t carried = 0;
    for (const auto& [arrival, one] : all) {
      begins.emplace(one.part.sender, carried - std::min(carried, one.part.offset));
      carried += one.part.length;
      receipts.emplace_back(carried, one.receiver);
    }
    for (const auto& [send, begin] : begins) {
      const auto length = lengths.find(send);
      const uint64_t end = begin + (length == lengths.end() ? 0 : length->second);
      if (end <= kMostHeld) continue;
      const auto made_room =
          std::lower_bound(receipts.begin(), receipts.end(), end - kMostHeld,
                           [](const auto& receipt, uint64_t wanted) { return receipt.first < wanted; });
      if (made_room == receipts.end() || made_room->second.unit == send.unit) continue;
      auto& needs = communication.units.at(send.unit).needs;
      needs.push_back({send.event, made_room->second, false});
    }
  }
  for (auto& [id, unit] : communication.units) {
    sort_needs(unit.needs);
  }
  return {};
}

Result<Past> read_past(const Trace& trace, const Places& places, const SignalCauses& causes) {
  return Reader(trace, places, causes).read();
}

void add_signals(const SignalCauses& causes, Communication& communication) {
  for (const auto& [received, sent] : causes) {
    communication.units.at(received.unit).needs.push_back({received.event, sent, false});
  }
  for (auto& [id, unit] : communication.units) sort_needs(unit.needs);
}

Result<void> add_waits(const Trace& trace, Communication& communication) {
  for (const UnitRecord& waiter : trace.units()) {
    auto& needs = communication.units.at(waiter.unit).needs;
    std::map<ThreadSerial, std::array<uint64_t, 6>> entered;
    TRY(trace.for_each_event(waiter.unit, 0, trace.event_count(waiter.unit), [&](EventIndex at, const Event& event) {
      if (event.kind == EventKind::entry) entered[event.thread] = event.args;
      const bool ends = event.kind == EventKind::syscall || event.kind == EventKind::exit;
      const int32_t pid =
          ends ? waited_for(event, event.kind == EventKind::exit ? entered[event.thread] : event.args) : 0;
      if (pid == 0) return true;
      for (const UnitRecord& unit : trace.units()) {
        const EventIndex events = trace.event_count(unit.unit);
        if (unit.pid == pid && unit.unit != waiter.unit && events > 0) {
          needs.push_back({at, {unit.unit, events - 1}, false});
        }
      }
      return true;
    }));
    sort_needs(needs);
  }
  return {};
}

void add_packets(const Past& later, Communication& communication) {
  const auto& objects = later.model.objects();
  for (const OpenObject& receiver : objects) {
    if (!receiver.peer) continue;
    std::vector<SentPacket> sent = objects[*receiver.peer].packets;
    std::stable_sort(sent.begin(), sent.end(), [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
    for (size_t i = 0; i < std::min(sent.size(), receiver.packet_receipts.size()); ++i) {
      const EventRef receipt = receiver.packet_receipts[i], send = sent[i].send;
      if (receipt.unit == send.unit) continue;
      communication.units.at(receipt.unit).needs.push_back({receipt.event, send, false});
    }
  }
  for (auto& [id, unit] : communication.units) sort_needs(unit.needs);
}

Result<void> add_connections(const Trace& trace, const Past& later, Communication& communication) {
  std::vector<const OpenObject*> connecting;
  for (const OpenObject& object : later.model.objects()) {
    if (object.connects && socket_type(later.model, object) != SOCK_DGRAM) connecting.push_back(&object);
  }
  for (const OpenObject& accepted : later.model.objects()) {
    if (!accepted.accepted_from) continue;
    const auto other = std::find_if(connecting.begin(), connecting.end(),
                                    [&](const OpenObject* each) { return belong_together(accepted, *each); });
    if (other == connecting.end()) continue;
    const EventRef connects = (*other)->connects->event, accepts = accepted.made.event;
    if (connects.unit == accepts.unit) continue;
    ASSIGN_OR_RETURN(const EventIndex connected, end_of(trace, connects));
    ASSIGN_OR_RETURN(const EventIndex returned, end_of(trace, accepts));
    communication.units.at(accepts.unit).needs.push_back({returned, {connects.unit, connected}, false});
  }
  for (auto& [id, unit] : communication.units) sort_needs(unit.needs);
  return {};
}

}  // namespace redrive
