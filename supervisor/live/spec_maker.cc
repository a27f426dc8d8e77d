#include "supervisor/live/spec_maker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/text.h"
#include "interceptors/syscall_table.h"
#include "supervisor/live/timers.h"
#include "supervisor/live/written.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

using Kind = OpenObject::Kind;

uint64_t bit(int signal) { return uint64_t{1} << (signal - 1); }

std::string what(const OpenObject& object) {
  if (object.kind == Kind::memfd) return "a memory object (memfd_create(2))";
  return fmt::format("what {}(2) has made in event {} of unit {}", syscall_name(object.made.number),
                     object.made.event.event, object.made.event.unit);
}

// Which argument is the address of what the call reads.
std::optional<size_t> pointer_of(const PastCall& call) {
  const SyscallRow* const row = find_row(call.number, call.args);
  for (size_t i = 0; row && i < row->args.size(); ++i) {
    if (row->args[i].kind == ArgKind::in || row->args[i].kind == ArgKind::in_out) return i;
  }
  return std::nullopt;
}

void want_repeated(const std::vector<RepeatedCall>& all, WantedInputs& inputs) {
  for (const RepeatedCall& each : all) {
    if (pointer_of(each.call)) inputs.want(each.call.event);
  }
}

std::vector<LiveCall> repeated_calls(const std::vector<RepeatedCall>& all, const WantedInputs& inputs) {
  std::vector<LiveCall> out;
  for (const RepeatedCall& each : all) {
    const WantedInputs::Read* const read = inputs.of(each.call.event);
    LiveCall call{each.call.number, each.call.args, pointer_of(each.call), {}};
    if (call.pointer && read && !read->pieces.empty()) call.memory = read->pieces[0];
    out.push_back(std::move(call));
  }
  return out;
}

bool is_connected(const OpenObject& object) { return object.connects || object.accepted_from; }

// Whether the call returns that this process has continued (SIGCONT). `args`: of the call that `event` ends.
bool tells_of_continuing(const Event& event, const std::array<uint64_t, 6>& args, int32_t pid) {
  int32_t status = 0, told = 0, code = 0;
  if (event.number == SYS_wait4) {
    return event.result == pid && args[1] && written(event, args[1], status) && WIFCONTINUED(status);
  }
  return event.number == SYS_waitid && event.result == 0 &&
         written(event, args[2] + offsetof(siginfo_t, si_code), code) && code == CLD_CONTINUED &&
         written(event, args[2] + offsetof(siginfo_t, si_pid), told) && told == pid;
}

// A process can live only where events of its unit are to come: what is after the last one is not known.
Result<void> check_place(const Trace& trace, const Places& places, UnitId unit) {
  const auto place = places.find(unit);
  if (place != places.end() && place->second < trace.event_count(unit)) return {};
  const std::string who = fmt::format("unit {} ({})", unit, printable(trace.unit_name(unit)));
  for (const UnitRecord& other : trace.units()) {
    if (std::find(other.joined.begin(), other.joined.end(), unit) == other.joined.end()) continue;
    return Error{
        fmt::format("{} cannot live again where it has become part of unit {}, with which it shares memory: "
                    "give a place before that",
                    who, other.unit)};
  }
  const EventIndex events = trace.event_count(unit);
  return Error{fmt::format("the recording does not hold what {} did {}: give an earlier place", who,
                           events == 0 ? "after its birth" : fmt::format("after its event {}", events - 1))};
}

}  // namespace

// ---- What has to be made

Result<void> SpecMaker::check() {
  for (const auto& [name, process] : past_.model.processes()) {
    if (!lives(name, process)) continue;
    TRY(check_place(trace_, places_, name.first));
    const std::string who = fmt::format("unit {} ({})", name.first, printable(trace_.unit_name(name.first)));
    if (!process.not_remade.empty()) return Error{fmt::format("{} cannot live again: {}", who, process.not_remade)};
    if (!process.ipc.empty()) {
      const PastCall& call = process.ipc.begin()->second;
      return Error{fmt::format("{} cannot live again: it has a System V semaphore or queue ({}(2) in event {})", who,
                               syscall_name(call.number), call.event.event)};
    }
    for (const PastCall& identity : process.identities) {
      const bool group = identity.number == SYS_setfsgid || identity.number == SYS_setgid ||
                         identity.number == SYS_setregid || identity.number == SYS_setresgid;
      for (const uint64_t id : identity.args) {
        const auto number = static_cast<uint32_t>(id);
        const size_t place = static_cast<size_t>(&id - identity.args.data());
        const auto* const row = find_row(identity.number, identity.args);
        if (!row || place >= row->argument_count() || number == ~0u || number == (group ? getegid() : geteuid()))
          continue;
        return Error{fmt::format("{} cannot live again: it has become another user ({}(2) in event {})", who,
                                 syscall_name(identity.number), identity.event.event)};
      }
    }
  }
  TRY(check_continued());
  find_needed();
  pair_sockets();
  for (const auto& [name, process] : past_.model.processes()) {
    if (!lives(name, process)) continue;
    for (const auto& [fd, descriptor] : *process.descriptors) {
      const OpenObject& object = past_.model.objects()[descriptor.object];
      if (object.kind == Kind::inherited) {
        const int flags = fcntl(object.number, F_GETFD);
        const bool ours = object.number > STDERR_FILENO && (flags & FD_CLOEXEC);  // which the user's are not
        if (flags >= 0 && !ours) continue;
        return Error{
            fmt::format("unit {} ({}) cannot live again: its descriptor {} is not known from its calls; if it "
                        "had it from outside, give it to redrive as well",
                        name.first, printable(trace_.unit_name(name.first)), fd)};
      }
      if (object.kind == Kind::eventfd && later_.model.same(object).users.size() > 1) {
        return Error{
            fmt::format("unit {} ({}) cannot live again: it shares the counter of its descriptor {} "
                        "(eventfd(2)) with other units, and nothing tells what they did first",
                        name.first, printable(trace_.unit_name(name.first)), fd)};
      }
      if (object.kind != Kind::other && object.kind != Kind::memfd) continue;
      return Error{fmt::format("unit {} ({}) cannot live again: its descriptor {} is {}, which cannot be made again",
                               name.first, printable(trace_.unit_name(name.first)), fd, what(object))};
    }
  }
  return {};
}

// Processes that are made have not been stopped and continued: who waits to be told of that would wait for ever.
Result<void> SpecMaker::check_continued() const {
  for (const auto& [name, process] : past_.model.processes()) {
    if (!lives(name, process) || !process.has_continued || !process.parent) continue;
    const UnitId waiter = process.parent->first;
    const auto pid = process.pid;
    const auto place = places_.find(waiter);
    if (place == places_.end()) continue;
    std::optional<EventIndex> told;
    std::map<ThreadSerial, std::array<uint64_t, 6>> entered;
    for (const auto& [thread, model] : past_.model.threads()) {
      const OngoingCall* const call = thread.first == waiter ? past_.model.call_of(thread) : nullptr;
      if (call) entered[thread.second] = call->event.args;
    }
    const auto events = trace_.event_count(waiter);
    TRY(trace_.for_each_event(waiter, place->second, events, [&](EventIndex at, const Event& event) {
      if (event.kind == EventKind::entry) entered[event.thread] = event.args;
      const auto& args = event.kind == EventKind::exit ? entered[event.thread] : event.args;
      if (tells_of_continuing(event, args, pid)) told = at;
      return !told && event.number != SYS_kill;  // which may stop it again
    }));
    if (!told) continue;
    return Error{
        fmt::format("unit {} waits for process {} to continue after a stop, which it has done there, and would wait "
                    "for ever: give an earlier place, or one after event {} of unit {}",
                    waiter, process.pid, *told, waiter)};
  }
  return {};
}

void SpecMaker::find_needed() {
  const auto& objects = past_.model.objects();
  for (const auto& [name, process] : past_.model.processes()) {
    if (!lives(name, process)) continue;
    for (const auto& [fd, descriptor] : *process.descriptors) {
      needed_[descriptor.object] = objects[descriptor.object].peer;
    }
  }
  for (const auto& [number, peer] : std::map(needed_)) {
    if (peer) needed_[*peer] = number;
  }
}

// Pipes and socket pairs of the only unit that lives, whose other end only other units have.
uint64_t SpecMaker::pipes_to_others() const {
  std::set<ObjectNumber> ours, others;
  for (const auto& [name, process] : past_.model.processes()) {
    if (process.ended) continue;
    for (const auto& [fd, descriptor] : *process.descriptors) {
      (lives(name, process) ? ours : others).insert(descriptor.object);
    }
  }
  return static_cast<uint64_t>(std::count_if(ours.begin(), ours.end(), [&](ObjectNumber number) {
    const auto& peer = past_.model.objects()[number].peer;
    return peer && !ours.contains(*peer) && others.contains(*peer);
  }));
}

// ---- Whose connections belong together

void SpecMaker::pair(ObjectNumber a, ObjectNumber b) {
  needed_[a] = b;
  needed_[b] = a;
}

// Whether a process has a descriptor of it.
bool SpecMaker::is_held(ObjectNumber number) const {
  const auto holds = [&](const auto& entry) {
    const auto& table = *entry.second.descriptors;
    return !entry.second.ended && std::any_of(table.begin(), table.end(), [&](const auto& descriptor) {
      return descriptor.second.object == number;
    });
  };
  const auto& processes = past_.model.processes();
  return std::any_of(processes.begin(), processes.end(), holds);
}

void SpecMaker::pair_sockets() {
  const auto& objects = past_.model.objects();
  const auto& after = later_.model.objects();
  std::vector<std::pair<ObjectNumber, const OpenObject*>> open;  // connected ones of now, without another end
  for (const auto& [number, peer] : needed_) {
    const bool datagrams = socket_type(past_.model, objects[number]) == SOCK_DGRAM;
    if (objects[number].kind != Kind::socket || datagrams || peer || !is_connected(objects[number])) continue;
    open.emplace_back(number, &later_.model.same(objects[number]));
  }
  for (size_t i = 0; i < open.size(); ++i) {
    if (needed_[open[i].first]) continue;
    for (size_t j = 0; j < open.size(); ++j) {
      if (i == j || needed_[open[j].first] || !belong_together(*open[i].second, *open[j].second)) continue;
      pair(open[i].first, open[j].first);
      break;
    }
    // The other end was closed; what it has sent before can still be received.
    for (ObjectNumber number = 0; number < objects.size() && !needed_[open[i].first]; ++number) {
      const OpenObject& closed = objects[number];
      const bool is_end = closed.kind == Kind::socket && !needed_.contains(number) && !is_held(number);
      if (is_end && belong_together(*open[i].second, later_.model.same(closed))) pair(open[i].first, number);
    }
    if (needed_[open[i].first] || !objects[open[i].first].connects) continue;
    // Maybe it is accepted later, by a socket that listens here.
    for (const OpenObject& acceptor : after) {
      if (!acceptor.accepted_from || past_.model.find(acceptor) || !belong_together(*open[i].second, acceptor))
        continue;
      const OpenObject& listener = after[*acceptor.accepted_from];
      for (const auto& [number, peer] : needed_) {
        if (objects[number].listens && objects[number].made.event == listener.made.event) {
          queued_[number].push_back(open[i].first);
          ahead_[open[i].first] = acceptor.in_channel;
        }
      }
    }
  }
}

namespace {

// What a read had no room for of a packet is gone (pipe(2), O_DIRECT). A write of more than PIPE_BUF bytes makes
// several.
void drop_cut(std::vector<InFlight::Piece>& pieces) {
  for (InFlight::Piece& piece : pieces) {
    if (!piece.rest) continue;
    const uint64_t cut = std::min<uint64_t>(piece.length, (PIPE_BUF - piece.offset % PIPE_BUF) % PIPE_BUF);
    piece.offset += cut;
    piece.length -= cut;
  }
  std::erase_if(pieces, [](const auto& piece) { return piece.length == 0; });
}

}  // namespace

// The ends of a connection are a queue: as many packets as were received are gone, the oldest first. Contents, by which
// the recorder finds senders, do not tell which these were, because they may be equal, cut or empty.
std::vector<InFlight::Piece> SpecMaker::packets_between(const OpenObject& sender, const OpenObject& receiver,
                                                        uint64_t channel) const {
  std::vector<InFlight::Piece> all;
  for (const SentPacket& packet : sender.packets) {
    all.push_back({packet.send, packet.offset, packet.length, packet.at_ns, channel});
  }
  for (const auto& [name, thread] : past_.model.threads()) {
    const OngoingCall* const call = past_.model.call_of(name);
    const auto send = call ? call->event.send : std::nullopt;
    const bool sends = send && send->channel == channel && send->length > 0;
    if (sends) all.push_back({call->entered, 0, send->length, call->event.time.at_ns, channel});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
  all.erase(all.begin(), all.begin() + static_cast<long>(std::min(all.size(), receiver.packet_receipts.size())));
  return all;
}

// What has been sent to an end and not received.
Result<std::vector<InFlight::Piece>> SpecMaker::arriving(ObjectNumber at) const {
  const OpenObject& object = past_.model.objects()[at];
  const auto peer = needed_.at(at);
  if (!peer) return past_.in_flight.pieces(later_.model.same(object).datagrams);
  const OpenObject& sender = past_.model.objects()[*peer];
  // A first send that has not returned is known only later.
  uint64_t channel = object.in_channel ? object.in_channel : sender.out_channel;
  if (!channel) channel = later_.model.same(sender).out_channel;
  if (object.kind == Kind::socket && socket_type(past_.model, object) != SOCK_STREAM) {
    return packets_between(sender, object, channel);
  }
  auto pieces = past_.in_flight.pieces(channel);
  int64_t sum = 0;
  for (const auto& piece : pieces) {
    if (piece.urgent != InFlight::Urgent::taken) sum += static_cast<int64_t>(piece.length);
  }
  auto left = static_cast<int64_t>(sender.written_bytes) - static_cast<int64_t>(object.read_bytes);
  // A call that has not returned may have sent already, and all of it may have been read.
  for (const auto& [name, thread] : past_.model.threads()) {
    const OngoingCall* const call = past_.model.call_of(name);
    const auto send = call ? call->event.send : std::nullopt;
    if (send && send->channel == channel) left += static_cast<int64_t>(send->length);
  }
  if (left == sum) {
    if (object.kind == Kind::pipe && sender.flags & O_DIRECT) drop_cut(pieces);
    std::erase_if(pieces, [](const auto& piece) { return piece.urgent == InFlight::Urgent::passed; });
    return pieces;
  }
  return Error{
      fmt::format("it is not known what was on its way in {}: {} bytes were written and not read, and {} of "
                  "them are known (bytes that sendfile(2) or splice(2) has moved are not)",
                  what(object), left, sum)};
}

// What has been sent into a connection that is not accepted yet.
std::vector<InFlight::Piece> SpecMaker::sent_ahead(ObjectNumber from) const {
  const auto channel = ahead_.find(from);
  return channel == ahead_.end() ? std::vector<InFlight::Piece>() : past_.in_flight.pieces(channel->second);
}

// ---- What calls have read

Result<void> SpecMaker::want_inputs(WantedInputs& inputs) {
  for (const auto& [number, peer] : needed_) {
    want_object(past_.model.objects()[number], inputs);
    ASSIGN_OR_RETURN(const auto pieces, arriving(number));
    for (const auto& piece : pieces) {
      if (piece.length > 0) inputs.want(piece.send);
    }
    for (const auto& piece : sent_ahead(number)) inputs.want(piece.send);
  }
  file_specs_.want_fifos(inputs);
  for (const auto& [name, process] : past_.model.processes()) {
    if (lives(name, process)) want_process(process, inputs);
  }
  for (const auto& [name, thread] : past_.model.threads()) {
    for (const MaskChange& change : thread.mask) {
      inputs.want(change.call);
      inputs.want(change.action);
    }
    inputs.want(thread.alternate_stack);
    inputs.want(thread.name);
    want_repeated(thread.repeated, inputs);
    for (const PendingSignal& signal : thread.pending) inputs.want(signal.queued);
    if (thread.born && thread.born->number == SYS_clone3) inputs.want(thread.born);
  }
  return {};
}

void SpecMaker::want_object(const OpenObject& object, WantedInputs& inputs) const {
  switch (object.kind) {
    case Kind::file:
      inputs.want(object.made.event);
      for (const PastCall& setting : object.settings) inputs.want(setting.event);
      return want_directory(object.base, inputs);
    case Kind::socket:
      for (const PastCall& setting : object.settings) inputs.want(setting.event);
      inputs.want(object.connects);
      return;
    case Kind::epoll:
      for (const auto& [fd, call] : object.watched) inputs.want(call.event);
      return;
    case Kind::eventfd:
    case Kind::timerfd:
    case Kind::signalfd:
      for (const PastCall& change : object.changes) {
        if (change.number != SYS_read) inputs.want(change.event);
      }
      return;
    case Kind::pipe:
    case Kind::inherited:
    case Kind::memfd:
    case Kind::other:
      return;
  }
}

void SpecMaker::want_process(const ProcessModel& process, WantedInputs& inputs) const {
  want_repeated(process.repeated, inputs);
  want_directory(*process.directory, inputs);
  for (const auto& [signal, action] : process.actions) inputs.want(action.call.event);
  for (const auto& [resource, call] : process.limits) inputs.want(call.event);
  for (const auto& [which, timer] : process.timers) {
    if (timer.set.number == SYS_setitimer) inputs.want(timer.set.event);
  }
  for (const PendingSignal& signal : process.pending) inputs.want(signal.queued);
}

// ---- Objects

Result<void> SpecMaker::add_objects(const WantedInputs& inputs, LiveSpec& spec) {
  const auto& objects = past_.model.objects();
  spec.objects.resize(objects.size());
  for (const auto& [number, peer] : needed_) {
    const OpenObject& object = objects[number];
    LiveObject& out = spec.objects[number];
    out.kind = object.kind;
    out.needed = true;
    out.flags = object.flags;
    out.nonblocking = object.nonblocking;
    out.number = object.number;
    out.peer = peer;
    out.end_number = object.end_number;
    out.capacity = object.capacity;
    out.shut = object.shut;
    if (object.kind == Kind::file) TRY(file_specs_.add(object, inputs, out, spec));
    if (object.kind == Kind::socket) TRY(add_socket(object, inputs, out));
    TRY(add_special(object, inputs, out));
    TRY(add_messages(number, inputs, spec));
    if (const auto queued = queued_.find(number); queued != queued_.end()) out.queued = queued->second;
  }
  if (!first_) return {};
  if (!spec.first) {
    return Error{fmt::format("what unit {} sends in event {} is not on its way to unit {} there", first_->message.unit,
                             first_->message.event, first_->before.unit)};
  }
  for (LiveObject& listener : spec.objects) {
    std::stable_partition(listener.queued.begin(), listener.queued.end(),
                          [&](ObjectNumber waiting) { return waiting == *spec.first; });
  }
  return {};
}

// Whether the unit that is to receive one message first has this object, or listens for its connection.
bool SpecMaker::received_by_first(ObjectNumber number) const {
  const auto queue = std::find_if(queued_.begin(), queued_.end(), [&](const auto& entry) {
    return std::find(entry.second.begin(), entry.second.end(), number) != entry.second.end();
  });
  const ObjectNumber receiver = queue == queued_.end() ? number : queue->first;
  const auto& all = past_.model.processes();
  return first_ && std::any_of(all.begin(), all.end(), [&](const auto& entry) {
           const auto& table = *entry.second.descriptors;
           return entry.first.first == first_->before.unit && lives(entry.first, entry.second) &&
                  std::any_of(table.begin(), table.end(),
                              [&](const auto& its) { return its.second.object == receiver; });
         });
}

// What the unit sends to itself, and what it has received in part, does not race with others.
bool SpecMaker::withheld(const InFlight::Piece& piece) const {
  const bool in_part = piece.offset > 0 || piece.urgent == InFlight::Urgent::taken;
  if (piece.send.unit == first_->before.unit || in_part) return false;
  const bool up_to_it = piece.send.unit == first_->message.unit && piece.send.event <= first_->message.event;
  const auto its = past_.in_flight.pieces({first_->message});
  return !up_to_it || its.empty() || piece.channel != its.front().channel;
}

Result<LiveMessage> SpecMaker::message(const InFlight::Piece& piece, const WantedInputs& inputs) const {
  LiveMessage out;
  if (piece.length > 0) {
    const WantedInputs::Read* const read = inputs.of(piece.send);
    if (!read || read->payload.size() < piece.offset + piece.length) {
      return Error{fmt::format("the bytes of event {} of unit {} were not found", piece.send.event, piece.send.unit)};
    }
    const auto first = read->payload.begin() + static_cast<long>(piece.offset);
    out.bytes.assign(first, first + static_cast<long>(piece.length));
  }
  out.urgent = piece.urgent != InFlight::Urgent::no;
  out.taken = piece.urgent == InFlight::Urgent::taken;
  for (const auto& [number, peer] : needed_) {
    if (later_.model.same(past_.model.objects()[number]).out_channel == piece.channel) out.from = number;
  }
  return out;
}

Result<void> SpecMaker::add_messages(ObjectNumber number, const WantedInputs& inputs, LiveSpec& spec) const {
  const bool races = received_by_first(number);
  const auto add = [&](const std::vector<InFlight::Piece>& pieces, std::vector<LiveMessage>& out) -> Result<void> {
    for (const auto& piece : pieces) {
      ASSIGN_OR_RETURN(LiveMessage one, message(piece, inputs));
      one.withheld = races && withheld(piece);
      out.push_back(std::move(one));
      if (races && piece.send == first_->message) spec.first = number;
    }
    return {};
  };
  ASSIGN_OR_RETURN(const auto pieces, arriving(number));
  TRY(add(pieces, spec.objects[number].arriving));
  return add(sent_ahead(number), spec.objects[number].sent_ahead);
}

Result<void> SpecMaker::add_socket(const OpenObject& object, const WantedInputs& inputs, LiveObject& out) {
  // Those of an accepted socket are its listener's.
  const OpenObject* origin = &object;
  while (origin->accepted_from) origin = &past_.model.objects()[*origin->accepted_from];
  out.domain = static_cast<int>(origin->made.args[0]);
  out.type = socket_type(past_.model, object);
  out.protocol = static_cast<int>(origin->made.args[2]);
  out.own_address = object.own_address;
  out.peer_address = object.peer_address;
  for (const PastCall& setting : object.settings) {
    const WantedInputs::Read* const read = inputs.of(setting.event);
    if (!read || read->pieces.empty()) continue;
    if (setting.number == SYS_bind) out.bound = read->pieces[0];
    if (setting.number == SYS_setsockopt) {
      out.options.push_back({static_cast<int>(setting.args[1]), static_cast<int>(setting.args[2]), read->pieces[0]});
    }
    if (setting.number == SYS_ioctl) out.nonblocking = inputs.value<int>(setting.event).value_or(0) != 0;
  }
  if (object.listens) out.backlog = static_cast<int>(object.listens->args[1]);
  if (out.domain == AF_UNIX) out.peer_id = object.peer_id;  // nobody asks others for it
  out.connected = is_connected(object);
  if (object.accepted_from) out.end_number = 1;
  if (object.connects) {
    const WantedInputs::Read* const read = inputs.of(object.connects->event);
    if (read && !read->pieces.empty()) out.peer_address = read->pieces[0];
    const bool unspecified = family_of(out.peer_address) == AF_UNSPEC;
    const bool datagram = out.type == SOCK_DGRAM;
    if (unspecified || datagram) out.connected = false;
  }
  if (out.domain != AF_UNIX && out.domain != AF_INET && out.domain != AF_INET6) {
    return Error{fmt::format("{} is a socket of a kind that cannot be made again", what(object))};
  }
  const bool gone = out.connected && !out.peer && std::none_of(queued_.begin(), queued_.end(), [&](const auto& queue) {
                      return std::any_of(queue.second.begin(), queue.second.end(), [&](ObjectNumber number) {
                        return &past_.model.objects()[number] == &object;
                      });
                    });
  if (gone) ++closed_;
  return {};
}

// An epoll instance reports once more what it was told to report by edges (EPOLLET), and that an end was hung up
// although it was told to say that once (EPOLLONESHOT) and has.
Result<void> SpecMaker::add_special(const OpenObject& object, const WantedInputs& inputs, LiveObject& out) const {
  if (object.kind == Kind::eventfd) {
    out.counter = object.made.args[0];
    for (const PastCall& change : object.changes) {
      if (change.number != SYS_read) {
        out.counter += inputs.value<uint64_t>(change.event).value_or(0);
      } else {
        out.counter = object.made.args[1] & EFD_SEMAPHORE ? out.counter - 1 : 0;
      }
    }
  }
  if (object.kind == Kind::timerfd) {
    out.clock = static_cast<int>(object.made.args[0]);
    if (!object.changes.empty()) {
      const PastCall& set = object.changes.back();
      const auto asked = inputs.value<__kernel_itimerspec>(set.event).value_or(__kernel_itimerspec{});
      out.timer = left_of_timerfd(set, asked, out.clock, object.expirations, past_.latest_ns);
    }
  }
  if (object.kind == Kind::signalfd && !object.changes.empty()) {
    out.mask = inputs.value<uint64_t>(object.changes.back().event).value_or(0);
  }
  if (object.kind == Kind::epoll) {
    out.watched_objects = object.watched_objects;
    for (const auto& [fd, call] : object.watched) {
      const auto event = inputs.value<epoll_event>(call.event);
      if (!event) return Error{fmt::format("what {} watches was not found", what(object))};
      out.watched[fd] = *event;
      const auto reported = object.reported_at.find(event->data.u64);
      const bool since = reported != object.reported_at.end() && reported->second >= object.watched_since.at(fd);
      if (event->events & EPOLLONESHOT && since) out.watched[fd].events = EPOLLONESHOT | (event->events & EPOLLET);
    }
  }
  return {};
}

// ---- Processes

namespace {

KernelAction action_of(const ActionModel& action, const WantedInputs& inputs) {
  const KernelAction set = inputs.value<KernelAction>(action.call.event).value_or(KernelAction{});
  const bool handler =
      set.handler != reinterpret_cast<uint64_t>(SIG_DFL) && set.handler != reinterpret_cast<uint64_t>(SIG_IGN);
  return action.program_changed && handler ? KernelAction{} : set;
}

uint64_t mask_of(const std::vector<MaskChange>& changes, const WantedInputs& inputs) {
  uint64_t mask = 0;
  for (const MaskChange& change : changes) {
    if (change.known) mask = *change.known;
    if (change.call) {
      const uint64_t set = inputs.value<uint64_t>(change.call->event).value_or(0);
      const int how = static_cast<int>(change.call->args[0]);
      mask = how == SIG_BLOCK ? mask | set : how == SIG_UNBLOCK ? mask & ~set : set;
    }
    if (change.action) {
      const auto action = inputs.value<KernelAction>(change.action->event).value_or(KernelAction{});
      mask |= action.mask;
      if (!(action.flags & SA_NODEFER)) mask |= bit(change.handled);
    }
  }
  return mask & ~(bit(SIGKILL) | bit(SIGSTOP));
}

std::vector<siginfo_t> signals_of(const PendingSignals& pending, const WantedInputs& inputs) {
  std::vector<siginfo_t> out;
  for (const PendingSignal& signal : pending) {
    siginfo_t info{};
    if (signal.queued) info = inputs.value<siginfo_t>(signal.queued->event).value_or(info);
    info.si_signo = signal.number;
    if (!signal.queued) {
      info.si_code = signal.code;
      info.si_pid = signal.sender;
      info.si_uid = getuid();
      info.si_status = signal.status;
    }
    out.push_back(info);
  }
  return out;
}

std::map<uint64_t, itimerval> timers_of(const ProcessModel& process, const WantedInputs& inputs, uint64_t now_ns) {
  std::map<uint64_t, itimerval> out;
  for (const auto& [which, timer] : process.timers) {
    itimerval asked{};
    asked.it_value.tv_sec = static_cast<uint32_t>(timer.set.args[0]);
    if (timer.set.number != SYS_alarm) asked = inputs.value<itimerval>(timer.set.event).value_or(itimerval{});
    if (const auto left = left_of_itimer(which, timer, asked, now_ns)) out[which] = *left;
  }
  return out;
}

}  // namespace

// What a call will return that has already done its work: others have received what it sends, or its child lives.
Result<std::optional<int64_t>> SpecMaker::result_to_come(KernelModel::ThreadName name, const Event& entered) const {
  if (entered.child_unit || entered.child_thread) return std::optional(entered.result);
  std::optional<int64_t> result;
  if (!entered.send || entered.send->length == 0) return result;
  const auto events = trace_.event_count(name.first);
  TRY(trace_.for_each_event(name.first, places_.at(name.first), events, [&](EventIndex, const Event& event) {
    if (event.kind != EventKind::exit || event.thread != name.second) return true;
    result = event.result;
    return false;
  }));
  return result;
}

Result<LiveThread> SpecMaker::thread_of(KernelModel::ThreadName name, const ThreadModel& model,
                                        const ThreadState& state, const WantedInputs& inputs) const {
  LiveThread out;
  out.serial = name.second;
  out.tid = model.tid;
  out.regs = state.regs;
  out.xstate = state.xstate;
  out.mask = mask_of(model.mask, inputs);
  if (model.alternate_stack) out.alternate_stack = inputs.value<stack_t>(model.alternate_stack->event);
  out.robust_list = model.robust_list;
  out.robust_length = model.robust_length;
  out.clear_tid = model.clear_tid;
  if (model.born && model.born->number == SYS_clone3 && !out.clear_tid) {
    const WantedInputs::Read* const read = inputs.of(model.born->event);
    clone_args asked{};
    if (read && !read->pieces.empty()) {
      std::memcpy(&asked, read->pieces[0].data(), std::min(read->pieces[0].size(), sizeof asked));
    }
    if (asked.flags & CLONE_CHILD_CLEARTID) out.clear_tid = asked.child_tid;
  }
  if (model.name) out.name = inputs.text(model.name->event);
  out.repeated = repeated_calls(model.repeated, inputs);
  out.pending = signals_of(model.pending, inputs);
  if (const OngoingCall* const ongoing = past_.model.call_of(name); ongoing && state.in_syscall) {
    const Event& entered = ongoing->event;
    ASSIGN_OR_RETURN(const auto result, result_to_come(name, entered));
    const int64_t number = entered.number == SYS_restart_syscall ? model.interrupted : entered.number;
    if (number < 0) {
      return Error{
          fmt::format("thread {} of unit {} continues a call that cannot be entered again", name.second, name.first)};
    }
    if (result) {
      out.regs.rax = static_cast<uint64_t>(*result);
    } else {
      out.regs.rip -= 2;  // to the instruction
      out.regs.rax = static_cast<uint64_t>(number);
    }
  }
  out.regs.orig_rax = ~0ull;
  return out;
}

Result<void> SpecMaker::add_processes(const WantedInputs& inputs, const std::map<UnitId, UnitState>& states,
                                      LiveSpec& spec) {
  std::map<KernelModel::ProcessName, size_t> places;
  const auto& model = past_.model;
  for (const auto& [name, process] : model.processes()) {
    const auto parent = process.parent ? model.processes().find(*process.parent) : model.processes().end();
    const bool has_parent = parent != model.processes().end() && lives(parent->first, parent->second);
    if (!lives(name, process)) {
      if (!process.ended) continue;
      const auto ignores = [&](const ProcessModel& its) {
        const auto action = its.actions.find(SIGCHLD);
        if (action == its.actions.end()) return false;
        const KernelAction set = action_of(action->second, inputs);
        return set.handler == reinterpret_cast<uint64_t>(SIG_IGN) || (set.flags & SA_NOCLDWAIT) != 0;
      };
      if (process.waited_for || !has_parent || ignores(parent->second)) continue;
    }
    LiveProcess& out = spec.processes.emplace_back();
    places[name] = spec.processes.size() - 1;
    out.unit = name.first;
    out.serial = name.second;
    out.pid = process.pid;
    if (has_parent) {
      const auto place = places.find(*process.parent);
      if (place == places.end()) return Error{fmt::format("process {} is older than its parent", process.pid)};
      out.parent = place->second;
    }
    out.leads_session = process.leads_session;
    out.group = process.group;
    if (!lives(name, process)) {
      out.wait_status = process.wait_status;
      continue;
    }
    out.descriptors = *process.descriptors;
    out.directory = file_specs_.directory_now(*process.directory, inputs);
    if (out.directory && access(out.directory->c_str(), F_OK) != 0) {
      const std::string note =
          fmt::format("the directory {} is missing: it is made anew, and is empty", *out.directory);
      if (std::find(spec.notes.begin(), spec.notes.end(), note) == spec.notes.end()) spec.notes.push_back(note);
    }
    if (*process.umask >= 0) out.umask = static_cast<uint32_t>(*process.umask);
    for (const auto& [resource, call] : process.limits) {
      if (const auto limit = inputs.value<rlimit>(call.event)) out.limits[resource] = *limit;
    }
    for (const auto& [signal, action] : process.actions) out.actions[signal] = action_of(action, inputs);
    out.repeated = repeated_calls(process.repeated, inputs);
    out.timers = timers_of(process, inputs, past_.latest_ns);
    if (out.timers.contains(ITIMER_VIRTUAL) || out.timers.contains(ITIMER_PROF)) {
      spec.notes.push_back(
          fmt::format("timers of unit {} that count processor time (setitimer(2)) start anew", out.unit));
    }
    out.pending = signals_of(process.pending, inputs);
    const auto state = states.find(name.first);
    if (state == states.end()) return Error{fmt::format("unit {} does not stand there", name.first)};
    for (const ProcessState& its : state->second.processes) {
      if (its.process != name.second) continue;
      out.stack_limit = its.stack_limit;
      if (its.memory_of) {
        return Error{
            fmt::format("process {} of unit {} runs on its parent's memory there (vfork(2)): give a place "
                        "before that, or after it has executed its program",
                        process.pid, name.first)};
      }
    }
    for (const ThreadState& thread : state->second.threads) {
      if (thread.process != name.second) continue;
      const KernelModel::ThreadName its{name.first, thread.thread};
      const auto known = model.threads().find(its);
      if (known == model.threads().end() || known->second.process != name.second) {
        return Error{fmt::format("thread {} of unit {} is not known from the events", thread.thread, name.first)};
      }
      ASSIGN_OR_RETURN(LiveThread made, thread_of(its, known->second, thread, inputs));
      if (made.tid == 0) made.tid = process.pid;
      out.threads.push_back(std::move(made));
    }
    std::stable_sort(out.threads.begin(), out.threads.end(),
                     [&](const LiveThread& a, const LiveThread& b) { return (a.tid == out.pid) > (b.tid == out.pid); });
    if (out.threads.empty()) return Error{fmt::format("process {} of unit {} has no thread there", out.pid, out.unit)};
    if (out.threads.front().tid != out.pid) {
      return Error{
          fmt::format("the first thread of process {} has ended before the others: it cannot live again", out.pid)};
    }
  }
  return {};
}

void SpecMaker::note_lost(LiveSpec& spec) const {
  std::map<std::string, std::set<UnitId>> lost;
  for (const auto& [name, process] : past_.model.processes()) {
    if (!lives(name, process)) continue;
    for (const auto& [call, in_children] : process.lost) lost[call].insert(name.first);
  }
  for (const auto& [call, units] : lost) {
    spec.notes.push_back(fmt::format("what {} set by {} is not made again", counted(units.size(), "unit"), call));
  }
}

Result<LiveSpec> SpecMaker::make_spec(const WantedInputs& inputs, const std::map<UnitId, UnitState>& states) {
  LiveSpec spec;
  spec.clock_ns = past_.latest_ns;
  TRY(add_objects(inputs, spec));
  TRY(add_processes(inputs, states, spec));
  note_lost(spec);
  closed_ += pipes_to_others();
  if (closed_ > 0) {
    spec.notes.push_back(fmt::format("{} to processes that {}: closed", counted(closed_, "connection"),
                                     only_ ? "are not of this unit" : "were not recorded"));
  }
  if (spec.processes.empty()) return Error{"no process lives there"};
  return spec;
}

}  // namespace redrive
