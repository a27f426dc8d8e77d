#include "supervisor/live/shared_objects.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "checkpoint/address_space.h"

namespace redrive {

Result<void> LiveShared::add(UnitId unit, const ProcessState& process, const Memory& memory) {
  for (const Mapping& mapping : process.mappings) {
    if (!mapping.shows_object()) continue;
    Fd& object = objects_[{unit, mapping.shared_object}];
    if (!object) object = Fd(memfd_create("redrive-live", MFD_CLOEXEC));
    if (!object) return errno_error("cannot make shared memory");
    const uint64_t size = mapping.object_size.value_or(mapping.offset + mapping.length());
    struct stat info {};
    if (fstat(object.get(), &info) != 0 ||
        (static_cast<uint64_t>(info.st_size) < size && ftruncate(object.get(), static_cast<off_t>(size)) != 0)) {
      return errno_error("cannot make shared memory");
    }
  }
  const auto shows = [](const Mapping& mapping) { return mapping.shows_object(); };
  return visit_pages(memory, process.mappings, shows,
                     [&](const Mapping& mapping, Address address, std::span<const uint8_t> pages) -> Result<void> {
                       const int fd = objects_.at({unit, mapping.shared_object}).get();
                       const uint64_t offset = mapping.offset + (address - mapping.start);
                       const uint64_t size = mapping.object_size.value_or(offset + pages.size());
                       const size_t length = std::min<uint64_t>(pages.size(), size - std::min(size, offset));
                       if (pwrite(fd, pages.data(), length, static_cast<off_t>(offset)) < 0) {
                         return errno_error("cannot fill shared memory");
                       }
                       return {};
                     });
}

std::vector<int> LiveShared::descriptors() const {
  std::vector<int> all;
  for (const auto& [name, fd] : objects_) all.push_back(fd.get());
  return all;
}

size_t LiveShared::index_of(UnitId unit, uint64_t object) const {
  return static_cast<size_t>(std::distance(objects_.begin(), objects_.find({unit, object})));
}

}  // namespace redrive
