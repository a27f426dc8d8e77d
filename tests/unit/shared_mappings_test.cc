// What a process shows of shared objects: kept from what is told of changes, it is what /proc/PID/maps says.
#include "supervisor/record/tracees/shared_mappings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/page.h"
#include "tests/unit/unit_test.h"

namespace redrive::shared_mappings_test {
namespace {

struct Object {
  explicit Object(uint64_t pages) : fd(memfd_create("shared", MFD_CLOEXEC)) {
    CHECK(ftruncate(fd.get(), static_cast<off_t>(pages * kPageSize)) == 0);
    struct stat info {};
    CHECK(fstat(fd.get(), &info) == 0);
    device = info.st_dev;
    inode = info.st_ino;
  }

  Fd fd;
  uint64_t device = 0, inode = 0;
};

using Views = std::vector<std::array<uint64_t, 3>>;

// What the process shows of the object, by address. Neighbours count as one: the kernel splits some that it would join.
Views views(SharedMappings& mappings, const Object& object, FileRange range = {0, ~0ull}) {
  Views all;
  for (const auto& view : mappings.of(getpid(), object.device, object.inode, range)) {
    all.push_back({view.start, view.offset, view.length});
  }
  std::sort(all.begin(), all.end());
  Views found;
  for (const auto& view : all) {
    if (!found.empty() && found.back()[0] + found.back()[2] == view[0] &&
        found.back()[1] + found.back()[2] == view[1]) {
      found.back()[2] += view[2];
    } else {
      found.push_back(view);
    }
  }
  return found;
}

Views fresh(const Object& object) {
  SharedMappings mappings;
  return views(mappings, object);
}

}  // namespace

TEST_CASE("shared mappings: a part that is unmapped leaves what is before and after it") {
  SharedMappings mappings;
  const Object object(16);
  CHECK(views(mappings, object).empty());
  Mapping mapping;
  mapping.start = 0x10000;
  mapping.end = 0x20000;
  mapping.offset = 0x3000;
  mapping.device = object.device;
  mapping.inode = object.inode;
  mappings.add(mapping);
  mappings.remove({0x14000, 0x15000});
  CHECK(views(mappings, object) == Views{{0x10000, 0x3000, 0x4000}, {0x15000, 0x8000, 0xb000}});
  mappings.remove({0, 0x11000});
  mappings.remove({0x1f000, ~0ull});
  CHECK(views(mappings, object) == Views{{0x11000, 0x4000, 0x3000}, {0x15000, 0x8000, 0xa000}});
  mappings.remove({0x12000, 0x12000});
  CHECK(views(mappings, object).size() == 2);
  CHECK(views(mappings, object, {0, 0x6000}) == Views{{0x11000, 0x4000, 0x3000}});
  CHECK(views(mappings, object, {0x8fff, 0x9000}) == Views{{0x15000, 0x8000, 0xa000}});
  CHECK(views(mappings, object, {0x7000, 0x8000}).empty());
  CHECK(mappings.count(getpid(), object.device, object.inode) == 2);
  mappings.forget();
  CHECK(views(mappings, object).empty());  // the process has none
}

TEST_CASE("shared mappings: after random calls they are those that the kernel names") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr uint64_t kPages = 24;
  const Object objects[] = {Object(kPages), Object(kPages)};
  auto* const area =
      static_cast<char*>(mmap(nullptr, kPages * kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(area != MAP_FAILED);
  SharedMappings mappings;
  CHECK(views(mappings, objects[0]).empty());
  for (int i = 0; i < 2000; ++i) {
    const uint64_t first = random() % kPages, pages = 1 + random() % (kPages - first);
    char* const start = area + first * kPageSize;
    const uint64_t length = pages * kPageSize;
    const AddressRange range{reinterpret_cast<Address>(start), reinterpret_cast<Address>(start) + length};
    const uint64_t what = random() % 5;
    if (what == 0) {
      // Elsewhere in the area, or beside itself; this fails, in part, where the source has a hole or several mappings.
      const uint64_t to = random() % (kPages - pages + 1);
      char* const target = area + to * kPageSize;
      const AddressRange moved{reinterpret_cast<Address>(target), reinterpret_cast<Address>(target) + length};
      mremap(start, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, target);
      mappings.moved(getpid(), range, moved);
    } else if (what == 1) {
      CHECK(mmap(start, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start);
      mappings.remove(range);
    } else {
      const Object& object = objects[random() % 2];
      // Often the offset that continues its neighbours, which the kernel then joins.
      const uint64_t offset = random() % 2 ? first : random() % (kPages - pages + 1);
      CHECK(mmap(start, length, PROT_READ, MAP_SHARED | MAP_FIXED, object.fd.get(),
                 static_cast<off_t>(offset * kPageSize)) == start);
      const auto made = mapping_of(getpid(), range.start);
      CHECK(made);
      mappings.add(*made);
    }
    for (const Object& object : objects) CHECK(views(mappings, object) == fresh(object));
  }
  munmap(area, kPages * kPageSize);
}

TEST_CASE("shared mappings: what is left of a segment is detached from where it was attached") {
  const int segment = shmget(IPC_PRIVATE, 4 * kPageSize, IPC_CREAT | 0600);
  CHECK(segment >= 0);
  char* const at = static_cast<char*>(shmat(segment, nullptr, 0));
  char* const other = static_cast<char*>(shmat(segment, nullptr, 0));
  CHECK(shmctl(segment, IPC_RMID, nullptr) == 0);
  CHECK(munmap(at, kPageSize) == 0);
  const Object file(1);
  void* const in_its_place = mmap(at, kPageSize, PROT_READ, MAP_SHARED | MAP_FIXED, file.fd.get(), 0);
  CHECK(in_its_place == at);
  const auto made = mapping_of(getpid(), reinterpret_cast<Address>(other));
  CHECK(made);
  SharedMappings mappings;
  CHECK(mappings.count(getpid(), made->device, made->inode) == 2);
  CHECK(shmdt(at) == 0);
  mappings.detached(getpid(), reinterpret_cast<Address>(at));
  CHECK(mappings.count(getpid(), made->device, made->inode) == 1);
  CHECK(mappings.count(getpid(), file.device, file.inode) == 1);
  CHECK(shmdt(other) == 0);
  mappings.detached(getpid(), reinterpret_cast<Address>(other));
  CHECK(mappings.count(getpid(), made->device, made->inode) == 0);
  CHECK(munmap(in_its_place, kPageSize) == 0);
}

}  // namespace redrive::shared_mappings_test
