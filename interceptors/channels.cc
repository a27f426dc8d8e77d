#include "interceptors/channels.h"

#include <arpa/inet.h>
#include <fcntl.h>
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
constexpr uint64_t kMaxHeldDatagrams = uint64_t{64} << 20;
constexpr uint64_t kDatagramOverhead = 64;  // what an empty datagram counts for
constexpr size_t kReorderWindow = 8;        // sends that may overtake each other on their way into one channel

// "127.0.0.1:80" or "[::1]:80"; v4 addresses mapped into v6 are written as v4, so that both ends agree.
std::string address_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
    inet_ntop(AF_INET, &in6.sin6_addr.s6_addr[12], text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(in6.sin6_port));
  }
  inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
  return "[" + std::string(text) + "]:" + std::to_string(ntohs(in6.sin6_port));
}

// pipe(2) objects live in a file system of their own, FIFOs wherever their name is.
bool is_pipefs(int fd) {
  struct statfs info {};
  return fstatfs(fd, &info) == 0 && info.f_type == PIPEFS_MAGIC;
}

// Whether the smaller of both begins the other.
bool begins_alike(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return std::memcmp(a.data(), b.data(), std::min(a.size(), b.size())) == 0;
}

}  // namespace

uint64_t Channels::channel(const std::string& key, const char* kind, const std::string& name) {
  const auto [it, inserted] = ids_.try_emplace(key, ids_.size() + 1);
  if (inserted) new_.push_back({it->second, kind, name});
  return it->second;
}

std::vector<ChannelInfo> Channels::take_new() { return std::exchange(new_, {}); }

std::optional<Endpoint> Channels::resolve(int pidfd, int fd) {
  const Fd copy(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0)));
  struct stat info {};
  if (!copy || fstat(copy.get(), &info) != 0) return std::nullopt;
  if (S_ISFIFO(info.st_mode)) {
    const std::string id = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
    const uint64_t pipe = channel("pipe " + id, is_pipefs(copy.get()) ? "pipe" : "fifo", id);
    return Endpoint{Endpoint::Kind::stream, pipe, pipe};
  }
  if (S_ISSOCK(info.st_mode)) return resolve_socket(copy.get(), info.st_ino);
  return Endpoint{};
}

std::optional<Endpoint> Channels::resolve_socket(int fd, uint64_t inode) {
  int domain = 0, type = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return std::nullopt;
  size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return std::nullopt;
  const std::string self = std::to_string(inode);
  if (domain != AF_UNIX && domain != AF_INET && domain != AF_INET6) return Endpoint{};
  if (type != SOCK_STREAM) {
    const char* kind = domain == AF_UNIX ? (type == SOCK_SEQPACKET ? "unix-seqpacket" : "unix-dgram")
                                         : (type == SOCK_DGRAM ? "udp" : "raw");
    const uint64_t out = channel("dgram " + self, kind, "socket " + self);
    return Endpoint{Endpoint::Kind::datagram, out, 0};
  }
  Endpoint endpoint{Endpoint::Kind::stream};
  if (domain == AF_UNIX) {
    const uint64_t peer = unix_peer(inode);
    if (!peer) return std::nullopt;
    const std::string other = std::to_string(peer);
    endpoint.out = channel("unix " + self, "unix", self + "->" + other);
    endpoint.in = channel("unix " + other, "unix", other + "->" + self);
  } else {
    sockaddr_storage local{}, peer{};
    socklen_t local_size = sizeof local, peer_size = sizeof peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
      return std::nullopt;
    }
    uint64_t network = 0;
    socklen_t network_size = sizeof network;
    getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &network, &network_size);
    const std::string to = address_text(local) + "->" + address_text(peer);
    const std::string from = address_text(peer) + "->" + address_text(local);
    const std::string prefix = "tcp " + std::to_string(network) + " ";
    endpoint.out = channel(prefix + to, "tcp", to);
    endpoint.in = channel(prefix + from, "tcp", from);
  }
  // The same addresses may be used again by a later connection: what the earlier one left unread is gone.
  Stream& out = streams_[endpoint.out];
  if (out.sender_inode != inode) {
    if (out.sender_inode) out = Stream{};
    out.sender_inode = inode;
  }
  return endpoint;
}

uint64_t Channels::unix_peer(uint64_t inode) {
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
  if (::send(diag_.get(), &message, sizeof message, 0) < 0) return 0;
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
  return 0;
}

void Channels::begin_send(const Endpoint& endpoint, SendToken send, Bytes payload,
                          std::span<const uint64_t> datagrams) {
  if (endpoint.kind == Endpoint::Kind::stream) {
    Stream& stream = streams_[endpoint.out];
    if (stream.foreign || payload.empty()) return;
    stream.held += payload.size();
    if (stream.held > kMaxHeldPerStream) {
      stream.give_up();
      return;
    }
    const uint64_t length = payload.size();
    stream.in_flight.push_back({std::move(send), 0, length, std::move(payload)});
    return;
  }
  uint64_t offset = 0, index = 0;
  for (const uint64_t length : datagrams) {
    Datagram datagram;
    datagram.data.assign(payload.begin() + static_cast<ptrdiff_t>(offset),
                         payload.begin() + static_cast<ptrdiff_t>(offset + length));
    datagram.hash = XXH3_64bits(datagram.data.data(), datagram.data.size());
    datagram.send = send;
    datagram.offset = offset;
    offset += length;
    datagram.index = index++;
    datagram_bytes_ += length + kDatagramOverhead;
    datagrams_.push_back(std::move(datagram));
    by_hash_.emplace(datagrams_.back().hash, std::prev(datagrams_.end()));
  }
  // Datagrams may be lost or go to nobody we know: the oldest make room.
  while (datagram_bytes_ > kMaxHeldDatagrams) forget(datagrams_.begin());
}

Channels::DatagramList::iterator Channels::forget(DatagramList::iterator datagram) {
  const auto [first, last] = by_hash_.equal_range(datagram->hash);
  const auto entry = std::find_if(first, last, [&](const auto& e) { return e.second == datagram; });
  if (entry != last) by_hash_.erase(entry);
  datagram_bytes_ -= datagram->data.size() + kDatagramOverhead;
  return datagrams_.erase(datagram);
}

void Channels::end_send(const Endpoint& endpoint, const SendToken& send, int64_t sent) {
  const uint64_t count = sent > 0 ? static_cast<uint64_t>(sent) : 0;
  if (endpoint.kind == Endpoint::Kind::datagram) {
    // Datagrams that the call did not send; those that were received meanwhile are gone from the list already.
    for (auto it = datagrams_.begin(); it != datagrams_.end();) {
      it = it->send == send && it->index >= count ? forget(it) : std::next(it);
    }
    return;
  }
  Stream& stream = streams_[endpoint.out];
  const auto shorten = [&](Segment& segment) {
    // What was sent counts from the payload's beginning; some of it may have been received already.
    const uint64_t end = std::max(count, segment.offset);
    const uint64_t length = std::min(segment.length, end - segment.offset);
    stream.held -= segment.length - length;
    segment.length = length;
  };
  const auto flying =
      std::find_if(stream.in_flight.begin(), stream.in_flight.end(), [&](const Segment& s) { return s.send == send; });
  if (flying != stream.in_flight.end()) {
    shorten(*flying);
    if (flying->length > 0) stream.segments.push_back(std::move(*flying));
    stream.in_flight.erase(flying);
    return;
  }
  const auto queued =
      std::find_if(stream.segments.begin(), stream.segments.end(), [&](const Segment& s) { return s.send == send; });
  if (queued == stream.segments.end()) return;
  shorten(*queued);
  if (queued->length == 0) stream.segments.erase(queued);
}

void Channels::transfer(const Endpoint& endpoint, uint64_t length) {
  if (endpoint.kind != Endpoint::Kind::stream) return;
  Stream& stream = streams_[endpoint.out];
  if (stream.foreign) return;
  const uint64_t received = std::min(stream.owed, length);
  stream.owed -= received;
  if (length == received) return;
  // Adjacent ones are one: nobody may ever receive them here.
  if (stream.segments.empty() || stream.segments.back().send) stream.segments.push_back({});
  stream.segments.back().length += length - received;
}

void Channels::drain(const Endpoint& endpoint, uint64_t length) {
  if (endpoint.kind != Endpoint::Kind::stream) return;
  Stream& stream = streams_[endpoint.in];
  while (length > 0 && !(stream.segments.empty() && stream.in_flight.empty())) {
    if (stream.segments.empty()) {
      stream.segments.push_back(std::move(stream.in_flight.front()));
      stream.in_flight.erase(stream.in_flight.begin());
    }
    Segment& front = stream.segments.front();
    const uint64_t taken = std::min(front.length, length);
    if (front.send) stream.held -= taken;
    front.offset += taken;
    front.length -= taken;
    length -= taken;
    if (front.length == 0) stream.segments.pop_front();
  }
  stream.owed += length;
}

std::vector<MatchedPart> Channels::receive(const Endpoint& endpoint, std::span<const uint8_t> content, bool peek) {
  if (content.empty()) return {};
  if (endpoint.kind == Endpoint::Kind::datagram) return receive_datagram(content, peek);
  if (endpoint.kind == Endpoint::Kind::none) return {};
  Stream& stream = streams_[endpoint.in];
  if (stream.foreign) return {};
  if (peek) {
    Stream copy = stream;
    return receive_stream(copy, content, true);
  }
  return receive_stream(stream, content, false);
}

std::vector<MatchedPart> Channels::receive_stream(Stream& stream, std::span<const uint8_t> content, bool peek) {
  std::vector<MatchedPart> parts;
  bool known = true;
  const auto foreign = [&] {
    if (!peek) stream.give_up();
    return std::vector<MatchedPart>{};
  };
  while (!content.empty()) {
    const auto fits = [&](const Segment& s) {
      return !s.send || begins_alike(std::span(s.data).subspan(s.offset, s.length), content);
    };
    if (stream.segments.empty() || !fits(stream.segments.front())) {
      // Sends that overtook each other on their way into the kernel: take the one that fits.
      const size_t window = std::min(kReorderWindow, stream.segments.size());
      const auto last = stream.segments.begin() + static_cast<ptrdiff_t>(window);
      const auto later =
          std::find_if(stream.segments.begin(), last, [&](const Segment& s) { return s.send && fits(s); });
      if (later != last) {
        std::rotate(stream.segments.begin(), later, later + 1);
      } else {
        const auto flying = std::find_if(stream.in_flight.begin(), stream.in_flight.end(), fits);
        if (flying == stream.in_flight.end()) {
          if (!stream.segments.empty()) return foreign();
          // Nothing is known of these bytes: a transfer whose end is still to be seen, or somebody outside.
          stream.owed += content.size();
          return {};
        }
        stream.segments.push_front(std::move(*flying));
        stream.in_flight.erase(flying);
      }
    }
    Segment& front = stream.segments.front();
    const uint64_t taken = std::min<uint64_t>(front.length, content.size());
    if (front.send) {
      parts.push_back({front.send, front.offset, taken});
      stream.held -= taken;
    } else {
      known = false;
    }
    front.offset += taken;
    front.length -= taken;
    content = content.subspan(taken);
    if (front.length == 0) stream.segments.pop_front();
  }
  return known ? parts : std::vector<MatchedPart>{};
}

std::vector<MatchedPart> Channels::receive_datagram(std::span<const uint8_t> content, bool peek) {
  const uint64_t hash = XXH3_64bits(content.data(), content.size());
  const auto [first, last] = by_hash_.equal_range(hash);
  // Equal contents: the one sent first.
  auto best = last;
  for (auto it = first; it != last; ++it) {
    const Bytes& data = it->second->data;
    if (data.size() == content.size() && std::memcmp(data.data(), content.data(), data.size()) == 0) best = it;
  }
  if (best == last) return {};
  const auto datagram = best->second;
  std::vector<MatchedPart> parts{{datagram->send, datagram->offset, datagram->data.size()}};
  if (!peek) forget(datagram);
  return parts;
}

}  // namespace redrive
