// Private views of files (mapped_objects.h): which processes have them, and what they show differently after a call
// that changes the file.
//
// The kernel shows a change in every page of the view that the process has not written to; a page that comes to lie
// beyond the file's end is taken away, written or not (mmap(2)). A replay's view is one of the trace's copy, so all
// this becomes output of the call, or of an event of the view's owner.
#pragma once

#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Tracees;
class Findings;
class ObjectViews;

class PrivateViews {
 public:
  struct View {
    Process* process = nullptr;
    Mapping mapping;
  };

  PrivateViews(MappedObjects& objects, GateArena* arena, Tracees& tracees, Findings& findings,
               ObjectViews& object_views)
      : objects_(objects), arena_(arena), tracees_(tracees), findings_(findings), object_views_(object_views) {}

  // A private mapping of a file was made, of which this version is there now.
  void add(Process& process, const Mapping& view, const FileVersion& version);
  // All private views of the object.
  std::vector<View> of(const MappedObject& object) const;
  // The process has this private view of a file, of which this version is there now: reports it if a process that is
  // not recorded has changed the file.
  void check(const Process& process, const Mapping& view, const FileVersion& version);
  void check_all(const Process& process);
  // Reports that private views also show what is written through shared mappings, at no event.
  void report_seen_writes(const MappedObject& object);
  // Another unit that has a private view of what the thread's call is about to change, preferably one that runs user
  // code; null if there is none, or if the call may wait for something else.
  Unit* unit_that_looks(const Thread& thread);
  // A call has written to `changed`, and the file is this version now. Whether there are private views of it.
  bool note_change(Thread& thread, MappedObject& object, FileRange changed, const FileVersion& version, Event& event);
  // At the exit of a call that has the kernel show a file anew in part of a private view. A replay's shows the version
  // that was mapped.
  void report_fresh_view(Thread& thread, int64_t result);

 private:
  MappedObjects& objects_;
  GateArena* arena_;
  Tracees& tracees_;
  Findings& findings_;
  ObjectViews& object_views_;
  bool views_changed_ = false;  // some file of which a process had a private view
};

}  // namespace redrive
