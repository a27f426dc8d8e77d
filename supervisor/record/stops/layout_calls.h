// Calls that change the memory layout: what the recorder notes of them (the other direction: tier/memory_calls.h).
#pragma once

#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Findings;
class CodePatching;
class PrivateViews;
class ObjectSharing;
class PacketRings;

class LayoutCalls {
 public:
  LayoutCalls(MappedObjects& objects, GateArena* arena, Findings& findings, CodePatching& patching,
              PrivateViews& private_views, ObjectSharing& object_sharing, FileCopies& files,
              const PacketRings& packet_rings)
      : objects_(objects),
        arena_(arena),
        findings_(findings),
        patching_(patching),
        private_views_(private_views),
        object_sharing_(object_sharing),
        files_(files),
        packet_rings_(packet_rings) {}

  // Whether the call can be recorded if it maps memory. Mappings of devices cannot be made again, and in those of
  // sockets (packet(7)) and the like the kernel writes when it wants: the caller refuses them.
  bool mappable(Thread& thread);
  // At the exit of any call that has stopped its thread.
  void note(Thread& thread, int64_t result, Event& event);
  // At the exit of any call that was served. Nothing is asked of its thread, which goes on.
  void note_served(Thread& thread, const gate::Record& record, Event& event);

 private:
  static void note_layout(const Thread& thread, int64_t result);
  bool note_change(Thread& thread, int64_t result, Event& event);
  // For both, a file of which the call has made a private view:
  void show_file(Process& process, const std::array<uint64_t, 6>& args, const FileCopies::KnownFile& file,
                 MapSource& source);
  void replace_traps(Thread& thread, int64_t result, const FileCopies::KnownFile& file, const MappedFile& mapped,
                     Event& event);
  // The next such calls of programs need not stop.
  void serve_from_now_on(const std::array<uint64_t, 6>& args, const FileCopies::KnownFile& file,
                         const MappedFile& mapped);

  MappedObjects& objects_;
  GateArena* arena_;
  Findings& findings_;
  CodePatching& patching_;
  PrivateViews& private_views_;
  ObjectSharing& object_sharing_;
  FileCopies& files_;
  const PacketRings& packet_rings_;
};

}  // namespace redrive
