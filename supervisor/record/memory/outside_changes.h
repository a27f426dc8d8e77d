// Changes of mapped files by processes that are not recorded: those that have happened, and those that can.
#pragma once

#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/memory/outside_writers.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;
class Findings;
class ObjectViews;

class OutsideChanges {
 public:
  OutsideChanges(MappedObjects& objects, Tracees& tracees, Findings& findings, ObjectViews& object_views)
      : objects_(objects), tracees_(tracees), findings_(findings), object_views_(object_views) {}

  // A file that others may have mapped too was mapped.
  void expect_writers() { outside_writers_.expect(); }
  // Looks from time to time for processes that are not recorded and can change what is mapped.
  void look_for_writers();
  // A process that shares memory is about to end, and with it perhaps the last chance to find with whom.
  void look_before_end(const Process& process);
  // Says which objects were changed by a call of a process that is not recorded. What recorded calls are changing right
  // now is not known to be theirs until they end.
  void report_changes();

 private:
  std::set<ObjectPlace> shared_places(const Process& process);
  void report_writers(const std::vector<OutsideWriter>& writers);

  MappedObjects& objects_;
  Tracees& tracees_;
  Findings& findings_;
  ObjectViews& object_views_;
  OutsideWriters outside_writers_;
};

}  // namespace redrive
