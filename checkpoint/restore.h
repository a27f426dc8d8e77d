// Builds a unit from a checkpoint: stub processes with the recorded memory, threads and registers, all stopped and
// traced by the calling thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/stub.h"
#include "checkpoint/unit_state.h"

namespace redrive {

// Writable memory shared inside a re-driven unit, one memfd an object, grown as it is mapped.
class SharedObjects {
 public:
  // A path by which a stub can open the object, which is at least `size` bytes long.
  Result<std::string> path(uint64_t object, uint64_t size);
  Result<void> write(uint64_t object, uint64_t offset, const void* data, size_t size);
  // Which object this is, as processes that have mapped it show it.
  std::optional<uint64_t> object_of(uint64_t device, uint64_t inode) const;

 private:
  struct Object {
    Fd fd;
    uint64_t size = 0;
  };
  Result<Object*> at_least(uint64_t object, uint64_t size);
  std::map<uint64_t, Object> objects_;
};

struct RestoredProcess {
  Stub stub;
  Address brk = 0;
};

struct RestoredUnit {
  std::map<uint32_t, RestoredProcess> processes;  // by process serial
  std::map<uint32_t, pid_t> threads;              // by thread serial: the stub's thread
  SharedObjects shared;
};

// Hands over all stored pages, many at a time, in any order.
using FillPages = std::function<Result<void>(std::span<const PageRef>)>;
using ReadPages = std::function<Result<void>(const FillPages& fill)>;
using FilePath = std::function<Result<std::string>(uint64_t file)>;

Result<RestoredUnit> restore(const UnitState& state, const ReadPages& read_pages, const FilePath& file_path);

// Adds what maps one recorded mapping: file copies private, shared objects shared, the stack growing downwards.
Result<void> map(Calls& calls, const Mapping& mapping, SharedObjects& shared, const FilePath& file_path);

}  // namespace redrive
