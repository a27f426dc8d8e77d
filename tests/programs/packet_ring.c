// Frames that a packet socket hands over in a ring (packet(7), PACKET_RX_RING), in each version of its format: every one arrives, once and
// in order, although the ring is smaller than what is sent.
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "test.h"

enum { kFrames = 60, kPayload = 32, kProtocol = 0x7265, kBlock = 16384, kBlocks = 2, kFrame = 2048 };

struct message {
  uint32_t sender, version, number;
  unsigned char rest[kPayload - 12];
};

static int expected[4];

// A frame of ours is an Ethernet header with a protocol number of its own, and a message. Other processes may send such frames, too.
static void take(const unsigned char* frame, size_t length, int version) {
  struct message found;
  if (length < ETH_HLEN + sizeof found) return;
  memcpy(&found, frame + ETH_HLEN, sizeof found);
  if (found.sender != (uint32_t)getpid() || found.version != (uint32_t)version) return;
  CHECK(found.number == (uint32_t)expected[version]);
  for (size_t i = 0; i < sizeof found.rest; i++) CHECK(found.rest[i] == (unsigned char)(found.number + i));
  noted = noted * 31 + found.number;
  expected[version]++;
}

static void send_one(int fd, int index, int version, int number) {
  unsigned char frame[ETH_HLEN + sizeof(struct message)] = {0};
  struct message text = {.sender = (uint32_t)getpid(), .version = (uint32_t)version, .number = (uint32_t)number};
  for (size_t i = 0; i < sizeof text.rest; i++) text.rest[i] = (unsigned char)(text.number + i);
  frame[12] = kProtocol >> 8, frame[13] = kProtocol & 0xff;
  memcpy(frame + ETH_HLEN, &text, sizeof text);
  const struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = index, .sll_halen = ETH_ALEN};
  CHECK(sendto(fd, frame, sizeof frame, 0, (const struct sockaddr*)&to, sizeof to) == sizeof frame);
}

// What is there of a block of version 3.
static bool take_block(unsigned char* block) {
  struct tpacket_block_desc* const header = (struct tpacket_block_desc*)block;
  if (!(__atomic_load_n(&header->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return false;
  unsigned char* at = block + header->hdr.bh1.offset_to_first_pkt;
  for (uint32_t i = 0; i < header->hdr.bh1.num_pkts; i++) {
    const struct tpacket3_hdr* const packet = (const struct tpacket3_hdr*)at;
    take(at + packet->tp_mac, packet->tp_snaplen, TPACKET_V3);
    at += packet->tp_next_offset;
  }
  __atomic_store_n(&header->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
  return true;
}

static bool take_frame(unsigned char* frame, int version) {
  if (version == TPACKET_V2) {
    struct tpacket2_hdr* const header = (struct tpacket2_hdr*)frame;
    if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return false;
    take(frame + header->tp_mac, header->tp_snaplen, version);
    __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
  } else {
    struct tpacket_hdr* const header = (struct tpacket_hdr*)frame;
    if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return false;
    take(frame + header->tp_mac, header->tp_snaplen, version);
    __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
  }
  return true;
}

// False if this user may not have such sockets.
static bool run(int version) {
  const int fd = socket(AF_PACKET, SOCK_RAW, 0);
  if (fd < 0 && errno == EPERM) return false;
  MUST(fd);
  MUST(setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version));
  struct tpacket_req3 request = {.tp_block_size = kBlock, .tp_block_nr = kBlocks, .tp_frame_size = kFrame};
  request.tp_frame_nr = kBlock / kFrame * kBlocks;
  request.tp_retire_blk_tov = 5;  // ms
  MUST(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, version == TPACKET_V3 ? sizeof request : sizeof(struct tpacket_req)));
  unsigned char* const ring = MUST(mmap(NULL, kBlock * kBlocks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  const int index = MUST((int)if_nametoindex("lo"));
  const struct sockaddr_ll here = {.sll_family = AF_PACKET, .sll_protocol = htons(kProtocol), .sll_ifindex = index};
  MUST(bind(fd, (const struct sockaddr*)&here, sizeof here));
  const int slots = version == TPACKET_V3 ? kBlocks : kBlock / kFrame * kBlocks, size = version == TPACKET_V3 ? kBlock : kFrame;
  int next = 0;
  for (int sent = 0; expected[version] < kFrames;) {
    // A few at a time, so that none is dropped.
    if (sent < kFrames && sent - expected[version] < 4) send_one(fd, index, version, sent++);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    MUST(poll(&ready, 1, 20));
    while (version == TPACKET_V3 ? take_block(ring + next * size) : take_frame(ring + next * size, version)) next = (next + 1) % slots;
  }
  MUST(munmap(ring, kBlock * kBlocks));
  // The ring can be taken away only when nobody has it mapped.
  memset(&request, 0, sizeof request);
  MUST(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, version == TPACKET_V3 ? sizeof request : sizeof(struct tpacket_req)));
  close(fd);
  return true;
}

int main(void) {
  if (!run(TPACKET_V1)) return skipped("packet sockets need CAP_NET_RAW");
  CHECK(run(TPACKET_V2) && run(TPACKET_V3));
  return ok("%016llx", (unsigned long long)noted);
}
