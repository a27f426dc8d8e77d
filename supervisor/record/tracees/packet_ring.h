// A ring through which a packet socket hands frames to a program (packet(7), PACKET_RX_RING; the kernel's
// Documentation/networking/packet_mmap.rst).
//
// The kernel fills such a ring whenever frames arrive, and no replay could say when. So the program gets memory of its
// own in the ring's place, the recorder maps the ring, and frames change hands only at the program's events: what the
// kernel has filled is copied to the program, and what the program has given back is given back to the kernel.
#pragma once

#include <linux/if_packet.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "logstore/event.h"

namespace redrive {

class PacketRing {
 public:
  // Whether the kernel can have made a ring by this request, so that all slots are in it. A program may have asked for
  // something else after it got its ring, in vain.
  static bool is_sound(const tpacket_req& request);
  // Maps the ring that `socket`, which is of the recorder's own process, was given by this request, which is sound. The
  // program has memory for all of it at `start`.
  static Result<PacketRing> map(int socket, const tpacket_req& request, Address start);
  PacketRing(PacketRing&& other) noexcept;
  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;
  ~PacketRing();

  // Where the program has its memory.
  AddressRange range() const { return {start_, start_ + length()}; }

  // Copies what the kernel has filled since the last call to the program, and adds what was written there.
  void show(const Memory& memory, std::vector<MemoryWrite>& writes);
  // Gives back to the kernel what the program has given back since the last call.
  void take_back(const Memory& memory);

 private:
  PacketRing(int version, const tpacket_req& request, Address start, uint8_t* mapped)
      : version_(version), request_(request), start_(start), mapped_(mapped) {}

  // A slot is what the kernel fills and the program gives back as a whole: a block in version 3, or else a frame.
  uint32_t slots() const { return version_ == TPACKET_V3 ? request_.tp_block_nr : request_.tp_frame_nr; }
  uint64_t slot_size() const { return version_ == TPACKET_V3 ? request_.tp_block_size : request_.tp_frame_size; }
  uint64_t length() const { return uint64_t{request_.tp_block_size} * request_.tp_block_nr; }
  uint64_t offset_of(uint32_t slot) const;
  uint64_t offset_of_status(uint32_t slot) const;
  // How many bytes of a filled slot hold something.
  uint64_t filled(uint32_t slot) const;

  int version_;  // tpacket_versions
  tpacket_req request_;
  Address start_;
  uint8_t* mapped_;             // the kernel's
  uint32_t next_ = 0;           // the slot that the kernel fills next
  std::deque<uint32_t> shown_;  // slots that the program has, the oldest first
};

}  // namespace redrive
