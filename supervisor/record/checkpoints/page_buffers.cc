#include "supervisor/record/checkpoints/page_buffers.h"

#include <sys/mman.h>

#include <new>

#include "base/page.h"

namespace redrive {
namespace {

constexpr size_t kMostKept = 32;  // buffers that nobody uses

uint8_t* make() {
  void* const buffer = mmap(nullptr, PageBuffers::kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) throw std::bad_alloc();
  return static_cast<uint8_t*>(buffer);
}

}  // namespace

PageBuffers::~PageBuffers() {
  for (uint8_t* const buffer : free_) munmap(buffer, kSize);
}

void PageBuffers::prepare(size_t bytes) {
  const Lock lock(mutex_);
  while (free_.size() * kSize < bytes) {
    free_.push_back(make());
    populate(free_.back(), kSize);
  }
}

void PageBuffers::populate(uint8_t* part, size_t size) {
  if (size > kPageSize) madvise(part, size, MADV_POPULATE_WRITE);
}

std::shared_ptr<uint8_t> PageBuffers::take() {
  uint8_t* buffer = nullptr;
  {
    const Lock lock(mutex_);
    if (!free_.empty()) {
      buffer = free_.back();
      free_.pop_back();
    }
  }
  if (!buffer) buffer = make();
  return {buffer, [this](uint8_t* used) { give_back(used); }};
}

void PageBuffers::give_back(uint8_t* buffer) {
  {
    const Lock lock(mutex_);
    if (free_.size() < kMostKept) {
      free_.push_back(buffer);
      return;
    }
  }
  munmap(buffer, kSize);
}

}  // namespace redrive
