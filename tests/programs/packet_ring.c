// A ring into which the kernel puts packets at any time: a recording refuses to map it, and packets come by recv.
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/mman.h>

#include "test.h"

enum { kBlock = 4096, kBlocks = 2 };

int main(void) {
  int fd = -1;
  if (!MAY(fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)))) return ok("not permitted");
  const struct sockaddr_ll loopback = {
      .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex("lo")};
  MUST(bind(fd, (const struct sockaddr*)&loopback, sizeof loopback));
  struct tpacket_req ring = {.tp_block_size = kBlock, .tp_block_nr = kBlocks, .tp_frame_size = 2048, .tp_frame_nr = 4};
  MUST(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring));
  unsigned char* packets = mmap(NULL, kBlock * kBlocks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(packets != MAP_FAILED || errno == ENODEV);
  const int to = MUST(socket(AF_INET, SOCK_DGRAM, 0));
  const struct sockaddr_in nobody = {
      .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  MUST(sendto(to, "packet", 6, 0, (const struct sockaddr*)&nobody, sizeof nobody));
  if (packets != MAP_FAILED) {
    const volatile struct tpacket_hdr* first = (const volatile struct tpacket_hdr*)packets;
    while (!(first->tp_status & TP_STATUS_USER)) {
    }
    note_bytes(packets, kBlock);
    MUST(munmap(packets, kBlock * kBlocks));
  }
  ring = (struct tpacket_req){0};
  MUST(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring));
  MUST(sendto(to, "packet", 6, 0, (const struct sockaddr*)&nobody, sizeof nobody));
  unsigned char packet[2048];
  const ssize_t length = MUST(recv(fd, packet, sizeof packet, 0));
  CHECK(length > 6);
  note_bytes(packet, (size_t)length);
  return ok("a ring");
}
