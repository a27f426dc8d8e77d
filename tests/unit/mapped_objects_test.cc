// Which object a file is that stat(2) describes, where overlayfs shows another device in /proc/PID/maps.
#include "supervisor/record/memory/mapped_objects.h"

#include "tests/unit/unit_test.h"

namespace redrive::mapped_objects_test {
namespace {

Mapping mapping_of_file(uint64_t device, uint64_t inode) {
  Mapping mapping;
  mapping.device = device;
  mapping.inode = inode;
  return mapping;
}

}  // namespace

TEST_CASE("mapped objects: a file is found by what stat(2) tells of it") {
  MappedObjects objects;
  MappedObject& plain = objects.of(mapping_of_file(1, 10));
  MappedObject& layered = objects.of(mapping_of_file(2, 20));
  objects.note_file(plain, 1, 10);
  objects.note_file(layered, 3, 20);
  CHECK_EQ(objects.find_file(1, 10), &plain);
  CHECK_EQ(objects.find_file(3, 20), &layered);
  CHECK_EQ(objects.find_file(2, 20), nullptr);
  CHECK_EQ(objects.find(2, 20), &layered);
  CHECK_EQ(objects.find(3, 20), nullptr);
}

TEST_CASE("mapped objects: of a file that stat(2) tells anew, what it told before is no name any more") {
  MappedObjects objects;
  MappedObject& layered = objects.of(mapping_of_file(2, 20));
  objects.note_file(layered, 3, 20);
  objects.note_file(layered, 4, 21);
  CHECK_EQ(&objects.of(mapping_of_file(2, 20)), &layered);
  CHECK_EQ(objects.find_file(3, 20), nullptr);
  CHECK_EQ(objects.find_file(4, 21), &layered);
  objects.forget(layered.id);
  CHECK_EQ(objects.find_file(4, 21), nullptr);
}

}  // namespace redrive::mapped_objects_test
