// Memory that the supervisor shares with tracees, as a sealed file without a name (memfd_create(2)). Nobody can change
// its size, so no tracee can take away what the supervisor has mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace redrive {

class SharedMemory {
 public:
  enum class Tracees : uint8_t {
    read,   // may map it to read and execute, and never write there (F_SEAL_FUTURE_WRITE)
    write,  // may write, too
  };
  // Zeros, mapped here to read and write.
  static Result<SharedMemory> make(const char* name, size_t size, Tracees tracees);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Where a process finds the file that sees the same processes and could look into this one.
  const std::string& path() const { return path_; }
  // Zeros again, and no memory: whole pages.
  void clear(size_t offset, size_t length) const;
  // Sends the file over a socket (unix(7), SCM_RIGHTS).
  bool send(int socket) const;
  // Nobody finds the file any more: who has it mapped keeps the memory.
  void close();

 private:
  SharedMemory() = default;

  Fd file_;
  std::string path_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace redrive
