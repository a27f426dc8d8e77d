// Pairing with made-up endpoints, and what the kernel says about this process's own descriptors.
#include "interceptors/channels.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "supervisor/record/tracees/tracee.h"
#include "tests/unit/unit_test.h"

namespace redrive::channels_test {

namespace {

using Kind = Endpoint::Kind;

constexpr uint64_t kMiB = uint64_t{1} << 20;

Bytes bytes(std::string_view text) { return Bytes(text.begin(), text.end()); }

// "3+0:5 4+2:1": the parts as sender's event + offset : length.
std::string text(const std::vector<MatchedPart>& parts) {
  std::string out;
  for (const auto& part : parts) {
    if (!out.empty()) out += " ";
    out +=
        std::to_string(part.send->event.event) + "+" + std::to_string(part.offset) + ":" + std::to_string(part.length);
  }
  return out;
}

// What a receive got; "" if it could not be matched.
std::string matched(Channels& channels, const Endpoint& endpoint, const Bytes& content, bool peek) {
  std::vector<MatchedPart> parts;
  return channels.receive(endpoint, content, peek, parts) ? text(parts) : "";
}

// The two ends of a stream; sends go from `a` to `b`. A send is named by the number of its event.
struct Wire {
  Channels channels;
  Endpoint a{Kind::stream, 1, 2};
  Endpoint b{Kind::stream, 2, 1};
  std::map<EventIndex, SendToken> sends;

  void begin(EventIndex event, std::string_view payload) { begin(event, bytes(payload)); }
  void begin(EventIndex event, Bytes payload) {
    const std::array<uint64_t, 1> one{payload.size()};
    begin(event, std::move(payload), one);
  }
  void begin(EventIndex event, Bytes payload, std::span<const uint64_t> datagrams) {
    sends[event] = std::make_shared<SendInfo>(SendInfo{{1, event}, {}});
    channels.begin_send(a, sends[event], std::move(payload), datagrams);
  }
  void end(EventIndex event, int64_t sent) { channels.end_send(a, sends.at(event), sent); }
  void send(EventIndex event, std::string_view payload) {
    begin(event, payload);
    end(event, static_cast<int64_t>(payload.size()));
  }
  std::string receive(std::string_view content, bool peek = false) {
    return matched(channels, b, bytes(content), peek);
  }
};

// An endpoint that sends datagrams and receives them, because all datagram sockets share one pool.
struct Datagrams : Wire {
  Datagrams() { a = b = Endpoint{Kind::datagram, 1, 0}; }
  void send(EventIndex event, std::string_view payload) {
    begin(event, payload);
    end(event, 1);
  }
};

}  // namespace

TEST_CASE("a stream: what is received is what was sent, in any pieces") {
  Wire wire;
  wire.send(1, "hello ");
  wire.send(2, "world");
  CHECK_EQ(wire.receive("he"), "1+0:2");
  CHECK_EQ(wire.receive("llo wor"), "1+2:4 2+0:3");
  CHECK_EQ(wire.receive("ld"), "2+3:2");
  CHECK_EQ(wire.receive("more"), "");
  CHECK_EQ(wire.receive(""), "");
}

TEST_CASE("a stream: the directions are apart") {
  Wire wire;
  wire.send(1, "to b");
  const auto reply = std::make_shared<SendInfo>(SendInfo{{2, 7}, {}});
  wire.channels.begin_send(wire.b, reply, bytes("to a"), {});
  wire.channels.end_send(wire.b, reply, 4);
  CHECK_EQ(matched(wire.channels, wire.a, bytes("to a"), false), "7+0:4");
  CHECK_EQ(wire.receive("to b"), "1+0:4");
}

TEST_CASE("a stream: a send that is still in the kernel can be received") {
  Wire wire;
  wire.begin(1, "abcdef");
  CHECK_EQ(wire.receive("abc"), "1+0:3");
  CHECK_EQ(wire.receive("d"), "1+3:1");
  wire.end(1, 5);  // the last byte did not go
  wire.send(2, "xyz");
  CHECK_EQ(wire.receive("exyz"), "1+4:1 2+0:3");
}

TEST_CASE("a stream: a short write sends less, a failed one nothing") {
  Wire wire;
  wire.begin(1, "abcdef");
  wire.end(1, 2);
  wire.begin(2, "failed");
  wire.end(2, -EAGAIN);
  wire.begin(3, "none");
  wire.end(3, 0);
  wire.send(4, "z");
  CHECK_EQ(wire.receive("abz"), "1+0:2 4+0:1");
}

TEST_CASE("a stream: an empty write sends to no receiver") {
  Wire wire;
  wire.begin(1, "");
  wire.begin(2, "data");
  CHECK_EQ(wire.receive("data"), "2+0:4");
  wire.end(1, 0);
  wire.end(2, 4);
}

TEST_CASE("a stream: writers overtake each other") {
  Wire wire;
  wire.begin(1, "first");
  wire.begin(2, "second");
  SUBCASE("and are received in the kernel's order before either call returns") {
    CHECK_EQ(wire.receive("secondfi"), "2+0:6 1+0:2");
    CHECK_EQ(wire.receive("rst"), "1+2:3");
    wire.end(1, 5);
    wire.end(2, 6);
  }
  SUBCASE("and return in the other order than they went") {
    wire.end(1, 5);
    wire.end(2, 6);
    CHECK_EQ(wire.receive("second"), "2+0:6");
    CHECK_EQ(wire.receive("first"), "1+0:5");
  }
  SUBCASE("while one is half received") {
    CHECK_EQ(wire.receive("fir"), "1+0:3");
    CHECK_EQ(wire.receive("secondst"), "2+0:6 1+3:2");
    wire.end(2, 6);
    wire.end(1, 5);
  }
  wire.send(3, "after");
  CHECK_EQ(wire.receive("after"), "3+0:5");
}

TEST_CASE("a stream: readers are seen in another order than that in which they read") {
  bool end_is_last = true;
  SUBCASE("and the end is last") {}
  SUBCASE("and the end is before the beginning") { end_is_last = false; }
  for (const std::string_view payload : {"abcdef", "abcdefgh"}) {  // of the longer one, only a part is sent
    for (const bool returned : {false, true}) {
      Wire wire;
      wire.begin(1, payload);
      if (returned) wire.end(1, 6);
      CHECK_EQ(wire.receive("cd", true), "1+2:2");
      CHECK_EQ(wire.receive("cd"), "1+2:2");
      if (!end_is_last) CHECK_EQ(wire.receive("ef"), "1+4:2");
      CHECK_EQ(wire.receive("ab"), "1+0:2");
      if (!returned) wire.end(1, 6);
      wire.send(2, "gh");
      CHECK_EQ(wire.receive(end_is_last ? "efgh" : "gh"), end_is_last ? "1+4:2 2+0:2" : "2+0:2");
      wire.send(3, "after");
      CHECK_EQ(wire.receive("after"), "3+0:5");
    }
  }
}

TEST_CASE("a stream: a reader that is seen too early has read across the end of a send") {
  Wire wire;
  wire.send(1, "abcd");
  wire.send(2, "efgh");
  CHECK_EQ(wire.receive("def"), "1+3:1 2+0:2");
  CHECK_EQ(wire.receive("abc"), "1+0:3");
  CHECK_EQ(wire.receive("gh"), "2+2:2");
}

TEST_CASE("a stream: a peek leaves the bytes") {
  Wire wire;
  wire.send(1, "abc");
  wire.begin(2, "def");
  CHECK_EQ(wire.receive("ab", true), "1+0:2");
  CHECK_EQ(wire.receive("abcd", true), "1+0:3 2+0:1");
  CHECK_EQ(wire.receive("unlike", true), "");  // nor does it spoil the stream
  CHECK_EQ(wire.receive("abcdef"), "1+0:3 2+0:3");
  wire.end(2, 3);
}

TEST_CASE("a stream: after bytes of an unknown writer, all that follows is input") {
  Wire wire;
  wire.send(1, "mine");
  SUBCASE("in front") { CHECK_EQ(wire.receive("theirs"), ""); }
  SUBCASE("behind") {
    wire.send(2, "also");
    CHECK_EQ(wire.receive("minetheirs"), "");
  }
  wire.send(3, "later");
  CHECK_EQ(wire.receive("later"), "");
  CHECK_EQ(wire.receive("later", true), "");
}

TEST_CASE("a stream: bytes of an unknown writer come before those of a send") {
  Wire wire;
  CHECK_EQ(wire.receive("from outside"), "");
  wire.send(1, "inside");
  CHECK_EQ(wire.receive("inside"), "1+0:6");
}

TEST_CASE("a stream: what is transferred unseen is input, what is around it is not") {
  Wire wire;
  wire.send(1, "head");
  wire.channels.transfer(wire.a, 4);
  wire.send(2, "tail");
  SUBCASE("received apart") {
    CHECK_EQ(wire.receive("head"), "1+0:4");
    CHECK_EQ(wire.receive("fi"), "");
    CHECK_EQ(wire.receive("le"), "");
    CHECK_EQ(wire.receive("tail"), "2+0:4");
  }
  SUBCASE("received together") {
    CHECK_EQ(wire.receive("headfi"), "");
    CHECK_EQ(wire.receive("leta"), "");
    CHECK_EQ(wire.receive("il"), "2+2:2");
  }
}

TEST_CASE("a stream: a transfer may be received before it is seen to end") {
  Wire wire;
  CHECK_EQ(wire.receive("fil"), "");
  wire.channels.transfer(wire.a, 4);
  wire.send(1, "tail");
  CHECK_EQ(wire.receive("e"), "");
  CHECK_EQ(wire.receive("tail"), "1+0:4");
}

TEST_CASE("a stream: what drains away unseen is not received") {
  Wire wire;
  wire.send(1, "abc");
  wire.send(2, "def");
  wire.channels.drain(wire.b, 4);
  CHECK_EQ(wire.receive("ef"), "2+1:2");
  wire.channels.drain(wire.b, 2);  // seen before the transfer that brought the bytes
  wire.channels.transfer(wire.a, 2);
  wire.send(3, "ghi");
  CHECK_EQ(wire.receive("ghi"), "3+0:3");
}

TEST_CASE("a stream: bytes of a send that is still in the kernel drain away") {
  Wire wire;
  wire.begin(1, "abc");
  wire.channels.drain(wire.b, 2);
  wire.end(1, 3);
  wire.send(2, "abd");
  CHECK_EQ(wire.receive("cabd"), "1+2:1 2+0:3");
}

TEST_CASE("a stream: it holds a limited number of bytes") {
  Wire wire;
  wire.begin(1, Bytes(33 * kMiB, 'x'));
  wire.end(1, 33 * kMiB);
  SUBCASE("those received make room") {
    wire.channels.drain(wire.b, 33 * kMiB);
    wire.begin(2, Bytes(33 * kMiB, 'y'));
    CHECK_EQ(wire.receive("yy"), "2+0:2");
  }
  SUBCASE("those that did not go make room") {
    wire.begin(2, Bytes(30 * kMiB, 'y'));
    wire.end(2, -EAGAIN);
    wire.begin(3, Bytes(30 * kMiB, 'z'));
    wire.end(3, 1);
    wire.begin(4, Bytes(30 * kMiB, 'u'));
    CHECK_EQ(wire.receive("xx"), "1+0:2");
  }
  SUBCASE("more is given up for good") {
    wire.begin(2, Bytes(33 * kMiB, 'y'));
    wire.end(2, 33 * kMiB);
    wire.send(3, "small");
    CHECK_EQ(wire.receive("xx"), "");
    CHECK_EQ(wire.receive("small"), "");
  }
}

TEST_CASE("all streams together hold a limited number of bytes: those that hold most become input") {
  Channels channels;
  const auto end = [](uint64_t stream) { return Endpoint{Kind::stream, stream, stream}; };
  const auto send = [&](uint64_t stream, Bytes payload) {
    const auto token = std::make_shared<SendInfo>(SendInfo{{1, stream}, {}});
    const auto size = static_cast<int64_t>(payload.size());
    channels.begin_send(end(stream), token, std::move(payload), {});
    channels.end_send(end(stream), token, size);
  };
  const auto receive = [&](uint64_t stream, std::string_view content) {
    return matched(channels, end(stream), bytes(content), false);
  };
  send(100, bytes("small"));
  for (uint64_t stream = 1; stream <= 4; ++stream) send(stream, Bytes((50 + stream) * kMiB, 'x'));
  CHECK_EQ(receive(4, "x"), "4+0:1");
  send(5, Bytes(50 * kMiB, 'x'));
  CHECK_EQ(receive(4, "x"), "");
  CHECK_EQ(receive(3, "x"), "");
  CHECK_EQ(receive(2, "x"), "");
  CHECK_EQ(receive(1, "x"), "1+0:1");
  CHECK_EQ(receive(5, "x"), "5+0:1");
  CHECK_EQ(receive(100, "small"), "100+0:5");
  // There is room again; streams that were given up stay so.
  send(6, Bytes(60 * kMiB, 'x'));
  send(7, Bytes(60 * kMiB, 'x'));
  send(4, bytes("later"));
  CHECK_EQ(receive(6, "x"), "6+0:1");
  CHECK_EQ(receive(4, "later"), "");
}

TEST_CASE("sends of a few bytes are not free") {
  Wire wire;
  wire.send(0, "0");
  for (EventIndex event = 1; event <= kMiB; ++event) wire.send(event, "x");
  CHECK_EQ(wire.receive("0"), "");
}

TEST_CASE("a peek costs what it looks at, not what is queued") {
  Wire wire;
  for (EventIndex event = 1; event <= 100'000; ++event) wire.send(event, "0123456789");
  const std::clock_t started = std::clock();
  for (int i = 0; i < 10'000; ++i) CHECK_EQ(wire.receive("01234567890123", true), "1+0:10 2+0:4");
  CHECK(std::clock() - started < 2 * CLOCKS_PER_SEC);
}

TEST_CASE("datagrams that are never received do not slow those that follow") {
  Datagrams net;
  const std::clock_t started = std::clock();
  for (EventIndex event = 1; event <= 200'000; ++event) net.send(event, "unheard");
  for (EventIndex event = 1; event <= 200'000; ++event) net.begin(event, std::to_string(event)), net.end(event, -1);
  CHECK(std::clock() - started < 4 * CLOCKS_PER_SEC);
  CHECK_EQ(net.receive("200000"), "");
  CHECK_FALSE(net.receive("unheard").empty());
}

TEST_CASE("datagrams are matched whole, in any order") {
  Datagrams net;
  net.send(1, "one");
  net.send(2, "two");
  CHECK_EQ(net.receive("two"), "2+0:3");
  CHECK_EQ(net.receive("on"), "");  // cut short by the receiver
  CHECK_EQ(net.receive("strange"), "");
  CHECK_EQ(net.receive("one", true), "1+0:3");
  CHECK_EQ(net.receive("one"), "1+0:3");
  CHECK_EQ(net.receive("one"), "");
}

TEST_CASE("of equal datagrams the first sent is received first") {
  Datagrams net;
  for (EventIndex event = 1; event <= 100; ++event) net.send(event, "ping");
  for (EventIndex event = 1; event <= 100; ++event) {
    CHECK_EQ(net.receive("ping"), std::to_string(event) + "+0:4");
  }
  CHECK_EQ(net.receive("ping"), "");
}

TEST_CASE("several datagrams of one call") {
  Datagrams net;
  const std::array<uint64_t, 4> lengths{3, 0, 4, 5};
  net.begin(1, bytes("onefourfives"), lengths);
  SUBCASE("all go") {
    net.end(1, 4);
    CHECK_EQ(net.receive("fives"), "1+7:5");
  }
  SUBCASE("the last does not") {
    net.end(1, 3);
    CHECK_EQ(net.receive("fives"), "");
  }
  SUBCASE("one is received before the call returns") {
    CHECK_EQ(net.receive("four"), "1+3:4");
    net.end(1, 3);
    CHECK_EQ(net.receive("four"), "");
    CHECK_EQ(net.receive("fives"), "");
    CHECK_EQ(net.receive("one"), "1+0:3");
    return;
  }
  SUBCASE("none goes") {
    net.end(1, -EAGAIN);
    CHECK_EQ(net.receive("one"), "");
    CHECK_EQ(net.receive("four"), "");
    return;
  }
  CHECK_EQ(net.receive("four"), "1+3:4");
  CHECK_EQ(net.receive("one"), "1+0:3");
}

TEST_CASE("the oldest datagrams make room for new ones") {
  Datagrams net;
  for (EventIndex event = 1; event <= 9; ++event) {
    net.begin(event, Bytes(8 * kMiB, static_cast<uint8_t>(event)));
    net.end(event, 1);
  }
  const auto received = [&](uint8_t event) { return matched(net.channels, net.b, Bytes(8 * kMiB, event), false); };
  const std::string whole = "+0:" + std::to_string(8 * kMiB);
  CHECK_EQ(received(1), "");
  CHECK_EQ(received(2), "");  // nine times eight is more than 64, and the overhead adds to it
  CHECK_EQ(received(3), "3" + whole);
  CHECK_EQ(received(9), "9" + whole);
}

namespace {

// This process, treated as a recorded one.
struct Self {
  Channels channels;
  Fd pidfd{static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))};

  std::optional<Endpoint> ask(int fd) { return channels.resolve(pidfd.get(), fd); }
  std::optional<Endpoint> ask(const Fd& fd) { return ask(fd.get()); }
};

struct Pair {
  Fd a, b;
};

Pair socket_pair(int type) {
  int fds[2];
  REQUIRE_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

Pair pipe_pair() {
  int fds[2];
  REQUIRE_EQ(pipe2(fds, O_CLOEXEC), 0);
  return {Fd(fds[1]), Fd(fds[0])};
}

// A loopback address of one family, or the name of an abstract unix socket.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  static SocketAddress loopback(int family) {
    SocketAddress out;
    out.storage.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(out.storage).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      out.size = sizeof(sockaddr_in);
    } else if (family == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(out.storage).sin6_addr = in6addr_loopback;
      out.size = sizeof(sockaddr_in6);
    } else {
      out.size = sizeof(sa_family_t);  // autobind, unix(7)
    }
    return out;
  }
  static SocketAddress of(const Fd& fd) {
    SocketAddress out;
    REQUIRE_EQ(getsockname(fd.get(), out.get(), &out.size), 0);
    return out;
  }
};

Fd new_socket(int family, int type) { return Fd(socket(family, type | SOCK_CLOEXEC, 0)); }

// Empty if the host has no such address.
Fd listener(SocketAddress address) {
  Fd fd = new_socket(address.storage.ss_family, SOCK_STREAM);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!fd || bind(fd.get(), address.get(), address.size) != 0 || listen(fd.get(), 8) != 0) return {};
  return fd;
}

// `a` is the client.
Pair connected(const Fd& listening, SocketAddress to, SocketAddress* from = nullptr) {
  Pair pair{new_socket(to.storage.ss_family, SOCK_STREAM), {}};
  const int on = 1;
  setsockopt(pair.a.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (from) REQUIRE_EQ(bind(pair.a.get(), from->get(), from->size), 0);
  REQUIRE_EQ(connect(pair.a.get(), to.get(), to.size), 0);
  pair.b = Fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(pair.b);
  return pair;
}

// Closes at once, so that the addresses can be used again.
void reset(Pair& pair) {
  const linger now{1, 0};
  for (Fd* fd : {&pair.a, &pair.b}) {
    setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    Fd closed = std::move(*fd);
  }
}

// Both ends must see one channel in each direction, and real bytes must be matched.
void check_stream(Self& self, const Pair& pair, const std::string& kind, bool two_way) {
  CAPTURE(kind);
  const auto a = self.ask(pair.a);
  const auto b = self.ask(pair.b);
  REQUIRE(a);
  REQUIRE(b);
  CHECK(a->kind == Kind::stream);
  CHECK(b->kind == Kind::stream);
  CHECK_EQ(a->out, b->in);
  CHECK_EQ(a->in, b->out);
  CHECK_EQ(a->out != a->in, two_way);
  const auto made = self.channels.take_new();
  REQUIRE_EQ(made.size(), two_way ? 2 : 1);
  for (const auto& channel : made) {
    CHECK_EQ(channel.kind, kind);
    CHECK_FALSE(channel.name.empty());
  }
  const Bytes payload = bytes("through the kernel");
  const auto token = std::make_shared<SendInfo>(SendInfo{{1, 5}, {}});
  self.channels.begin_send(*a, token, payload, {});
  self.channels.end_send(*a, token, write(pair.a.get(), payload.data(), payload.size()));
  Bytes got(7);
  REQUIRE_EQ(read(pair.b.get(), got.data(), got.size()), 7);
  CHECK_EQ(matched(self.channels, *b, got, false), "5+0:7");
  // A duplicate has the same endpoint.
  const Fd duplicate(fcntl(pair.a.get(), F_DUPFD_CLOEXEC, 0));
  const auto again = self.ask(duplicate);
  REQUIRE(again);
  CHECK_EQ(again->out, a->out);
  CHECK(self.channels.take_new().empty());
}

}  // namespace

TEST_CASE("both ends of a stream are told from descriptors") {
  Self self;
  check_stream(self, pipe_pair(), "pipe", false);
  check_stream(self, pipe_pair(), "pipe", false);
  check_stream(self, socket_pair(SOCK_STREAM), "unix", true);
  for (const int family : {AF_UNIX, AF_INET, AF_INET6}) {
    const Fd listening = listener(SocketAddress::loopback(family));
    if (!listening) {
      MESSAGE("SKIP: no address of family " << family);
      continue;
    }
    check_stream(self, connected(listening, SocketAddress::of(listening)), family == AF_UNIX ? "unix" : "tcp", true);
  }
}

TEST_CASE("memory does not grow with the number of connections that were closed") {
  Self self;
  const auto send = [&](const Endpoint& from, EventIndex event) {
    const auto token = std::make_shared<SendInfo>(SendInfo{{1, event}, {}});
    self.channels.begin_send(from, token, bytes("question"), {});
    self.channels.end_send(from, token, 8);
  };
  const auto receive = [&](const Pair& pair, std::string_view content) {
    return matched(self.channels, *self.ask(pair.b), bytes(content), false);
  };
  const Pair lasting = socket_pair(SOCK_STREAM);
  const auto held = self.ask(lasting.a);
  send(*held, 1);
  size_t early = 0;
  Pair recent;
  for (EventIndex event = 2; event <= 100'000; ++event) {
    Pair pair = socket_pair(SOCK_STREAM);
    send(*self.ask(pair.a), event);
    if (event % 2) CHECK_EQ(receive(pair, "question"), std::to_string(event) + "+0:8");
    self.channels.take_new();
    if (event == 20'000) early = mallinfo2().uordblks;
    if (event == 99'000) recent = std::move(pair);
  }
  CHECK(mallinfo2().uordblks < early + 16 * kMiB);
  CHECK_EQ(receive(lasting, "question"), "1+0:8");
  // This end has not been looked up before.
  CHECK_EQ(receive(recent, "question"), "99000+0:8");
}

TEST_CASE("pipes that have come and gone leave little, however many and whatever lasts beside them") {
  Channels channels;
  std::vector<Endpoint> lasting;
  for (uint64_t inode = 1; inode <= 100; ++inode) lasting.push_back(channels.resolve_pipe(1, inode));
  const auto use = [&](uint64_t inode) {
    const Endpoint pipe = channels.resolve_pipe(2, inode);
    const auto token = std::make_shared<SendInfo>(SendInfo{{1, inode}, {}});
    channels.begin_send(pipe, token, bytes("question"), {});
    channels.end_send(pipe, token, 8);
    CHECK_EQ(matched(channels, pipe, bytes("question"), false), std::to_string(inode) + "+0:8");
    channels.take_new();
  };
  uint64_t inode = 1;
  for (; inode < 600; ++inode) use(inode);
  const size_t early = mallinfo2().uordblks;
  size_t most = 0;
  for (; inode < 200'000; ++inode) {
    use(inode);
    if (inode % 64 == 0) most = std::max<size_t>(most, mallinfo2().uordblks);
  }
  CHECK(most < early + kMiB);
}

// A unix stream: what listens, and what has connected to it.
std::pair<Fd, Fd> not_accepted() {
  Fd listening = listener(SocketAddress::loopback(AF_UNIX));
  SocketAddress to = SocketAddress::of(listening);
  Fd client = new_socket(AF_UNIX, SOCK_STREAM);
  REQUIRE_EQ(connect(client.get(), to.get(), to.size), 0);
  return {std::move(listening), std::move(client)};
}

TEST_CASE("a unix stream can be sent into before it is accepted") {
  const auto [listening, client] = not_accepted();
  Self self;
  const auto early = self.ask(client);
  REQUIRE(early);
  CHECK_FALSE(early->settled());
  CHECK_EQ(matched(self.channels, *early, bytes("from nobody"), false), "");
  const auto token = std::make_shared<SendInfo>(SendInfo{{1, 5}, {}});
  self.channels.begin_send(*early, token, bytes("early"), {});
  self.channels.end_send(*early, token, 5);
  const Fd accepted(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto server = self.ask(accepted), now = self.ask(client);
  REQUIRE(server);
  REQUIRE(now);
  CHECK(now->settled());
  CHECK_EQ(now->out, early->out);
  CHECK_EQ(now->in, server->out);
  CHECK_EQ(matched(self.channels, *server, bytes("early"), false), "5+0:5");
}

TEST_CASE("the other end of a unix stream is remembered, whichever end was looked at") {
  const auto [listening, client] = not_accepted();
  Self self;
  Fd accepted(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto server = self.ask(accepted);
  REQUIRE(server);
  accepted = Fd();  // now the kernel does not know it any more
  const auto connected = self.ask(client);
  REQUIRE(connected);
  CHECK_EQ(connected->in, server->out);
  CHECK_EQ(connected->out, server->in);

  Pair pair = socket_pair(SOCK_STREAM);
  self.channels.note_pair(self.pidfd.get(), pair.a.get(), pair.b.get());
  const auto one = self.ask(pair.a);
  pair.a = Fd();
  const auto other = self.ask(pair.b);
  REQUIRE(one);
  REQUIRE(other);
  CHECK_EQ(one->in, other->out);
  CHECK_EQ(one->out, other->in);
  Pair unused = socket_pair(SOCK_STREAM);
  self.channels.note_pair(self.pidfd.get(), unused.a.get(), unused.b.get());
  unused.b = Fd();
  CHECK(self.ask(unused.a)->settled());
}

TEST_CASE("a fifo is told from a pipe") {
  char directory[] = "/tmp/redrive-fifo-XXXXXX";
  REQUIRE(mkdtemp(directory));
  const std::string path = std::string(directory) + "/fifo";
  Pair pair;
  if (mkfifo(path.c_str(), 0600) == 0) {
    pair.b = Fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    pair.a = Fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  unlink(path.c_str());
  rmdir(directory);
  REQUIRE(pair.a);
  Self self;
  check_stream(self, pair, "fifo", false);
}

TEST_CASE("a v6 socket and its v4 client agree") {
  SocketAddress any = SocketAddress::loopback(AF_INET6);
  reinterpret_cast<sockaddr_in6&>(any.storage).sin6_addr = in6addr_any;
  const Fd listening = listener(any);
  if (!listening) {
    MESSAGE("SKIP: no IPv6");
    return;
  }
  SocketAddress to = SocketAddress::loopback(AF_INET);
  reinterpret_cast<sockaddr_in&>(to.storage).sin_port =
      reinterpret_cast<const sockaddr_in6&>(SocketAddress::of(listening).storage).sin6_port;
  Self self;
  check_stream(self, connected(listening, to), "tcp", true);
}

TEST_CASE("a later connection between the same addresses does not inherit what was left unread") {
  for (const int family : {AF_INET, AF_INET6}) {
    const Fd listening = listener(SocketAddress::loopback(family));
    if (!listening) {
      MESSAGE("SKIP: no address of family " << family);
      continue;
    }
    Self self;
    Pair pair = connected(listening, SocketAddress::of(listening));
    SocketAddress from = SocketAddress::of(pair.a);
    const auto first = self.ask(pair.a);
    REQUIRE(first);
    const auto unread = std::make_shared<SendInfo>(SendInfo{{1, 1}, {}});
    self.channels.begin_send(*first, unread, bytes("same"), {});
    self.channels.end_send(*first, unread, 4);
    reset(pair);
    pair = connected(listening, SocketAddress::of(listening), &from);
    const auto second = self.ask(pair.a);
    const auto server = self.ask(pair.b);
    REQUIRE(second);
    REQUIRE(server);
    CHECK_EQ(second->out, first->out);
    CHECK_EQ(matched(self.channels, *server, bytes("same"), true), "");
    const auto fresh = std::make_shared<SendInfo>(SendInfo{{1, 2}, {}});
    self.channels.begin_send(*second, fresh, bytes("same"), {});
    CHECK(self.ask(pair.a)->out == second->out);  // asked again: still the same connection
    CHECK_EQ(matched(self.channels, *server, bytes("same"), false), "2+0:4");
    reset(pair);
  }
}

TEST_CASE("datagram sockets are told from descriptors") {
  Self self;
  const auto check = [&](const Fd& fd, const std::string& kind) {
    CAPTURE(kind);
    const auto found = self.ask(fd);
    REQUIRE(found);
    CHECK(found->kind == Kind::datagram);
    const auto made = self.channels.take_new();
    REQUIRE_EQ(made.size(), 1);
    CHECK_EQ(made[0].kind, kind);
    CHECK_EQ(made[0].id, found->out);
  };
  check(new_socket(AF_INET, SOCK_DGRAM), "udp");
  check(new_socket(AF_UNIX, SOCK_DGRAM), "unix-dgram");
  const Pair dgram = socket_pair(SOCK_DGRAM), seqpacket = socket_pair(SOCK_SEQPACKET);
  check(dgram.a, "unix-dgram");
  check(dgram.b, "unix-dgram");
  check(seqpacket.a, "unix-seqpacket");
}

TEST_CASE("files and foreign objects are no endpoints") {
  Self self;
  const Fd others[] = {Fd(open("/dev/null", O_RDWR | O_CLOEXEC)), Fd(memfd_create("test", MFD_CLOEXEC)),
                       Fd(eventfd(0, EFD_CLOEXEC)), new_socket(AF_NETLINK, SOCK_RAW)};
  for (const auto& fd : others) {
    REQUIRE(fd);
    const auto found = self.ask(fd);
    REQUIRE(found);
    CHECK(found->kind == Kind::none);
  }
  CHECK(self.channels.take_new().empty());
}

TEST_CASE("sockets that are not connected cannot be told yet") {
  Self self;
  CHECK_FALSE(self.ask(-1));
  for (const int family : {AF_UNIX, AF_INET}) {
    CAPTURE(family);
    const Fd listening = listener(SocketAddress::loopback(family));
    const Fd fresh = new_socket(family, SOCK_STREAM);
    REQUIRE(listening);
    CHECK_FALSE(self.ask(listening));
    CHECK_FALSE(self.ask(fresh));
    SocketAddress to = SocketAddress::of(listening);
    REQUIRE_EQ(connect(fresh.get(), to.get(), to.size), 0);
    const Fd accepted(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto client = self.ask(fresh), server = self.ask(accepted);
    REQUIRE(client);
    REQUIRE(server);
    CHECK_EQ(client->out, server->in);
  }
}

}  // namespace redrive::channels_test
