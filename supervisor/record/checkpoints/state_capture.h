// Reads the state of a unit for an image while it is stopped: its threads, its processes, and all of its pages or the
// shared ones. It takes no copies and stores nothing.
#pragma once

#include <map>
#include <vector>

#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/checkpoints/page_buffers.h"
#include "supervisor/record/code/mapped_file.h"
#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class ThreadControl;
class PrivateViews;
class FileCopies;

class StateCapture {
 public:
  StateCapture(Tracer& tracer, StopQueue& stops, MappedObjects& objects, ThreadControl& control,
               PrivateViews& private_views, FileCopies& files, PageBuffers& buffers)
      : tracer_(tracer),
        stops_(stops),
        objects_(objects),
        control_(control),
        private_views_(private_views),
        files_(files),
        buffers_(buffers) {}

  // What is mapped in the memory of some of a unit's processes, if that was read already, by their numbers.
  struct Known {
    const std::vector<Mapping>* mappings;
    MappedFiles* files;
  };
  using KnownMappings = std::map<pid_t, Known>;

  // What is read of a unit while it is stopped: its state, and all of its pages or the shared ones. Processes that are
  // killed meanwhile are left out.
  Result<ImageJob> take(Unit& unit, Thread& trigger, bool at_entry, bool shared_only, const KnownMappings& known = {});
  // A thread's registers, which may be known already. `entering`: at the entry of its call. False if it was killed.
  bool capture_thread(Thread& thread, bool entering, ThreadState& saved);

 private:
  Result<void> capture_into(ImageJob& job, Unit& unit, Thread& trigger, bool at_entry, bool shared_only,
                            const KnownMappings& known);
  bool leave_out_killed(Unit& unit);
  void await_stop(const Thread& thread);
  Result<ProcessState> capture_process(Process& process, const ProcessSerial* owner, const KnownMappings& known);
  Result<UnitState> capture_state(Unit& unit, Thread& trigger, bool at_entry, const KnownMappings& known);
  Result<void> capture_pages(Unit& unit, bool shared_only, ImageJob& job);

  Tracer& tracer_;
  StopQueue& stops_;
  MappedObjects& objects_;
  ThreadControl& control_;
  PrivateViews& private_views_;
  FileCopies& files_;
  PageBuffers& buffers_;
};

}  // namespace redrive
