#include "supervisor/record/memory/packet_rings.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/procfs.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {

void PacketRings::note_request(const Thread& thread, const Memory& memory) {
  const auto& args = thread.call.args;
  if (thread.call.row->number != SYS_setsockopt || args[1] != SOL_PACKET || args[2] != PACKET_RX_RING) return;
  tpacket_req request{};
  struct stat socket {};
  if (!memory.get(args[3], request) || stat(descriptor_path(thread.tid, args[0]).c_str(), &socket) != 0) return;
  requests_.insert_or_assign(socket.st_ino, request);
}

bool PacketRings::is_mapped_whole(const Thread& thread, const struct stat& socket) const {
  const auto request = requests_.find(socket.st_ino);
  if (limits_.attached || request == requests_.end() || !S_ISSOCK(socket.st_mode) || !thread.process->pidfd)
    return false;
  const tpacket_req& asked = request->second;
  const uint64_t length = uint64_t{asked.tp_block_size} * asked.tp_block_nr;
  return PacketRing::is_sound(asked) && thread.call.args[1] == length && thread.call.args[5] == 0 &&
         (thread.call.args[3] & MAP_TYPE) == MAP_SHARED;
}

void PacketRings::replace(Thread& thread) {
  if (requests_.empty() || thread.call.row->special != Special::mmap || (thread.call.args[3] & MAP_ANONYMOUS)) return;
  struct stat file {};
  if (stat(descriptor_path(thread.tid, thread.call.args[4]).c_str(), &file) != 0) return;
  if (!is_mapped_whole(thread, file)) return;
  thread.call.packet_ring = requests_.at(file.st_ino);
  // From here on, it is what the kernel makes of it.
  thread.call.args[3] = (thread.call.args[3] & ~uint64_t{MAP_TYPE}) | MAP_PRIVATE | MAP_ANONYMOUS;
  thread.call.args[4] = ~0ull;
  user_regs_struct regs = thread.entry;
  regs.r10 = thread.call.args[3];
  regs.r8 = thread.call.args[4];
  control_.set_regs(thread, regs);
}

void PacketRings::replaced(Thread& thread, user_regs_struct& regs) {
  const tpacket_req request = *std::exchange(thread.call.packet_ring, std::nullopt);
  regs.r10 = thread.entry.r10;
  regs.r8 = thread.entry.r8;
  control_.set_regs(thread, regs);
  if (is_error(static_cast<int64_t>(regs.rax))) return;
  Process& process = *thread.process;
  const auto descriptor = static_cast<unsigned>(thread.entry.r8);
  const Fd socket(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd_of_table(thread), descriptor, 0)));
  auto ring = socket ? PacketRing::map(socket.get(), request, regs.rax)
                     : Result<PacketRing>(errno_error("cannot reach the socket"));
  if (ring) {
    process.packet_rings.push_back(std::move(*ring));
  } else {
    findings_.add_unsure(*process.unit, "it gets no frames from a packet socket: " + ring.error().message);
  }
}

void PacketRings::show(Process& process) {
  for (PacketRing& ring : process.packet_rings) ring.show(process.memory, process.written);
}

void PacketRings::take_back(Process& process) {
  for (PacketRing& ring : process.packet_rings) ring.take_back(process.memory);
}

void PacketRings::forget(Process& process, const AddressRange& range) {
  auto kept = std::move(process.packet_rings);
  process.packet_rings.clear();
  for (PacketRing& ring : kept) {
    const AddressRange its = ring.range();
    if (its.end <= range.start || range.end <= its.start) process.packet_rings.push_back(std::move(ring));
  }
}

}  // namespace redrive
