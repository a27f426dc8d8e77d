#include "supervisor/tier/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/page.h"
#include "base/pass_fd.h"
#include "base/procfs.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace redrive {

Result<SharedMemory> SharedMemory::make(const char* name, size_t size, Tracees tracees) {
  const auto failed = [] { return errno_error("cannot make shared memory"); };
  SharedMemory memory;
  memory.file_ = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.file_ || ftruncate(memory.file_.get(), static_cast<off_t>(size)) != 0) return failed();
  void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file_.get(), 0);
  if (data == MAP_FAILED) return failed();
  memory.data_ = static_cast<uint8_t*>(data);
  memory.size_ = size;
  const int writing = tracees == Tracees::read ? F_SEAL_FUTURE_WRITE : 0;
  if (fcntl(memory.file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | writing) != 0) return failed();
  memory.path_ = descriptor_path(getpid(), static_cast<uint64_t>(memory.file_.get()));
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, size_);
}

void SharedMemory::clear(size_t offset, size_t length) const {
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(length));
}

void SharedMemory::populate(size_t offset, size_t length) const {
  const size_t skipped = offset % kPageSize;
  madvise(data_ + offset - skipped, length + skipped, MADV_POPULATE_WRITE);
}

bool SharedMemory::send(int socket) const { return pass_fd(socket, file_.get()); }

void SharedMemory::close() { file_ = Fd(); }

}  // namespace redrive
