#include "supervisor/record/tracees/packet_ring.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace redrive {

bool PacketRing::is_sound(const tpacket_req& request) {
  const auto& [block_size, blocks, frame_size, frames] = request;
  return frame_size >= TPACKET_HDRLEN && frame_size % TPACKET_ALIGNMENT == 0 && block_size >= frame_size &&
         blocks != 0 && block_size % kPageSize == 0 && uint64_t{block_size / frame_size} * blocks == frames;
}

Result<PacketRing> PacketRing::map(int socket, const tpacket_req& request, Address start) {
  int version = 0;
  socklen_t size = sizeof version;
  if (getsockopt(socket, SOL_PACKET, PACKET_VERSION, &version, &size) != 0) {
    return errno_error("cannot ask for the version of a packet ring");
  }
  const uint64_t length = uint64_t{request.tp_block_size} * request.tp_block_nr;
  void* const mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, socket, 0);
  if (mapped == MAP_FAILED) return errno_error("cannot map a packet ring");
  return PacketRing(version, request, start, static_cast<uint8_t*>(mapped));
}

PacketRing::PacketRing(PacketRing&& other) noexcept
    : version_(other.version_),
      request_(other.request_),
      start_(other.start_),
      mapped_(std::exchange(other.mapped_, nullptr)),
      next_(other.next_),
      shown_(std::move(other.shown_)) {}

PacketRing::~PacketRing() {
  if (mapped_) munmap(mapped_, length());
}

// Frames do not cross the borders of blocks.
uint64_t PacketRing::offset_of(uint32_t slot) const {
  if (version_ == TPACKET_V3) return slot * slot_size();
  const uint32_t in_block = request_.tp_block_size / request_.tp_frame_size;
  return uint64_t{slot / in_block} * request_.tp_block_size + slot % in_block * slot_size();
}

uint64_t PacketRing::offset_of_status(uint32_t slot) const {
  return offset_of(slot) + (version_ == TPACKET_V3 ? offsetof(tpacket_block_desc, hdr.bh1.block_status) : 0);
}

uint64_t PacketRing::filled(uint32_t slot) const {
  const uint8_t* const at = mapped_ + offset_of(slot);
  uint64_t length = 0;
  switch (version_) {
    case TPACKET_V3:
      length = reinterpret_cast<const tpacket_block_desc*>(at)->hdr.bh1.blk_len;
      break;
    case TPACKET_V2: {
      const auto* const frame = reinterpret_cast<const tpacket2_hdr*>(at);
      length = uint64_t{frame->tp_mac} + frame->tp_snaplen;
      break;
    }
    default: {
      const auto* const frame = reinterpret_cast<const tpacket_hdr*>(at);
      length = uint64_t{frame->tp_mac} + frame->tp_snaplen;
    }
  }
  return std::min(length, slot_size());
}

void PacketRing::show(const Memory& memory, std::vector<MemoryWrite>& writes) {
  while (shown_.size() < slots()) {
    const auto* const status = reinterpret_cast<const uint32_t*>(mapped_ + offset_of_status(next_));
    if (!(__atomic_load_n(status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return;
    const uint64_t offset = offset_of(next_);
    MemoryWrite write{start_ + offset, filled(next_), MemoryWrite::Kind::data, {}};
    write.data.assign(mapped_ + offset, mapped_ + offset + write.length);
    if (!memory.write(write.address, write.data.data(), write.length)) return;
    writes.push_back(std::move(write));
    shown_.push_back(next_);
    next_ = (next_ + 1) % slots();
  }
}

void PacketRing::take_back(const Memory& memory) {
  std::erase_if(shown_, [&](uint32_t slot) {
    const uint64_t offset = offset_of_status(slot);
    uint32_t status = TP_STATUS_USER;
    if (!memory.get(start_ + offset, status) || status != TP_STATUS_KERNEL) return false;
    __atomic_store_n(reinterpret_cast<uint32_t*>(mapped_ + offset), TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    return true;
  });
}

}  // namespace redrive
