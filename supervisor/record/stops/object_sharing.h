// What processes have mapped shared (mapped_objects.h): what a new mapping shows, what calls change, and which units
// must become one before that.
#pragma once

#include "logstore/trace.h"
#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Tracees;
class Findings;
class CallEvents;
class ObjectViews;
class PrivateViews;
class OutsideChanges;
class FileCopies;
class Joiner;

class ObjectSharing {
 public:
  ObjectSharing(TraceWriter& writer, MappedObjects& objects, GateArena* arena, Tracees& tracees, Findings& findings,
                CallEvents& events, ObjectViews& object_views, PrivateViews& private_views, OutsideChanges& outside,
                FileCopies& files, Joiner& joiner)
      : writer_(writer),
        objects_(objects),
        arena_(arena),
        tracees_(tracees),
        findings_(findings),
        events_(events),
        object_views_(object_views),
        private_views_(private_views),
        outside_(outside),
        files_(files),
        joiner_(joiner) {}

  // At the exit of a call: another unit that has mapped the same object, if either can change it.
  Unit* unit_to_join(Thread& thread, int64_t result);
  // At the entry of a call: another unit that has mapped the object that the call changes. All processes that see it
  // must be in one unit before it is changed.
  Unit* unit_to_join_for_change(Thread& thread);
  // What is mapped where a call has just mapped something.
  static std::string name_of_mapping(const Thread& thread, int64_t result);
  // A shared mapping was made, at `start`.
  void map_shared(Thread& thread, Address start, MapSource& source, Event& event);
  // At the exit of an mremap: a shared mapping may show more of its object than before.
  void note_growth(Thread& thread, Address start, Event& event);
  // A call has changed an object that processes of this unit, and of no other, have mapped. Without a result, its
  // thread was killed in it.
  void note_change(Thread& thread, std::optional<int64_t> result, Event& event);
  // Forgets objects that no process has mapped any more. It looks for them when there are twice as many objects as
  // after the last time.
  void forget_unmapped();

 private:
  MappedObject* object_mapped(Thread& thread, const Mapping& made);
  void note_contents(Thread& thread, const MappedObject& object, const Mapping& made, FileRange range, Event& event);
  void watch_object(const MappedObject& object, const std::string& path);
  void forget(const MappedObject& object);
  void forget_versions(const MappedObject& object);
  void watch_again();

  TraceWriter& writer_;
  MappedObjects& objects_;
  GateArena* arena_;
  Tracees& tracees_;
  Findings& findings_;
  CallEvents& events_;
  ObjectViews& object_views_;
  PrivateViews& private_views_;
  OutsideChanges& outside_;
  FileCopies& files_;
  Joiner& joiner_;
  size_t objects_kept_ = 0;  // when unmapped ones were last forgotten
};

// Whether the thread's call maps something shared.
bool asks_for_sharing(const Thread& thread);

}  // namespace redrive
