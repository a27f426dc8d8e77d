// What the recorder hands on of a packet socket's ring, and takes back: on a socket of this process, which sends to
// itself.
#include "supervisor/record/tracees/packet_ring.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/fd.h"
#include "tests/unit/unit_test.h"

namespace redrive::packet_ring_test {

namespace {

constexpr uint16_t kProtocol = 0x7266;
constexpr tpacket_req kRequest{4096, 1, 2048, 2};  // two frames

struct Socket {
  Socket() : fd(socket(AF_PACKET, SOCK_RAW, 0)) {
    if (!fd) return;
    const int version = TPACKET_V2;
    REQUIRE_EQ(setsockopt(fd.get(), SOL_PACKET, PACKET_VERSION, &version, sizeof version), 0);
    REQUIRE_EQ(setsockopt(fd.get(), SOL_PACKET, PACKET_RX_RING, &kRequest, sizeof kRequest), 0);
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(kProtocol);
    address.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    REQUIRE_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    auto opened = Memory::open(getpid());
    REQUIRE(opened);
    memory = std::move(*opened);
  }
  void send(uint8_t text) {
    uint8_t frame[64] = {};
    frame[12] = kProtocol >> 8, frame[13] = kProtocol & 0xff;
    frame[ETH_HLEN] = text;
    REQUIRE_EQ(::send(fd.get(), frame, sizeof frame, 0), sizeof frame);
  }

  Fd fd;
  sockaddr_ll address{};
  Memory memory;
};

// What the program has in the ring's place.
struct Shown {
  alignas(16) uint8_t bytes[4096] = {};
  tpacket2_hdr& frame(size_t number) { return *reinterpret_cast<tpacket2_hdr*>(bytes + number * 2048); }
  uint8_t text(size_t number) { return bytes[number * 2048 + frame(number).tp_mac + ETH_HLEN]; }
};

}  // namespace

TEST_CASE("frames of a packet ring are shown once, in their order, and come again when they were given back") {
  Socket socket;
  if (!socket.fd) {
    MESSAGE("packet sockets need CAP_NET_RAW");
    return;
  }
  Shown shown;
  auto ring = PacketRing::map(socket.fd.get(), kRequest, reinterpret_cast<Address>(&shown));
  REQUIRE(ring);
  std::vector<MemoryWrite> writes;
  ring->show(socket.memory, writes);
  CHECK(writes.empty());
  for (const uint8_t text : {'a', 'b', 'c'}) socket.send(text);  // there is no room for the third
  ring->show(socket.memory, writes);
  REQUIRE_EQ(writes.size(), 2);
  CHECK_EQ(writes[0].address, reinterpret_cast<Address>(&shown));
  CHECK_EQ(writes[0].length, shown.frame(0).tp_mac + 64);
  CHECK(std::equal(writes[0].data.begin(), writes[0].data.end(), shown.bytes));
  CHECK_EQ(shown.text(0), 'a');
  CHECK_EQ(shown.text(1), 'b');
  ring->show(socket.memory, writes);
  CHECK_EQ(writes.size(), 2);

  shown.frame(0).tp_status = TP_STATUS_KERNEL;
  socket.send('d');
  ring->show(socket.memory, writes);
  CHECK_EQ(writes.size(), 2);  // the kernel does not have it yet
  ring->take_back(socket.memory);
  socket.send('e');
  ring->show(socket.memory, writes);
  REQUIRE_EQ(writes.size(), 3);
  CHECK_EQ(shown.text(0), 'e');
  CHECK_EQ(shown.text(1), 'b');
}

TEST_CASE("what no kernel makes a ring of is not sound") {
  CHECK(PacketRing::is_sound(kRequest));
  CHECK_FALSE(PacketRing::is_sound({}));
  CHECK_FALSE(PacketRing::is_sound({4096, 1, 2048, 3}));
  CHECK_FALSE(PacketRing::is_sound({4096, 0, 2048, 0}));
  CHECK_FALSE(PacketRing::is_sound({4096, 1, 8192, 0}));
  CHECK_FALSE(PacketRing::is_sound({4096, 1, 16, 256}));
  CHECK_FALSE(PacketRing::is_sound({4097, 1, 2048, 2}));
  CHECK_FALSE(PacketRing::is_sound({1u << 31, 1u << 31, 2048, 0}));
}

TEST_CASE("a ring that no longer is mapped can be taken away") {
  Socket socket;
  if (!socket.fd) return;
  constexpr tpacket_req kNone{};
  {
    const auto ring = PacketRing::map(socket.fd.get(), kRequest, 0);
    REQUIRE(ring);
    CHECK_EQ(setsockopt(socket.fd.get(), SOL_PACKET, PACKET_RX_RING, &kNone, sizeof kNone), -1);
  }
  CHECK_EQ(setsockopt(socket.fd.get(), SOL_PACKET, PACKET_RX_RING, &kNone, sizeof kNone), 0);
  CHECK_FALSE(PacketRing::map(socket.fd.get(), kRequest, 0));
}

}  // namespace redrive::packet_ring_test
