// Memory for the pages that are read while a unit is stopped. Up to 32 MiB of what was used is kept for the next image,
// because the kernel takes 2 us to make a page, and 0.3 us to copy into one that is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace redrive {

class PageBuffers {
 public:
  static constexpr size_t kSize = 1 << 20;  // of a buffer, in bytes

  PageBuffers() = default;
  PageBuffers(const PageBuffers&) = delete;
  PageBuffers& operator=(const PageBuffers&) = delete;
  ~PageBuffers();

  // Makes buffers for so many bytes now, so that they need not be made when they are wanted.
  void prepare(size_t bytes);
  // A buffer, which comes back when its last user, on any thread, lets go of it. Throws std::bad_alloc. All must have
  // come back before this is destroyed.
  std::shared_ptr<uint8_t> take();
  // Has the kernel make the pages of a part of a buffer together, which is faster than one by one when they are
  // written.
  static void populate(uint8_t* part, size_t size);

 private:
  void give_back(uint8_t* buffer);

  Mutex mutex_;
  std::vector<uint8_t*> free_ GUARDED_BY(mutex_);
};

}  // namespace redrive
