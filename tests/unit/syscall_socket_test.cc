// Socket calls of the syscall table against the running kernel: see syscall_probe.h.
#include <arpa/inet.h>
#include <asm/unistd.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include "tests/unit/syscall_probe.h"

namespace redrive::syscall_socket_test {
namespace {

sockaddr_in loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
// A bound UDP socket, and one that is connected to it.
Pair make_udp() {
  Pair udp{Fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), Fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0))};
  sockaddr_in address = loopback();
  socklen_t length = sizeof address;
  REQUIRE(bind(udp.a.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(getsockname(udp.a.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  REQUIRE(connect(udp.b.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  return udp;
}
// A listener with a waiting connection, and the connecting end.
Pair make_listener() {
  Pair tcp{Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in address = loopback();
  socklen_t length = sizeof address;
  REQUIRE(bind(tcp.a.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(listen(tcp.a.get(), 1) == 0);
  REQUIRE(getsockname(tcp.a.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  REQUIRE(connect(tcp.b.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  return tcp;
}

TEST_CASE("addresses and options of sockets") {
  CHECK(with_buffer(__NR_pipe, {}, 0, 16).result == 0);
  CHECK(with_buffer(__NR_pipe2, call_args(0, O_CLOEXEC), 0, 16).result == 0);
  CHECK(with_buffer(__NR_socketpair, call_args(AF_UNIX, SOCK_STREAM, 0, 0), 3, 16).result == 0);
  Pair tcp, udp = make_udp();
  for (const int64_t number : {__NR_accept, __NR_accept4}) {
    auto accepted = probe(number, [&](Arena& arena) {
      tcp = make_listener();
      return call_args(tcp.a.get(), arena.bytes(64), arena.put<uint32_t>(64), 0);
    });
    CHECK(accepted.result >= 0);
    CHECK(accepted.writes(accepted.args[1], sizeof(sockaddr_in)));
  }
  for (const uint32_t room : {64u, 5u, 0u}) {
    const auto name = [&](int fd) {
      return [=](Arena& arena) { return call_args(fd, arena.bytes(64), arena.put(room)); };
    };
    CHECK(probe(__NR_getsockname, name(udp.b.get())).bytes_out(false) ==
          4 + std::min<size_t>(room, sizeof(sockaddr_in)));
    CHECK(probe(__NR_getpeername, name(udp.b.get())).result == 0);
    CHECK(probe(__NR_getpeername, name(udp.a.get())).out.empty());
  }
  Pair pair = make_sockets(SOCK_STREAM);
  sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, 1}, {BPF_RET | BPF_K, 0, 0, 2}};
  const sock_fprog filter{2, code};
  REQUIRE(setsockopt(udp.b.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
  const struct {
    int fd, level, option;
  } options[] = {{tcp.b.get(), SOL_SOCKET, SO_LINGER},       {udp.b.get(), SOL_SOCKET, SO_GET_FILTER},
                 {tcp.b.get(), SOL_SOCKET, SO_ERROR},        {tcp.b.get(), IPPROTO_TCP, TCP_INFO},
                 {pair.a.get(), SOL_SOCKET, SO_PEERCRED},    {tcp.b.get(), SOL_SOCKET, SO_RCVTIMEO},
                 {pair.a.get(), SOL_SOCKET, SO_PEERSEC},     {pair.a.get(), SOL_SOCKET, SO_PEERGROUPS},
                 {tcp.b.get(), IPPROTO_TCP, TCP_CONGESTION}, {-1, SOL_SOCKET, SO_ERROR}};
  for (const auto& option : options) {
    for (const uint32_t room : {512u, 3u}) {
      probe(__NR_getsockopt, [&](Arena& arena) {
        return call_args(option.fd, option.level, option.option, arena.bytes(512), arena.put(room));
      });
    }
  }
}

TEST_CASE("datagrams") {
  Pair udp;
  const auto send = [&](std::string_view text = kText) {
    REQUIRE(write(udp.b.get(), text.data(), text.size()) == std::ssize(text));
  };
  auto received = probe(__NR_recvfrom, [&](Arena& arena) {
    udp = make_udp();
    send();
    return call_args(udp.a.get(), arena.bytes(100), 100, 0, arena.bytes(64), arena.put<uint32_t>(64));
  });
  CHECK(received.bytes_out(true) == kText.size());
  auto truncated = probe(__NR_recvfrom, [&](Arena& arena) {
    udp = make_udp();
    send();
    return call_args(udp.a.get(), arena.bytes(100), 10, MSG_TRUNC, 0, 0);
  });
  CHECK(truncated.result == std::ssize(kText));
  CHECK(truncated.bytes_out(true) == 10);
  auto without_name = probe(__NR_recvfrom, [&](Arena& arena) {  // the kernel does not look at its length
    udp = make_udp();
    send();
    return call_args(udp.a.get(), arena.bytes(100), 100, 0, 0, arena.put<uint32_t>(64));
  });
  CHECK(without_name.bytes_out(false) == 0);
  auto sent = probe(__NR_sendto, [&](Arena& arena) {
    udp = make_udp();
    return call_args(udp.b.get(), arena.text(kText), kText.size(), 0, 0, 0);
  });
  CHECK(sent.bytes_in(true) == kText.size());
  auto nothing = probe(__NR_recvfrom, [&](Arena& arena) {
    udp = make_udp();
    return call_args(udp.a.get(), arena.bytes(100), 100, MSG_DONTWAIT, arena.bytes(64), arena.put<uint32_t>(64));
  });
  CHECK(nothing.result == -EAGAIN);
  CHECK(nothing.out.empty());
}

// A header with room for a name, `control` bytes of control data and the given buffers.
msghdr make_header(Arena& arena, std::initializer_list<size_t> sizes, size_t control, uint32_t name = 64) {
  msghdr header;
  std::memset(&header, 0xee, sizeof header);
  header.msg_name = name ? arena.bytes(name) : nullptr;
  header.msg_namelen = name;
  header.msg_iov = put_iovecs(arena, scatter(arena, sizes));
  header.msg_iovlen = sizes.size();
  header.msg_control = control ? arena.bytes(control) : nullptr;
  header.msg_controllen = control;
  return header;
}

// Sends kText with a descriptor and the sender's identity.
void send_rights(int socket) {
  int fds[3] = {0, 1, 2};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  iovec vector{const_cast<char*>(kText.data()), kText.size()};
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
  REQUIRE(sendmsg(socket, &header, 0) == std::ssize(kText));
}

TEST_CASE("recvmsg with control data") {
  Pair sockets;
  for (const size_t room : {0, 20, 32, 200}) {
    for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
      CAPTURE(room);
      CAPTURE(type);
      auto received = probe(__NR_recvmsg, [&](Arena& arena) {
        sockets = make_sockets(type);
        const int on = 1;
        setsockopt(sockets.a.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        setsockopt(sockets.a.get(), SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
        send_rights(sockets.b.get());
        return call_args(sockets.a.get(), arena.put(make_header(arena, {4, 0, 4, 200}, room)), MSG_CMSG_CLOEXEC);
      });
      CHECK(received.result == std::ssize(kText));
      CHECK(received.bytes_out(true) == kText.size());
      CHECK(received.bytes_in(false) == sizeof(msghdr) + 4 * sizeof(iovec));
    }
  }
}

TEST_CASE("recvmsg of a datagram longer than the buffers, and with a short name") {
  Pair udp;
  auto received = probe(__NR_recvmsg, [&](Arena& arena) {
    udp = make_udp();
    REQUIRE(write(udp.b.get(), kText.data(), kText.size()) == std::ssize(kText));
    return call_args(udp.a.get(), arena.put(make_header(arena, {4, 5}, 0, 6)), MSG_TRUNC);
  });
  CHECK(received.result == std::ssize(kText));
  CHECK(received.bytes_out(true) == 9);
  CHECK(received.bytes_out(false) == 6 + 4 + 8 + 4);
}

TEST_CASE("several datagrams in one call") {
  Pair udp;
  const std::string_view texts[] = {"one", "three", "seventeen"};
  const auto headers = [](Arena& arena) {
    std::array<mmsghdr, 5> made;
    for (mmsghdr& each : made) each = {make_header(arena, {4, 100}, 100), 0xdddddddd};
    return arena.put(made);
  };
  auto received = probe(__NR_recvmmsg, [&](Arena& arena) {
    udp = make_udp();
    const int on = 1;
    setsockopt(udp.a.get(), SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
    for (const auto text : texts) REQUIRE(write(udp.b.get(), text.data(), text.size()) == std::ssize(text));
    return call_args(udp.a.get(), headers(arena), 5, MSG_DONTWAIT, arena.put(timespec{1, 0}));
  });
  CHECK(received.result == 3);
  CHECK(received.datagrams == std::vector<uint64_t>{3, 5, 9});
  CHECK(received.bytes_out(true) == 17);

  auto sent = probe(__NR_sendmmsg, [&](Arena& arena) {
    udp = make_udp();
    std::array<mmsghdr, 3> made;
    for (mmsghdr& each : made) each = {make_header(arena, {4, 0, 10}, 0, 0), 0xdddddddd};
    for (mmsghdr& each : made) each.msg_hdr.msg_flags = 0;
    return call_args(udp.b.get(), arena.put(made), 3, 0);
  });
  CHECK(sent.result == 3);
  CHECK(sent.bytes_in(true) == 3 * 14);
  CHECK(sent.bytes_in(false) == 3 * (sizeof(msghdr) + 3 * sizeof(iovec)));
  CHECK(sent.bytes_out(false) == 3 * 4);
}

TEST_CASE("sendmsg reads its header, name, vectors, payload and control data") {
  Pair sockets;
  auto sent = probe(__NR_sendmsg, [&](Arena& arena) {
    sockets = make_sockets(SOCK_STREAM);
    return call_args(sockets.b.get(), arena.put(make_header(arena, {4, 9}, 0, 0)), 0);
  });
  CHECK(sent.result == 13);
  CHECK(sent.bytes_in(true) == 13);
  CHECK(sent.out.empty());
  auto written = probe(__NR_writev, [&](Arena& arena) {
    sockets = make_sockets(SOCK_STREAM);
    return call_args(sockets.b.get(), put_iovecs(arena, scatter(arena, {4, 0, 9})), 3);
  });
  CHECK(written.bytes_in(true) == 13);
}

}  // namespace
}  // namespace redrive::syscall_socket_test
