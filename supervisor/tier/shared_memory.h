// Memory that the supervisor shares with tracees: a sealed file without a name (memfd_create(2)). Nobody can change its
// size, so no tracee can take away what the supervisor has mapped.
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
    read,   // may map it for reading and executing, but never write to it (F_SEAL_FUTURE_WRITE)
    write,  // may also write to it
  };
  // Makes zeroed memory, mapped here for reading and writing.
  static Result<SharedMemory> make(const char* name, size_t size, Tracees tracees);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // The path of the file for a process that sees the same processes as this one and may access it.
  const std::string& path() const { return path_; }
  // Makes whole pages zero again, and frees their memory.
  void clear(size_t offset, size_t length) const;
  // Gives these bytes their memory now, so that whoever comes to them first need not wait for it. Does nothing if
  // memory is short.
  void populate(size_t offset, size_t length) const;
  // Sends the file over a socket (unix(7), SCM_RIGHTS).
  bool send(int socket) const;
  // Nobody can find the file any more; processes that have it mapped keep the memory.
  void close();

 private:
  SharedMemory() = default;

  Fd file_;
  std::string path_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace redrive
