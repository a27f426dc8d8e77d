#include "supervisor/record/messages/messages.h"

#include <sys/socket.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "interceptors/payload.h"
#include "supervisor/record/settings/triggers.h"

namespace redrive {
namespace {

// The bytes that a receive has brought, in order. `scratch`: for those that lie in several places.
std::span<const uint8_t> payload_of(const Event& event, Bytes& scratch) {
  const auto brought = [](const MemoryWrite& write) { return write.from_message(); };
  const auto first = std::find_if(event.writes.begin(), event.writes.end(), brought);
  if (first == event.writes.end()) return {};
  if (std::none_of(std::next(first), event.writes.end(), brought)) return first->data;
  scratch.clear();
  for (auto write = first; write != event.writes.end(); ++write) {
    if (write->from_message()) scratch.insert(scratch.end(), write->data.begin(), write->data.end());
  }
  return scratch;
}

Messages::Received keep_as_input(Event& event) {
  for (auto& write : event.writes) write.kind = MemoryWrite::Kind::data;
  return {};
}

// Leaves the payload in the event, or only its length.
void log_payload(Event& event, bool logged) {
  for (auto& write : event.writes) {
    if (!write.from_message()) continue;
    if (logged) {
      write.kind = MemoryWrite::Kind::data;
    } else {
      write.data.clear();
    }
  }
}

// The descriptors that the call closes, the first and the last.
std::optional<std::pair<uint32_t, uint32_t>> closed_by(const Messages::Call& call) {
  const FdEffect effect = call.row.fd_effect;
  if (effect == FdEffect::none || effect == FdEffect::ends) return std::nullopt;
  const auto first = static_cast<uint32_t>(call.args[effect == FdEffect::replaces ? 1 : 0]);
  return std::pair(first, effect == FdEffect::closes_range ? static_cast<uint32_t>(call.args[1]) : first);
}

}  // namespace

Messages::Messages(TraceWriter& writer, Policy& policy, bool independent)
    : writer_(writer), policy_(policy), independent_(independent), held_(writer.directory()) {}

// ---- Descriptors

const Endpoint* Messages::endpoint(const Call& call, int fd_arg) {
  if (fd_arg < 0) return nullptr;  // a SysV queue
  return endpoint_of(call, static_cast<int>(call.args[static_cast<size_t>(fd_arg)]));
}

const Endpoint* Messages::endpoint_of(const Call& call, int fd) {
  Endpoints& known = call.descriptors.known;
  if (const Endpoint* endpoint = known.find(fd)) return endpoint;
  // The descriptor is what it was when the call was made: descriptors that are not known here are not closed without a
  // stop, and neither are their connections ended.
  unsettled_ = channels_.resolve(call.pidfd, fd);
  if (!unsettled_) return nullptr;
  if (!unsettled_->settled() || !Endpoints::remembers(fd)) return &*unsettled_;
  if (call.gate) call.gate->set_known(call.descriptors, fd, true);
  known.set(fd, *unsettled_);
  return known.find(fd);
}

void Messages::note_connection(const Call& call, int64_t result) {
  const NewDescriptor made = call.row.new_descriptor;
  if (result < 0) return;
  if (made == NewDescriptor::accepted) endpoint_of(call, static_cast<int>(result));
  if (made == NewDescriptor::connected) endpoint(call, 0);
  if (made == NewDescriptor::pair) note_pair(call);
}

// What the recorder finds behind the descriptors is what the call has made: as long as they are not known, they are not
// closed without a stop.
void Messages::note_pair(const Call& call) {
  int ends[2];
  if (call.memory.get(call.args[3], ends)) channels_.note_pair(call.pidfd, ends[0], ends[1]);
}

void Messages::forget_closed(const Call& call) {
  const auto closed = closed_by(call);
  if (!closed) return;
  const auto [first, last] = *closed;
  if (call.gate) call.gate->forget_fresh(first, last);
  call.descriptors.known.forget(first, last, [&](int fd) {
    if (call.gate) call.gate->set_known(call.descriptors, fd, false);
  });
}

void Messages::note_served(const Call& call, const gate::Record& record) {
  if (const auto closed = closed_by(call)) call.descriptors.known.forget(closed->first, closed->second, [](int) {});
  note_made(call, record);
}

void Messages::note_made(const Call& call, const gate::Record& record) {
  const NewDescriptor made = call.row.new_descriptor;
  if (made == NewDescriptor::none) return;
  const auto fd = static_cast<int>(record.result);
  Endpoints& known = call.descriptors.known;
  if (gate::Described described; call.memory.get(gate::kDescribed, described)) {
    if (made == NewDescriptor::pipe) {
      int ends[2];
      if (!call.memory.get(call.args[0], ends)) return;
      const Endpoint pipe = channels_.resolve_pipe(described.device, described.inode);
      for (const int end : ends) known.set(end, pipe);
      return;
    }
    Channels::Connection connection{described.inode, described.network, {}, {}};
    std::memcpy(&connection.local, described.local, sizeof described.local);
    std::memcpy(&connection.peer, described.peer, sizeof described.peer);
    const int end = made == NewDescriptor::accepted ? fd : static_cast<int>(call.args[0]);
    known.set(end, channels_.resolve(connection));
    return;
  }
  if (record.result < 0) return;
  if (made == NewDescriptor::pair) return note_pair(call);
  if (record.no_channel) known.set(fd, {});
  if (made != NewDescriptor::copy) return;
  if (const Endpoint* copied = known.find(static_cast<int>(call.args[0]))) known.set(fd, *copied);
}

// ---- Events

void Messages::begin_send(const Call& call, const Place& place, const std::vector<Span>& inputs, Sending& sending,
                          Event& event) {
  const Endpoint* to = endpoint(call, call.row.fd_arg);
  if (!to || to->kind == Endpoint::Kind::none) return;
  if (triggers_ && to->kind == Endpoint::Kind::stream) triggers_->note_reply(to->out);
  uint64_t length = 0;
  for (const auto& span : inputs) length += span.payload ? span.length : 0;
  sending.to = *to;
  sending.unheld = length > kLongestPayload;
  if (sending.unheld) return;
  Bytes payload = read_payload(inputs, call.memory);
  sending.datagrams.clear();
  if (to->kind == Endpoint::Kind::datagram) {
    sending.datagrams = send_lengths(call.row, call.args, call.memory, payload.size());
  }
  const uint64_t at_ns = place.clock.event_ns();
  sending.send = std::make_shared<SendInfo>(
      SendInfo{{place.unit, place.event}, policy_.on_send(place.unit, at_ns, payload.size())});
  event.send = Send{to->out, payload.size(), at_ns};
  channels_.begin_send(*to, sending.send, std::move(payload), sending.datagrams);
}

void Messages::end_send(Sending& sending, int64_t result) {
  if (std::exchange(sending.unheld, false) && result > 0) {
    channels_.transfer(sending.to, static_cast<uint64_t>(result));
  }
  if (!sending.send) return;
  int64_t sent = result;
  if (sending.to.kind == Endpoint::Kind::datagram && sending.datagrams.size() == 1) sent = result >= 0;
  channels_.end_send(sending.to, sending.send, sent);
  sending.send.reset();
}

// Finds the sends of all that the call has received. False if it is not a message.
bool Messages::match(const Call& call, const Endpoint& from, int64_t result, std::span<const uint8_t> content) {
  const SyscallRow& row = call.row;
  const bool peek = row.flags_arg >= 0 && (call.args[static_cast<size_t>(row.flags_arg)] & MSG_PEEK);
  parts_.clear();
  uint64_t offset = 0;
  const auto take = [&](uint64_t wanted) {
    const uint64_t length = std::min<uint64_t>(wanted, content.size() - offset);
    const bool matched = length == 0 || channels_.receive(from, content.subspan(offset, length), peek, parts_);
    offset += length;
    return matched;
  };
  if (from.kind == Endpoint::Kind::datagram) {
    const auto lengths = datagram_lengths(row, call.args, result, call.memory);
    if (!std::all_of(lengths.begin(), lengths.end(), take)) return false;
  } else if (!take(content.size())) {
    return false;
  }
  return !parts_.empty() && offset == content.size();
}

bool Messages::from_another_volume(UnitId receiver) const {
  return writer_.in_volumes() && !std::all_of(parts_.begin(), parts_.end(), [&](const MatchedPart& part) {
           return writer_.in_one_volume(receiver, part.send->event);
         });
}

Messages::Received Messages::receive(const Call& call, const Place& place, int64_t result, Event& event) {
  const SyscallRow& row = call.row;
  if (row.traffic == Traffic::transfer && result > 0) {
    const auto length = static_cast<uint64_t>(result);
    if (const Endpoint* to = endpoint(call, row.fd_arg)) channels_.transfer(*to, length);
    if (const Endpoint* from = endpoint(call, row.source_fd_arg)) channels_.drain(*from, length);
  }
  if (row.traffic != Traffic::receive || result <= 0) return keep_as_input(event);
  const Endpoint* from = endpoint(call, row.fd_arg);
  if (!from || from->kind == Endpoint::Kind::none) return keep_as_input(event);
  if (triggers_ && from->kind == Endpoint::Kind::stream) triggers_->note_request(place.unit, from->out);
  const std::span<const uint8_t> content = payload_of(event, scratch_);
  if (!match(call, *from, result, content)) return keep_as_input(event);
  Receive message;
  message.channel = from->kind == Endpoint::Kind::datagram ? 0 : from->in;
  message.arrival = ++arrivals_;
  message.at_ns = place.clock.event_ns();
  message.parts.reserve(parts_.size());
  Tag tag = parts_.front().send->tag;
  uint64_t offset = 0;
  for (const auto& part : parts_) {
    tag = join(tag, part.send->tag);
    message.parts.push_back(
        {part.send->event, part.offset, part.length, XXH3_64bits(content.data() + offset, part.length)});
    offset += part.length;
    if (talks_) talks_->add(part.send->event.unit, place.unit, part.length, part.offset == 0);
  }
  const auto decision = policy_.on_receive(place.unit, message.at_ns, tag, offset);
  // The policy then counts on less than there is: its promise holds all the same.
  const bool must_keep = from_another_volume(place.unit);
  message.logged = decision.keep == Keep::keep || must_keep;
  // The receive has happened: what it brought is kept, so the checkpoint may follow it.
  if (decision.force_checkpoint_first) policy_.on_kept(place.unit, tag);
  if (decision.keep == Keep::later && !must_keep) {
    HeldPayload held{{place.unit, place.event}, {content.begin(), content.end()}};
    for (auto& kept : held_.add(decision.ticket, std::move(held))) keep(std::move(kept));
  }
  log_payload(event, message.logged);
  event.receive = std::move(message);
  return {true, decision.force_checkpoint_first};
}

// A fork is a send, the child's first event its receive; to keep that message is to store the child's memory.
bool Messages::keeps_birth(UnitId parent, uint64_t at_ns, UnitId child) {
  const Tag tag = policy_.on_send(parent, at_ns, 0);
  auto decision = policy_.on_receive(child, 0, tag, 0);
  if (decision.force_checkpoint_first) {
    policy_.on_checkpoint(child);  // nothing has happened in its interval
    decision = policy_.on_receive(child, 0, tag, 0);
  }
  return decision.keep != Keep::drop;  // later would be too late
}

// ---- Intervals

void Messages::begin_interval(UnitId unit, uint64_t ended_ns) {
  policy_.on_checkpoint(unit, ended_ns);
  settle();
}

void Messages::end_unit(UnitId unit, uint64_t ended_ns) {
  policy_.on_end(unit, ended_ns);
  if (talks_) talks_->end(unit);
  settle();
}

void Messages::settle() {
  for (const auto& settled : policy_.on_settle()) {
    if (auto held = held_.settle(settled)) keep(std::move(*held));
  }
}

void Messages::keep(HeldPayload held) { writer_.add_payload(held.receiver, std::move(held.bytes)); }

void Messages::keep_held(const std::function<bool(EventRef receiver)>& is_wanted) {
  for (const uint64_t ticket : held_.tickets_of(is_wanted)) {
    Policy::Settled settled;
    settled.ticket = ticket;
    settled.keep = true;
    if (auto held = held_.settle(settled)) keep(std::move(*held));
  }
}

void Messages::write_open_channels() {
  for (auto& channel : channels_.open()) writer_.add(ChannelRecord{channel.id, channel.kind, channel.name});
}

void Messages::write_channels() {
  for (auto& channel : channels_.take_new()) writer_.add(ChannelRecord{channel.id, channel.kind, channel.name});
}

}  // namespace redrive
