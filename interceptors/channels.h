// Pairing of endpoints: finds out which send's bytes a receive has got.
//
// The kernel is asked once what is behind a descriptor (pidfd_getfd(2), sock_diag(7)); the answer is remembered until
// the descriptor is closed or replaced. A pipe is its inode, a TCP connection its two addresses and network namespace,
// a unix stream the inode of its sender. If a unix stream is not accepted yet, there is no inode at its other end:
// sends go into its channel, and the descriptor is examined again later.
//
// Streams are matched by byte offset per direction, datagrams by content; both are confirmed by comparing the bytes.
// Sends may overtake one another on their way into the kernel, so the next few are searched. So may receivers that
// share a stream on their way out of it, so a receive may begin in the middle of a send. What cannot be confirmed is
// not a message: the receive is then input and its payload is logged, which is always correct.
//
// What is kept is limited, whatever the program does. A stream with more unreceived bytes than its limit is input for
// good; if all streams together have too many, so are those with the most, until half is free. If there are too many
// datagrams, the oldest are forgotten. Nothing reports that a channel has ended at both ends. But each remembered
// descriptor holds its channels, and one that nobody has held for some time is forgotten with its bytes. If a process
// then receives from it, by a descriptor that it got unnoticed, it receives input.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"

namespace redrive {

// What the owner of the channels knows of a send; opaque here.
struct SendInfo;
using SendToken = std::shared_ptr<SendInfo>;

// A channel's number. The channel is not forgotten while anybody but Channels holds it.
using ChannelLease = std::shared_ptr<const uint64_t>;

struct Endpoint {
  enum class Kind : uint8_t { none, stream, datagram };
  Kind kind = Kind::none;
  uint64_t out = 0;  // the channel that sends go into
  uint64_t in = 0;  // the channel that receives come from; 0: a datagram socket, or a stream whose other end is unknown
  std::array<ChannelLease, 2> leases{};

  // Whether resolve() will always give the same answer. It does not for a unix stream that is not accepted yet.
  bool settled() const { return kind != Kind::stream || in != 0; }
};

// Endpoints by descriptor. Those of very high numbers are not remembered.
class Endpoints {
 public:
  static bool remembers(int fd) { return fd >= 0 && fd < kMost; }
  // Null if it is not known. Valid until it is forgotten or set again.
  const Endpoint* find(int fd) const {
    const auto place = static_cast<size_t>(fd);
    return place < by_fd_.size() ? by_fd_[place].get() : nullptr;
  }
  void set(int fd, Endpoint endpoint) {
    if (!remembers(fd)) return;
    const auto place = static_cast<size_t>(fd);
    if (place >= by_fd_.size()) by_fd_.resize(place + 1);
    by_fd_[place] = std::make_shared<const Endpoint>(std::move(endpoint));
  }
  // Forgets those from `first` to `last`; calls forgotten(fd) for each.
  template <typename Forgotten>
  void forget(uint32_t first, uint32_t last, const Forgotten& forgotten) {
    const size_t end = std::min<size_t>(size_t{last} + 1, by_fd_.size());
    for (size_t place = first; place < end; ++place) {
      if (!by_fd_[place]) continue;
      by_fd_[place].reset();
      forgotten(static_cast<int>(place));
    }
  }
  // Calls visit(fd) for each.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (size_t place = 0; place < by_fd_.size(); ++place) {
      if (by_fd_[place]) visit(static_cast<int>(place));
    }
  }

 private:
  static constexpr int kMost = 1 << 20;
  std::vector<std::shared_ptr<const Endpoint>> by_fd_;  // shared with copies of the table
};

// The endpoints behind a descriptor table, as far as they have been looked up. Shared by processes that share the table
// (CLONE_FILES).
struct FdCache {
  Endpoints known;
  bool in_several_memories = false;  // processes with separate address spaces share the table
};

struct MatchedPart {
  SendToken send;
  uint64_t offset = 0;  // bytes into that send's payload
  uint64_t length = 0;
};

struct ChannelInfo {
  uint64_t id = 0;
  std::string kind;
  std::string name;
};

class Channels {
 public:
  // A TCP connection as seen from one of its ends: the socket's inode, SO_NETNS_COOKIE, and its addresses.
  struct Connection {
    uint64_t inode = 0;
    uint64_t network = 0;
    sockaddr_storage local{}, peer{};
  };
  Endpoint resolve(const Connection& connection);
  // A pipe made by pipe(2), not a FIFO.
  Endpoint resolve_pipe(uint64_t device, uint64_t inode);

  // The endpoint behind `fd` of the process that `pidfd` refers to. Kind::none for files and foreign objects; nullopt
  // if it is not known yet (a socket that is not connected). The caller may remember it only if it is settled().
  std::optional<Endpoint> resolve(int pidfd, int fd);
  // These descriptors were made as two sockets that are connected to each other. The kernel need not be asked for that
  // later, which takes it longer the more sockets there are.
  void note_pair(int pidfd, int fd, int other);

  // A send is entered. Takes its whole payload; end_send() says how much of it went. `datagrams`: the lengths, if the
  // call sends several.
  void begin_send(const Endpoint& endpoint, SendToken send, Bytes payload, std::span<const uint64_t> datagrams);
  // `sent`: the number of bytes (streams) or of datagrams; negative or 0 if nothing was sent.
  void end_send(const Endpoint& endpoint, const SendToken& send, int64_t sent);
  // Bytes that the kernel moved into the channel without showing them (sendfile, splice).
  void transfer(const Endpoint& endpoint, uint64_t length);

  // The same at the other end: bytes that left the channel without being shown.
  void drain(const Endpoint& endpoint, uint64_t length);

  // Adds the parts that a receive got. False if it is not a message, or not an identifiable one. A peek leaves the
  // bytes in the channel.
  bool receive(const Endpoint& endpoint, std::span<const uint8_t> content, bool peek, std::vector<MatchedPart>& parts);

  // The channels made since the previous call.
  std::vector<ChannelInfo> take_new();
  // Those that may still be used.
  std::vector<ChannelInfo> open() const;

 private:
  struct Segment {
    SendToken send;       // null: the contents are not known
    uint64_t offset = 0;  // first byte of the payload still to be received
    uint64_t length = 0;  // bytes still to be received
    Bytes data;           // the send's payload, up to the last of these bytes
  };
  struct Stream {
    std::deque<Segment> segments;    // in the order in which they will be received
    std::vector<Segment> in_flight;  // their calls have been entered; their order is not known yet
    uint64_t owed = 0;               // bytes that were received before the end of the transfer that moved them was seen
    uint64_t sender_inode = 0;
    bool foreign = false;  // somebody outside the recording writes here too
    uint64_t held = 0;     // memory of the segments

    bool blank() const { return segments.empty() && in_flight.empty() && owed == 0 && !foreign; }
  };
  struct Datagram {
    uint64_t hash = 0;
    SendToken send;
    uint64_t offset = 0;  // in the call's payload
    Bytes data;
  };
  using DatagramNumber = uint64_t;  // in the order of sending
  struct Known {
    ChannelLease lease;
    ChannelInfo info;
    std::optional<uint64_t> idle_since;  // the last channel's number when it was first seen that nobody holds this one
  };

  Endpoint pipe_endpoint(uint64_t device, uint64_t inode, const char* kind);
  void note_sender(uint64_t channel, uint64_t inode);
  ChannelLease channel(const std::string& key, const char* kind, const std::string& name);
  void forget_channels();
  std::optional<Endpoint> resolve_socket(int fd, uint64_t inode);
  std::optional<uint64_t> unix_peer(uint64_t inode);
  std::optional<uint64_t> ask_unix_peer(uint64_t inode);
  void note_peers(uint64_t inode, uint64_t other);

  void hold(Stream& stream, const Segment& segment);
  void release(Stream& stream, const Segment& segment);
  void give_up(Stream& stream);
  void make_room();
  void cut_unsent(Stream& stream, Segment& segment, uint64_t sent);
  uint64_t consume(Stream& stream, uint64_t length);
  bool bring_forward(Stream& stream, size_t at, std::span<const uint8_t> content);
  bool receive_stream(Stream& stream, std::span<const uint8_t> content, bool peek, std::vector<MatchedPart>& parts);
  bool receive_datagram(std::span<const uint8_t> content, bool peek, std::vector<MatchedPart>& parts);
  void forget_datagram(DatagramNumber number);

  std::unordered_map<std::string, Known> known_;  // by the kernel's name for it
  uint64_t last_id_ = 0;
  uint64_t look_at_ = 0;  // the channel number at which those that nobody holds are looked for
  std::vector<ChannelInfo> new_;
  std::unordered_map<uint64_t, Stream> streams_;
  uint64_t held_ = 0;  // of all streams

  std::map<DatagramNumber, Datagram> datagrams_;
  std::set<std::pair<uint64_t, DatagramNumber>> by_hash_;
  std::unordered_map<const SendInfo*, DatagramNumber> first_of_call_;  // of calls that have not ended
  DatagramNumber next_datagram_ = 0;
  uint64_t datagram_bytes_ = 0;
  std::unordered_map<uint64_t, uint64_t> unix_peers_;  // inodes of the other ends, in both directions
  Fd diag_;
};

}  // namespace redrive
