#include "supervisor/live/race.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "interceptors/syscall_table.h"

namespace redrive {
namespace {

using Received = Reception::Kind;

bool waits(int32_t number) {
  switch (number) {
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
      return true;
    default:
      return false;
  }
}

// `call`: with the arguments and the result.
std::optional<Reception> reception(const Event& call) {
  Reception out;
  out.thread = call.thread;
  const SyscallRow* const row = find_row(call.number, call.args);
  if (!row) return std::nullopt;
  out.descriptor = static_cast<int>(call.args[0]);
  if (call.receive) {
    out.kind = Received::receive;
    out.channel = call.receive->channel;
    for (const MessagePart& part : call.receive->parts) out.sends.push_back(part.sender);
    return out;
  }
  if (row->traffic == Traffic::receive && call.result == -EAGAIN) {
    out.kind = Received::test;
    return out;
  }
  if (row->new_descriptor == NewDescriptor::accepted && call.result >= 0) {
    out.kind = Received::accept;
    out.descriptor = static_cast<int>(call.result);
    return out;
  }
  return waits(call.number) && call.result > 0 ? std::optional(out) : std::nullopt;
}

Result<std::vector<Reception>> read_receptions(const Trace& trace, UnitId unit) {
  std::vector<Reception> all;
  std::map<ThreadSerial, std::pair<EventIndex, Event>> entered;
  TRY(trace.for_each_event(unit, 0, trace.event_count(unit), [&](EventIndex at, const Event& event) {
    if (event.kind == EventKind::entry) entered[event.thread] = {at, event};
    if (event.kind != EventKind::syscall && event.kind != EventKind::exit) return true;
    EventIndex begin = at;
    Event call = event;
    if (event.kind == EventKind::exit) {
      const auto entry = entered.extract(event.thread);
      if (entry.empty()) return true;
      begin = entry.mapped().first;
      call.number = entry.mapped().second.number;
      call.args = entry.mapped().second.args;
    }
    if (auto found = reception(call)) {
      found->at = at;
      found->entered = begin;
      all.push_back(std::move(*found));
    }
    return true;
  }));
  return all;
}

// The channels from which the descriptors of a unit receive.
std::set<uint64_t> channels_into(UnitId unit, const Past& past, const Past& later) {
  std::set<uint64_t> channels;
  const auto& after = later.model.objects();
  for (const auto& [name, process] : past.model.processes()) {
    if (name.first != unit) continue;
    for (const auto& [fd, descriptor] : *process.descriptors) {
      const auto same = later.model.find(past.model.objects()[descriptor.object]);
      if (!same) continue;
      const OpenObject& object = after[*same];
      channels.insert(object.in_channel);
      if (object.peer) channels.insert(after[*object.peer].out_channel);
      for (const OpenObject& other : after) {
        if (other.out_channel && belong_together(object, other)) channels.insert(other.out_channel);
      }
    }
  }
  channels.erase(0);
  return channels;
}

using Receptions = std::vector<Reception>;

bool receives_from(const Reception& reception, UnitId sender) {
  const auto& sends = reception.sends;
  return std::any_of(sends.begin(), sends.end(), [&](EventRef send) { return send.unit == sender; });
}

// Right before which event a unit did not know yet from where it would receive what it has received at `here`: there it
// could also have come to `other`. Nothing if it never was in such a place.
std::optional<EventIndex> open_place(const Receptions& receptions, Receptions::const_iterator here,
                                     Receptions::const_iterator other, EventIndex event) {
  std::optional<EventIndex> accepted;  // where it has got the descriptor of the other one
  for (auto each = receptions.begin(); other != receptions.end() && each != other; ++each) {
    if (each->kind == Received::accept && each->descriptor == other->descriptor) accepted = each->at;
  }
  for (auto each = here; each-- != receptions.begin();) {
    if (each->thread != here->thread) continue;
    if (each->kind == Received::test) return event;  // it asks without waiting
    if (each->kind == Received::wait) return each->at;
    if (each->kind == Received::accept && accepted && each->at <= *accepted) return each->at;
  }
  return std::nullopt;
}

}  // namespace

Result<Delivery> choose_delivery(const Receptions& receptions, const std::vector<Unreceived>& unreceived,
                                 const FirstWanted& wanted) {
  const UnitId unit = wanted.at.unit;
  const EventIndex event = wanted.at.event;
  const auto here = std::find_if(receptions.begin(), receptions.end(),
                                 [&](const auto& each) { return each.at == event || each.entered == event; });
  const auto first = std::find_if(receptions.begin(), receptions.end(), [&](const auto& each) {
    return each.at >= event && receives_from(each, wanted.sender);
  });
  Delivery out{wanted.at, {}};
  bool elsewhere = here != receptions.end() && here->kind == Received::receive;
  if (first != receptions.end()) {
    out.message = *std::find_if(first->sends.begin(), first->sends.end(),
                                [&](EventRef send) { return send.unit == wanted.sender; });
    const bool same_descriptor = elsewhere && here->descriptor == first->descriptor;
    elsewhere = elsewhere && (here->channel != first->channel || (here->channel == 0 && !same_descriptor));
  } else if (!unreceived.empty()) {
    out.message = unreceived.front().send;
    elsewhere = elsewhere && here->channel != unreceived.front().channel;
  } else {
    const auto last = std::find_if(receptions.rbegin(), receptions.rend(),
                                   [&](const auto& each) { return receives_from(each, wanted.sender); });
    if (last == receptions.rend()) {
      return Error{fmt::format("unit {} sends nothing to unit {}, as far as the recording tells", wanted.sender, unit)};
    }
    return Error{fmt::format("unit {} has received everything from unit {} before event {}: the last of it in event {}",
                             unit, wanted.sender, event, last->at)};
  }
  if (!elsewhere) return out;
  const auto place = open_place(receptions, here, first, event);
  if (!place) {
    return Error{
        fmt::format("unit {} can only receive from another sender in event {}: give the place of the call with which "
                    "it waits for several, such as poll(2) or accept(2)",
                    unit, event)};
  }
  out.before.event = *place;
  return out;
}

Result<Delivery> find_delivery(const Trace& trace, const Communication& communication, const Past& later,
                               const FirstWanted& wanted) {
  if (wanted.at.unit == wanted.sender) {
    return Error{fmt::format("what unit {} sends to itself does not race with others", wanted.sender)};
  }
  ASSIGN_OR_RETURN(const auto breakpoint, causal_breakpoint(communication, {wanted.at}));
  ASSIGN_OR_RETURN(const auto receptions, read_receptions(trace, wanted.at.unit));
  auto delivery = choose_delivery(receptions, {}, wanted);
  if (delivery) return delivery;
  // Maybe it was never received.
  Places places;
  for (const auto& [unit, place] : breakpoint.units) {
    if (place.event > 0) places[unit] = place.event;
  }
  ASSIGN_OR_RETURN(const Past past, read_past(trace, places));
  std::vector<Unreceived> unreceived;
  for (const uint64_t channel : channels_into(wanted.at.unit, past, later)) {
    for (const auto& piece : later.in_flight.pieces(channel)) {
      if (piece.send.unit == wanted.sender && piece.awaits_receipt()) unreceived.push_back({piece.send, channel});
    }
  }
  std::sort(unreceived.begin(), unreceived.end(), [](const auto& a, const auto& b) { return a.send < b.send; });
  return unreceived.empty() ? delivery : choose_delivery(receptions, unreceived, wanted);
}

Result<void> add_delivery(const Delivery& delivery, Communication& communication) {
  const auto [unit, event] = delivery.before;
  ASSIGN_OR_RETURN(const auto needed, causal_breakpoint(communication, {delivery.message}));
  const EventIndex done = needed.units.at(unit).event;
  if (done > event) {
    return Error{
        fmt::format("what unit {} sends to unit {} in event {} depends on event {} of unit {}: it cannot come first "
                    "in event {}",
                    delivery.message.unit, unit, delivery.message.event, done - 1, unit, event)};
  }
  auto& needs = communication.units.at(unit).needs;
  const auto place = std::upper_bound(needs.begin(), needs.end(), event,
                                      [](EventIndex wanted, const auto& need) { return wanted < need.event; });
  needs.insert(place, {event, delivery.message, false});
  return {};
}

}  // namespace redrive
