// Begins to record processes that run already, with all their threads and descendants, and ends it so that they run on
// as if nothing had been (DESIGN.md, Attaching).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "supervisor/record/attach/attachable.h"
#include "supervisor/record/attach/seizer.h"
#include "supervisor/record/checkpoints/state_capture.h"
#include "supervisor/record/code/mapped_file.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/record/tracees/recorded.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class CheckpointCopies;
class Checkpointer;
class Ends;
class FileCopies;
class Findings;
class ImageWorker;
class PageBuffers;
struct ImageJob;
class Intervals;
class NativeState;
class OutsideChanges;
class PrivateViews;
class StopHandler;
class StopQueue;
class ThreadControl;
class Tracees;
class Turns;

class Attacher {
 public:
  Attacher(Tracer& tracer, TraceWriter& writer, StopQueue& stops, TraceeCalls& calls, Placement& placement,
           PageBuffers& buffers, ImageWorker& images, MappedObjects& objects, Tracees& tracees, Findings& findings,
           ThreadControl& control, Intervals& intervals, FileCopies& files, PrivateViews& private_views,
           OutsideChanges& outside, StateCapture& capture, CheckpointCopies& copies, Checkpointer& checkpointer,
           NativeState& native, Ends& ends, Turns& turns, StopHandler& handler)
      : tracer_(tracer),
        writer_(writer),
        stops_(stops),
        calls_(calls),
        buffers_(buffers),
        images_(images),
        objects_(objects),
        tracees_(tracees),
        findings_(findings),
        control_(control),
        intervals_(intervals),
        files_(files),
        private_views_(private_views),
        outside_(outside),
        capture_(capture),
        copies_(copies),
        checkpointer_(checkpointer),
        native_(native),
        ends_(ends),
        turns_(turns),
        handler_(handler),
        seizer_(tracer, placement) {}

  // Attaches to the process and its descendants. If one of them cannot be recorded, all run on as before.
  Result<void> attach(pid_t pid) REQUIRES(recorded);

  // From now on nothing is begun that would have to end first. True if the processes can be stopped to be let go.
  bool can_stop();
  // Stops all threads where they can be let go: in user code, or before a call.
  void stop_all() REQUIRES(recorded);
  // Lets all processes run untraced. What is recorded of them must have been written.
  void let_go() REQUIRES(recorded);

 private:
  using Object = std::pair<uint64_t, uint64_t>;  // device, inode

  Result<void> look_again(AttachableTree& tree);
  // A process that is stopped.
  struct Mapped {
    const Attachable* process;
    MappedFiles files;
  };
  static std::set<Object> changeable_in(const AttachableTree& tree);
  void prepare_buffers(const AttachableTree& tree);
  std::vector<pid_t> stopped_processes(const std::vector<pid_t>& roots) const;
  std::vector<Mapped> make_units(const AttachableTree& tree);
  static std::vector<std::vector<Mapped*>> groups(std::vector<Mapped>& mapped, const std::set<Object>& changeable);
  Process& add_process(Unit& unit, const Attachable& found);
  void note_mappings(Process& process, Mapped& mapped, const std::set<Object>& changeable);
  Result<void> take_all();
  void begin_interval(Unit& unit, const StateCapture::KnownMappings& known);
  bool copy_processes(Unit& unit, ImageJob& job, const StateCapture::KnownMappings& known);
  static bool copies_all(const Process& process, const std::vector<Mapping>& mappings, pid_t copy);

  Tracer& tracer_;
  TraceWriter& writer_;
  StopQueue& stops_;
  TraceeCalls& calls_;
  PageBuffers& buffers_;
  ImageWorker& images_;
  MappedObjects& objects_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  Intervals& intervals_;
  FileCopies& files_;
  PrivateViews& private_views_;
  OutsideChanges& outside_;
  StateCapture& capture_;
  CheckpointCopies& copies_;
  Checkpointer& checkpointer_;
  NativeState& native_;
  Ends& ends_;
  Turns& turns_;
  StopHandler& handler_;
  Seizer seizer_;  // while it attaches
};

}  // namespace redrive
