// Programs that map the rings of packet sockets (packet_ring.h): which sockets have one, and what the program gets in
// its place. Frames change hands at calls, so none is served in such a process.
#pragma once

#include <linux/if_packet.h>
#include <sys/stat.h>

#include <map>

#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings;
class ThreadControl;

class PacketRings {
 public:
  PacketRings(const RecorderLimits& limits, Findings& findings, ThreadControl& control)
      : limits_(limits), findings_(findings), control_(control) {}

  // At the entry of a call, served or not, that may ask for a ring; `memory` is the thread's at that time.
  void note_request(const Thread& thread, const Memory& memory);
  // Whether an mmap(2) of this socket, which is what thread.args name, maps a ring, and nothing else. None can be
  // mapped by a program that is let go later: it would be left with memory that is not the ring.
  bool is_mapped_whole(const Thread& thread, const struct stat& socket) const;

  // At the entry of an mmap(2), whose event is open: if it maps a ring, has the kernel map anonymous memory instead.
  void replace(Thread& thread);
  // At its exit, with these registers, which it restores.
  void replaced(Thread& thread, user_regs_struct& regs);

  // At the exit of a call, before the thread runs user code.
  static void show(Process& process);
  // At the entry of a call.
  static void take_back(Process& process);
  // The process has unmapped this.
  static void forget(Process& process, const AddressRange& range);

 private:
  const RecorderLimits& limits_;
  Findings& findings_;
  ThreadControl& control_;
  std::map<ino_t, tpacket_req> requests_;  // by socket
};

}  // namespace redrive
