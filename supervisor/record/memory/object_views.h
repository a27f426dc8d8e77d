// Finds out which processes have an object mapped shared (mapped_objects.h), and where. It changes nothing but what is
// noted of processes that share memory.
#pragma once

#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;

class ObjectViews {
 public:
  struct View : SharedMappings::View {
    Process* process = nullptr;
  };

  ObjectViews(MappedObjects& objects, Tracees& tracees) : objects_(objects), tracees_(tracees) {}

  // Where processes of the unit show part of this range of the object.
  static std::vector<View> of(const MappedObject& object, const Unit& unit, FileRange range);
  // How many mappings of the process show the object.
  static size_t count(const MappedObject& object, const Process& process);
  static size_t count(const MappedObject& object, const Unit& unit);
  // The processes of the unit that have mapped the object share memory from now on.
  static void note_sharing(const MappedObject& object, const Unit& unit);
  // Another unit that has the object mapped; null if there is none.
  Unit* other_user(const MappedObject& object, const Unit& unit) const;
  // Why a child of the process stays in its unit.
  std::string shared_by(const Process& process) const;
  // Whether any process has it mapped shared.
  bool is_mapped(const MappedObject& object) const;

 private:
  MappedObjects& objects_;
  Tracees& tracees_;
};

}  // namespace redrive
