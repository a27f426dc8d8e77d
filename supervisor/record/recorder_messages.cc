// Messages between units: captured at the sender's entry, matched at the receiver's exit, kept if the policy says so.
#include <sys/socket.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "interceptors/payload.h"
#include "supervisor/record/recorder.h"

namespace redrive {
namespace {
constexpr uint64_t kMaxPayload = uint64_t{16}
                                 << 20;  // larger sends are not held for matching: their receivers' copies are logged

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

}  // namespace

// What is behind the descriptor in an argument, valid until the next call; null if that cannot be told.
const Endpoint* Recorder::endpoint(Thread& thread, int fd_arg) {
  if (fd_arg < 0) return nullptr;  // a SysV queue
  const int fd = static_cast<int>(thread.args[static_cast<size_t>(fd_arg)]);
  const Process& process = *thread.process;
  Endpoints& known = process.fds->known;
  if (const Endpoint* endpoint = known.find(fd)) return endpoint;
  // It is what it was when the call was made: descriptors that are not known here are not closed without a stop.
  unsettled_ = channels_.resolve(process.pidfd.get(), fd);
  if (!unsettled_ || !unsettled_->settled()) return unsettled_ ? &*unsettled_ : nullptr;
  if (process.gate) process.gate->set_known(*process.fds, fd, true);
  return &known.set(fd, *unsettled_);
}

// What the call closes. `served`: the code inside the tracee has seen to its own knowledge of that.
void Recorder::forget_descriptors(Thread& thread, bool served) {
  if (thread.row->fd_effect == FdEffect::none) return;
  const Process& process = *thread.process;
  const auto& args = thread.args;
  const bool range = thread.row->fd_effect == FdEffect::closes_range;
  const auto first = static_cast<uint32_t>(args[thread.row->fd_effect == FdEffect::replaces ? 1 : 0]);
  const auto last = range ? static_cast<uint32_t>(args[1]) : first;
  if (!served && process.gate) process.gate->forget_fresh(first, last);
  process.fds->known.forget(first, last, [&](int fd) {
    if (!served && process.gate) process.gate->set_known(*process.fds, fd, false);
  });
}

// What is known of the descriptor that a served call has made; `memory`: the pieces of its record.
void Recorder::note_descriptor(Thread& thread, const gate::Record& record, const Memory& memory) {
  if (thread.row->new_descriptor == NewDescriptor::none) return;
  const auto fd = static_cast<int>(record.result);
  auto& known = thread.process->fds->known;
  if (gate::Described described; memory.get(gate::kDescribed, described)) {
    if (thread.row->new_descriptor == NewDescriptor::pipe) {
      int ends[2];
      if (!memory.get(thread.args[0], ends)) return;
      const Endpoint pipe = channels_.resolve_pipe(described.device, described.inode);
      for (const int end : ends) known.set(end, pipe);
      return;
    }
    Channels::Connection connection{described.inode, described.network, {}, {}};
    std::memcpy(&connection.local, described.local, sizeof described.local);
    std::memcpy(&connection.peer, described.peer, sizeof described.peer);
    const bool made = thread.row->new_descriptor == NewDescriptor::accepted;
    known.set(made ? fd : static_cast<int>(thread.args[0]), channels_.resolve(connection));
    return;
  }
  if (record.result < 0) return;
  if (record.no_channel) known.set(fd, {});
  if (thread.row->new_descriptor != NewDescriptor::copy) return;
  if (const Endpoint* copied = known.find(static_cast<int>(thread.args[0]))) known.set(fd, *copied);
}

void Recorder::begin_send(Thread& thread, const std::vector<Span>& inputs, const Memory& memory, Event& event) {
  const Endpoint* to = endpoint(thread, thread.row->fd_arg);
  if (!to || to->kind == Endpoint::Kind::none) return;
  uint64_t length = 0;
  for (const auto& span : inputs) length += span.payload ? span.length : 0;
  thread.send_endpoint = *to;
  thread.send_unheld = length > kMaxPayload;
  if (thread.send_unheld) return;
  Bytes payload = read_payload(inputs, memory);
  thread.datagrams.clear();
  if (to->kind == Endpoint::Kind::datagram) {
    thread.datagrams = send_lengths(*thread.row, thread.args, memory, payload.size());
  }
  Unit& unit = *thread.process->unit;
  const uint64_t at_ns = unit.clock.event_ns();
  thread.send = std::make_shared<SendInfo>(
      SendInfo{{unit.id, unit.log.next() - 1}, policy_.on_send(unit.id, at_ns, payload.size()), at_ns});
  event.send = Send{to->out, payload.size(), at_ns};
  channels_.begin_send(*to, thread.send, std::move(payload), thread.datagrams);
}

void Recorder::end_send(Thread& thread, int64_t result) {
  if (std::exchange(thread.send_unheld, false) && result > 0) {
    channels_.transfer(thread.send_endpoint, static_cast<uint64_t>(result));
  }
  if (!thread.send) return;
  int64_t sent = result;
  if (thread.send_endpoint.kind == Endpoint::Kind::datagram && thread.datagrams.size() == 1) sent = result >= 0;
  channels_.end_send(thread.send_endpoint, thread.send, sent);
  thread.send.reset();
}

// Turns the payload among the event's writes (marked as a message by the caller) into a message, if it is one.
void Recorder::receive(Thread& thread, int64_t result, const Memory& memory, Event& event) {
  const SyscallRow& row = *thread.row;
  Unit& unit = *thread.process->unit;
  const auto keep_as_input = [&] {
    for (auto& write : event.writes) write.kind = MemoryWrite::Kind::data;
  };
  if (row.traffic == Traffic::transfer && result > 0) {
    if (const Endpoint* to = endpoint(thread, row.fd_arg)) {
      channels_.transfer(*to, static_cast<uint64_t>(result));
    }
    if (const Endpoint* from = endpoint(thread, row.source_fd_arg))
      channels_.drain(*from, static_cast<uint64_t>(result));
  }
  if (row.traffic != Traffic::receive || result <= 0) return keep_as_input();
  const Endpoint* from = endpoint(thread, row.fd_arg);
  if (!from || from->kind == Endpoint::Kind::none) return keep_as_input();
  const std::span<const uint8_t> content = payload_of(event, scratch_);
  const bool peek = row.flags_arg >= 0 && (thread.args[static_cast<size_t>(row.flags_arg)] & MSG_PEEK);
  auto& parts = parts_;
  parts.clear();
  uint64_t offset = 0;
  const auto take = [&](uint64_t wanted) {
    const uint64_t length = std::min<uint64_t>(wanted, content.size() - offset);
    const bool matched = length == 0 || channels_.receive(*from, content.subspan(offset, length), peek, parts);
    offset += length;
    return matched;
  };
  if (from->kind == Endpoint::Kind::datagram) {
    const auto lengths = datagram_lengths(row, thread.args, result, memory);
    if (!std::all_of(lengths.begin(), lengths.end(), take)) return keep_as_input();
  } else if (!take(content.size())) {
    return keep_as_input();
  }
  if (parts.empty() || offset != content.size()) return keep_as_input();
  Receive message;
  message.channel = from->kind == Endpoint::Kind::datagram ? 0 : from->in;
  message.arrival = ++arrivals_;
  message.at_ns = unit.clock.event_ns();
  message.parts.reserve(parts.size());
  Tag tag = parts.front().send->tag;
  offset = 0;
  for (const auto& part : parts) {
    tag = join(tag, part.send->tag);
    message.parts.push_back({part.send->event, part.offset, part.length,
                             XXH3_64bits(content.data() + offset, part.length), part.send->at_ns});
    offset += part.length;
  }
  const auto decision = policy_.on_receive(unit.id, message.at_ns, tag, offset);
  message.logged = decision.keep == Keep::keep;
  // The receive has happened: what it brought is kept, so the checkpoint may follow it.
  if (decision.force_checkpoint_first) {
    unit.checkpoint_wanted = true;
    policy_.on_kept(unit.id, tag);
  }
  if (decision.keep == Keep::later) {
    HeldPayload held{{unit.id, unit.log.closing_index()}, message.channel, {content.begin(), content.end()}};
    for (auto& kept : held_.add(decision.ticket, std::move(held))) keep_payload(std::move(kept));
  }
  for (auto& write : event.writes) {
    if (!write.from_message()) continue;
    if (message.logged) {
      write.kind = MemoryWrite::Kind::data;
    } else {
      write.data.clear();
    }
  }
  unit.received = true;
  event.receive = std::move(message);
}

void Recorder::keep_payload(HeldPayload held) {
  writer_.add_payload(held.receiver, held.channel, std::move(held.bytes));
}

void Recorder::settle() {
  for (const auto& settled : policy_.on_settle()) {
    if (auto held = held_.settle(settled)) keep_payload(std::move(*held));
  }
}

// Nobody runs in it any more, and all that it received is known.
void Recorder::end_unit(const Unit& unit) {
  if (unit.next_interval == 0) return;
  policy_.on_end(unit.id, unit.ended_ns);
  settle();
}

}  // namespace redrive
