#include "interceptors/channels.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace redrive {
namespace {

constexpr uint64_t kMaxHeldPerStream = uint64_t{64} << 20;
constexpr uint64_t kMaxHeld = uint64_t{256} << 20;  // of all streams
constexpr uint64_t kMaxHeldDatagrams = uint64_t{64} << 20;
constexpr uint64_t kOverhead = 192;  // counted for each send in addition to its bytes: its place in lists, its token
constexpr size_t kMostPeers = 1 << 17;
constexpr size_t kReorderWindow = 8;  // how many sends may overtake each other on their way into one channel
// Counted in new channels:
constexpr size_t kLookEvery = 512;
constexpr uint64_t kForgetAfter = 2048;

// "127.0.0.1:80" or "[::1]:80". IPv4 addresses mapped into IPv6 are written as IPv4, so that both ends agree.
std::string address_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(in.sin_port));
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
    inet_ntop(AF_INET, &in6.sin6_addr.s6_addr[12], text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(in6.sin6_port));
  }
  inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
  return fmt::format("[{}]:{}", text, ntohs(in6.sin6_port));
}

// Pipes made by pipe(2) are in a file system of their own, FIFOs wherever their name is.
bool is_pipefs(int fd) {
  struct statfs info {};
  return fstatfs(fd, &info) == 0 && info.f_type == PIPEFS_MAGIC;
}

// Whether the shorter one is the beginning of the longer one.
bool begins_alike(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  const size_t size = std::min(a.size(), b.size());
  return std::equal(a.begin(), a.begin() + static_cast<ptrdiff_t>(size), b.begin());
}

}  // namespace

ChannelLease Channels::channel(const std::string& key, const char* kind, const std::string& name) {
  if (const auto it = known_.find(key); it != known_.end()) return it->second.lease;
  if (last_id_ >= look_at_) forget_channels();
  const auto lease = std::make_shared<const uint64_t>(++last_id_);
  Known& known = known_[key];
  known.lease = lease;
  known.info = {*lease, kind, name};
  new_.push_back(known.info);
  return lease;
}

// A channel that was released only recently may still be found by a process that has a descriptor and has not used it
// yet. For that, nothing but the number of an empty stream needs to be known.
void Channels::forget_channels() {
  size_t held = 0;
  for (auto it = known_.begin(); it != known_.end();) {
    Known& known = it->second;
    if (known.lease.use_count() > 1) {
      known.idle_since.reset();
      ++held;
      ++it;
      continue;
    }
    if (!known.idle_since) known.idle_since = last_id_;
    const bool forgotten = last_id_ - *known.idle_since >= kForgetAfter;
    const auto stream = streams_.find(*known.lease);
    if (stream != streams_.end() && (forgotten || stream->second.blank())) {
      held_ -= stream->second.held;
      streams_.erase(stream);
    }
    it = forgotten ? known_.erase(it) : std::next(it);
  }
  look_at_ = last_id_ + std::max(kLookEvery, held);
}

std::vector<ChannelInfo> Channels::open() const {
  std::vector<ChannelInfo> found;
  for (const auto& [key, known] : known_) found.push_back(known.info);
  return found;
}

std::vector<ChannelInfo> Channels::take_new() { return std::exchange(new_, {}); }

std::optional<Endpoint> Channels::resolve(int pidfd, int fd) {
  const Fd copy(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0)));
  struct stat info {};
  if (!copy || fstat(copy.get(), &info) != 0) return std::nullopt;
  if (S_ISFIFO(info.st_mode)) return pipe_endpoint(info.st_dev, info.st_ino, is_pipefs(copy.get()) ? "pipe" : "fifo");
  if (S_ISSOCK(info.st_mode)) return resolve_socket(copy.get(), info.st_ino);
  return Endpoint{};
}

Endpoint Channels::resolve_pipe(uint64_t device, uint64_t inode) { return pipe_endpoint(device, inode, "pipe"); }

Endpoint Channels::pipe_endpoint(uint64_t device, uint64_t inode, const char* kind) {
  const std::string id = fmt::format("{}:{}", device, inode);
  const auto pipe = channel("pipe " + id, kind, id);
  return Endpoint{Endpoint::Kind::stream, *pipe, *pipe, {pipe, nullptr}};
}

Endpoint Channels::resolve(const Connection& connection) {
  const std::string local = address_text(connection.local), peer = address_text(connection.peer);
  const std::string prefix = fmt::format("tcp {} ", connection.network);
  const std::string to = local + "->" + peer, from = peer + "->" + local;
  const auto to_peer = channel(prefix + to, "tcp", to);
  const auto from_peer = channel(prefix + from, "tcp", from);
  note_sender(*to_peer, connection.inode);
  return Endpoint{Endpoint::Kind::stream, *to_peer, *from_peer, {to_peer, from_peer}};
}

// A later connection may use the same addresses again; what the earlier one left unread is lost.
void Channels::note_sender(uint64_t channel, uint64_t inode) {
  Stream& out = streams_[channel];
  if (out.sender_inode && out.sender_inode != inode) {
    held_ -= out.held;
    out = Stream{};
  }
  out.sender_inode = inode;
}

void Channels::note_pair(int pidfd, int fd, int other) {
  struct stat info[2] = {};
  const Fd copies[] = {Fd(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0))),
                       Fd(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, other, 0)))};
  for (size_t i = 0; i < std::size(copies); ++i) {
    if (!copies[i] || fstat(copies[i].get(), &info[i]) != 0) return;
  }
  note_peers(info[0].st_ino, info[1].st_ino);
}

void Channels::note_peers(uint64_t inode, uint64_t other) {
  if (unix_peers_.size() >= kMostPeers) unix_peers_.clear();
  unix_peers_[inode] = other;
  unix_peers_[other] = inode;
}

std::optional<Endpoint> Channels::resolve_socket(int fd, uint64_t inode) {
  int domain = 0, type = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return std::nullopt;
  size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return std::nullopt;
  const std::string self = fmt::format("{}", inode);
  if (domain != AF_UNIX && domain != AF_INET && domain != AF_INET6) return Endpoint{};
  if (type != SOCK_STREAM) {
    const char* kind = domain == AF_UNIX ? (type == SOCK_SEQPACKET ? "unix-seqpacket" : "unix-dgram")
                                         : (type == SOCK_DGRAM ? "udp" : "raw");
    const auto out = channel("dgram " + self, kind, "socket " + self);
    return Endpoint{Endpoint::Kind::datagram, *out, 0, {out, nullptr}};
  }
  if (domain != AF_UNIX) {
    Connection connection;
    connection.inode = inode;
    socklen_t local_size = sizeof connection.local, peer_size = sizeof connection.peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&connection.local), &local_size) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&connection.peer), &peer_size) != 0) {
      return std::nullopt;
    }
    socklen_t network_size = sizeof connection.network;
    getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &connection.network, &network_size);
    return resolve(connection);
  }
  const auto peer = unix_peer(inode);
  if (!peer) return std::nullopt;
  const std::string other = *peer ? fmt::format("{}", *peer) : "?";
  const ChannelLease to_peer = channel("unix " + self, "unix", self + "->" + other);
  const ChannelLease from_peer = *peer ? channel("unix " + other, "unix", other + "->" + self) : nullptr;
  note_sender(*to_peer, inode);
  return Endpoint{Endpoint::Kind::stream, *to_peer, from_peer ? *from_peer : 0, {to_peer, from_peer}};
}

// The inode of the other end. 0 if there is none, not yet (connected but not accepted) or no longer (closed). Nullopt
// if the socket is not connected.
std::optional<uint64_t> Channels::unix_peer(uint64_t inode) {
  if (const auto known = unix_peers_.find(inode); known != unix_peers_.end()) return known->second;
  const auto peer = ask_unix_peer(inode);
  if (peer && *peer) note_peers(inode, *peer);
  return peer;
}

std::optional<uint64_t> Channels::ask_unix_peer(uint64_t inode) {
  if (!diag_) diag_ = Fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr header;
    unix_diag_req request;
  } message{};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST;
  message.request.sdiag_family = AF_UNIX;
  message.request.udiag_states = ~0u;
  message.request.udiag_ino = static_cast<uint32_t>(inode);
  message.request.udiag_show = UDIAG_SHOW_PEER;
  message.request.udiag_cookie[0] = message.request.udiag_cookie[1] = ~0u;
  if (::send(diag_.get(), &message, sizeof message, 0) < 0) return std::nullopt;
  alignas(nlmsghdr) char reply[4096];
  const ssize_t got = ::recv(diag_.get(), reply, sizeof reply, 0);
  auto left = static_cast<unsigned>(got < 0 ? 0 : got);
  for (auto* h = reinterpret_cast<nlmsghdr*>(reply); NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
    if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY) continue;
    auto* entry = static_cast<unix_diag_msg*>(NLMSG_DATA(h));
    int attributes = static_cast<int>(h->nlmsg_len - NLMSG_LENGTH(sizeof *entry));
    for (auto* a = reinterpret_cast<rtattr*>(entry + 1); RTA_OK(a, attributes); a = RTA_NEXT(a, attributes)) {
      if (a->rta_type == UNIX_DIAG_PEER) return *static_cast<uint32_t*>(RTA_DATA(a));
    }
  }
  return std::nullopt;
}

void Channels::hold(Stream& stream, const Segment& segment) {
  stream.held += segment.data.size() + kOverhead;
  held_ += segment.data.size() + kOverhead;
}

void Channels::release(Stream& stream, const Segment& segment) {
  if (!segment.send) return;
  stream.held -= segment.data.size() + kOverhead;
  held_ -= segment.data.size() + kOverhead;
}

// Everything that the stream brings from now on is input.
void Channels::give_up(Stream& stream) {
  held_ -= stream.held;
  stream = Stream{{}, {}, 0, stream.sender_inode, true, 0};
}

// Gives up the streams that hold the most: nobody here receives from them, or has not for long. Half of the room is
// freed at once, because looking at all streams takes time.
void Channels::make_room() {
  std::vector<Stream*> largest;
  for (auto& [id, stream] : streams_) largest.push_back(&stream);
  std::sort(largest.begin(), largest.end(), [](const Stream* a, const Stream* b) { return a->held > b->held; });
  for (Stream* stream : largest) {
    if (held_ <= kMaxHeld / 2) return;
    give_up(*stream);
  }
}

void Channels::begin_send(const Endpoint& endpoint, SendToken send, Bytes payload,
                          std::span<const uint64_t> datagrams) {
  if (endpoint.kind == Endpoint::Kind::stream) {
    Stream& stream = streams_[endpoint.out];
    if (stream.foreign || payload.empty()) return;
    const uint64_t length = payload.size();
    stream.in_flight.push_back({std::move(send), 0, length, std::move(payload)});
    hold(stream, stream.in_flight.back());
    if (stream.held > kMaxHeldPerStream) give_up(stream);
    if (held_ > kMaxHeld) make_room();
    return;
  }
  first_of_call_[send.get()] = next_datagram_;
  uint64_t offset = 0;
  for (const uint64_t length : datagrams) {
    const auto from = payload.begin() + static_cast<ptrdiff_t>(offset);
    Datagram datagram{0, send, offset, Bytes(from, from + static_cast<ptrdiff_t>(length))};
    datagram.hash = XXH3_64bits(datagram.data.data(), datagram.data.size());
    offset += length;
    datagram_bytes_ += length + kOverhead;
    by_hash_.emplace(datagram.hash, next_datagram_);
    datagrams_.emplace_hint(datagrams_.end(), next_datagram_++, std::move(datagram));
  }
  // Datagrams may be lost or go to receivers outside: the oldest make room.
  while (datagram_bytes_ > kMaxHeldDatagrams) forget_datagram(datagrams_.begin()->first);
}

void Channels::forget_datagram(DatagramNumber number) {
  const auto datagram = datagrams_.find(number);
  if (datagram == datagrams_.end()) return;
  by_hash_.erase({datagram->second.hash, number});
  datagram_bytes_ -= datagram->second.data.size() + kOverhead;
  datagrams_.erase(datagram);
}

// Removes the end of a payload, which did not go. Some of the rest may have been received already.
void Channels::cut_unsent(Stream& stream, Segment& segment, uint64_t sent) {
  const uint64_t end = std::max(sent, segment.offset);
  if (end >= segment.data.size()) return;
  release(stream, segment);
  segment.length = end - segment.offset;
  segment.data.resize(end);
  segment.data.shrink_to_fit();
  hold(stream, segment);
}

void Channels::end_send(const Endpoint& endpoint, const SendToken& send, int64_t sent) {
  const uint64_t count = sent > 0 ? static_cast<uint64_t>(sent) : 0;
  if (endpoint.kind == Endpoint::Kind::datagram) {
    // Forgets datagrams that the call did not send; those that were received meanwhile are gone already.
    const auto call = first_of_call_.find(send.get());
    if (call == first_of_call_.end()) return;
    for (auto it = datagrams_.lower_bound(call->second + count); it != datagrams_.end() && it->second.send == send;) {
      forget_datagram(it++->first);
    }
    first_of_call_.erase(call);
    return;
  }
  Stream& stream = streams_[endpoint.out];
  const auto is_it = [&](const Segment& s) { return s.send == send; };
  const auto flying = std::find_if(stream.in_flight.begin(), stream.in_flight.end(), is_it);
  auto& segments = stream.segments;
  auto queued = segments.begin();
  if (flying != stream.in_flight.end()) {
    segments.push_back(std::move(*flying));
    stream.in_flight.erase(flying);
    queued = std::prev(segments.end());
  }
  // If some of it has been received already, there may be several pieces.
  while ((queued = std::find_if(queued, segments.end(), is_it)) != segments.end()) {
    cut_unsent(stream, *queued, count);
    if (queued->length > 0) {
      ++queued;
      continue;
    }
    release(stream, *queued);
    queued = segments.erase(queued);
  }
}

void Channels::transfer(const Endpoint& endpoint, uint64_t length) {
  if (endpoint.kind != Endpoint::Kind::stream) return;
  Stream& stream = streams_[endpoint.out];
  if (stream.foreign) return;
  const uint64_t received = std::min(stream.owed, length);
  stream.owed -= received;
  if (length == received) return;
  // Adjacent transfers are merged: nobody here may ever receive them.
  if (stream.segments.empty() || stream.segments.back().send) stream.segments.push_back({});
  stream.segments.back().length += length - received;
}

void Channels::drain(const Endpoint& endpoint, uint64_t length) {
  if (endpoint.in == 0) return;
  Stream& stream = streams_[endpoint.in];
  stream.owed += length - consume(stream, length);
}

// Takes bytes off the front, if necessary from sends that have not ended. Returns how many bytes there were.
uint64_t Channels::consume(Stream& stream, uint64_t length) {
  uint64_t left = length;
  while (left > 0 && !(stream.segments.empty() && stream.in_flight.empty())) {
    if (stream.segments.empty()) {
      stream.segments.push_back(std::move(stream.in_flight.front()));
      stream.in_flight.erase(stream.in_flight.begin());
    }
    Segment& front = stream.segments.front();
    const uint64_t taken = std::min(front.length, left);
    front.offset += taken;
    front.length -= taken;
    left -= taken;
    if (front.length > 0) break;
    release(stream, front);
    stream.segments.pop_front();
  }
  return length - left;
}

// Processes that share a stream may be seen to read in another order than they did: `content` then begins in the middle
// of a send. That part is moved to `at`. False if no send holds it.
bool Channels::bring_forward(Stream& stream, size_t at, std::span<const uint8_t> content) {
  auto& segments = stream.segments;
  uint64_t start = 0;
  const auto holds = [&](const Segment& s) {
    if (!s.send) return false;
    const std::span data(s.data);
    for (start = s.offset + 1; start < data.size(); ++start) {
      if (data[start] == content.front() && begins_alike(data.subspan(start), content)) return true;
    }
    return false;
  };
  const auto from = segments.begin() + static_cast<ptrdiff_t>(at);
  const auto last = from + static_cast<ptrdiff_t>(std::min(kReorderWindow, segments.size() - at));
  auto found = std::find_if(from, last, holds);
  if (found == last) {
    const auto flying = std::find_if(stream.in_flight.begin(), stream.in_flight.end(), holds);
    if (flying == stream.in_flight.end()) return false;
    found = segments.insert(from, std::move(*flying));
    stream.in_flight.erase(flying);
  }
  release(stream, *found);
  Segment after = std::move(*found);
  const auto piece = [&](uint64_t begin, uint64_t end) {
    Segment made{after.send, begin, end - begin,
                 Bytes(after.data.begin(), after.data.begin() + static_cast<ptrdiff_t>(end))};
    hold(stream, made);
    return made;
  };
  const uint64_t end = std::min(start + content.size(), after.data.size());
  *found = piece(after.offset, start);
  Segment part = piece(start, end);
  if (end < after.data.size()) {
    after.length -= end - after.offset;
    after.offset = end;
    hold(stream, after);
    segments.insert(std::next(found), std::move(after));
  }
  segments.insert(segments.begin() + static_cast<ptrdiff_t>(at), std::move(part));
  return true;
}

bool Channels::receive(const Endpoint& endpoint, std::span<const uint8_t> content, bool peek,
                       std::vector<MatchedPart>& parts) {
  if (content.empty()) return false;
  if (endpoint.kind == Endpoint::Kind::datagram) return receive_datagram(content, peek, parts);
  if (endpoint.in == 0) return false;
  Stream& stream = streams_[endpoint.in];
  return !stream.foreign && receive_stream(stream, content, peek, parts);
}

bool Channels::receive_stream(Stream& stream, std::span<const uint8_t> content, bool peek,
                              std::vector<MatchedPart>& parts) {
  auto& segments = stream.segments;
  bool known = true;
  uint64_t matched = 0;
  const auto fits = [&](const Segment& s) {
    return !s.send || begins_alike(std::span(s.data).subspan(s.offset, s.length), content);
  };
  for (size_t at = 0; !content.empty(); ++at) {
    const auto place = segments.begin() + static_cast<ptrdiff_t>(at);
    if (place == segments.end() || !fits(*place)) {
      // Sends overtook each other on their way into the kernel: take the one that matches.
      const auto last = place + static_cast<ptrdiff_t>(std::min(kReorderWindow, segments.size() - at));
      const auto later = std::find_if(place, last, [&](const Segment& s) { return s.send && fits(s); });
      const auto flying = std::find_if(stream.in_flight.begin(), stream.in_flight.end(), fits);
      if (later != last) {
        std::rotate(place, later, later + 1);
      } else if (flying != stream.in_flight.end()) {
        segments.insert(place, std::move(*flying));
        stream.in_flight.erase(flying);
      } else if (!bring_forward(stream, at, content)) {
        if (place != segments.end()) {
          if (!peek) give_up(stream);
          return false;
        }
        // Nothing is known of these bytes: they come from a transfer whose end has not been seen, or from outside.
        if (!peek) stream.owed += content.size();
        known = false;
        break;
      }
    }
    const Segment& segment = segments[at];
    const uint64_t taken = std::min<uint64_t>(segment.length, content.size());
    if (segment.send) {
      parts.push_back({segment.send, segment.offset, taken});
    } else {
      known = false;
    }
    matched += taken;
    content = content.subspan(taken);
  }
  if (!peek) consume(stream, matched);
  return known;
}

bool Channels::receive_datagram(std::span<const uint8_t> content, bool peek, std::vector<MatchedPart>& parts) {
  const uint64_t hash = XXH3_64bits(content.data(), content.size());
  // If contents are equal, the one that was sent first is taken.
  for (auto it = by_hash_.lower_bound({hash, 0}); it != by_hash_.end() && it->first == hash; ++it) {
    const DatagramNumber number = it->second;
    const Datagram& datagram = datagrams_.at(number);
    if (!std::equal(content.begin(), content.end(), datagram.data.begin(), datagram.data.end())) continue;
    parts.push_back({datagram.send, datagram.offset, datagram.data.size()});
    if (!peek) forget_datagram(number);
    return true;
  }
  return false;
}

}  // namespace redrive
