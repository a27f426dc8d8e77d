// Builds a unit from a checkpoint: stub processes with the recorded memory, threads and registers, all stopped and
// traced by the calling thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/stub.h"
#include "checkpoint/unit_state.h"

namespace redrive {

// What a re-driven unit has mapped shared. An object that can be changed is a memfd; it is grown as it is mapped unless
// its size is known. One that nobody can change is a file copy of the trace.
class SharedObjects {
 public:
  // A path by which a stub can open the object, whose `size` bytes it can map.
  Result<std::string> path(uint64_t object, uint64_t size);
  Result<void> write(uint64_t object, uint64_t offset, const void* data, size_t size);
  // Makes it so long: what is beyond that is gone, and what is new is zero.
  Result<void> resize(uint64_t object, uint64_t size);
  // Makes a range zero. The object keeps its size.
  Result<void> clear(uint64_t object, uint64_t offset, uint64_t length);
  // Fills a range with what the file at this path holds there.
  Result<void> fill(uint64_t object, uint64_t offset, uint64_t length, const std::string& path);
  // Which object this is, as processes that have mapped it show it.
  std::optional<uint64_t> object_of(uint64_t device, uint64_t inode) const;
  // Its size, if it was resized.
  std::optional<uint64_t> size_of(uint64_t object) const;

  // The object shows the trace's copy of this file, until take_copy(), which answers which one it was; 0: none.
  void show_copy(uint64_t object, uint64_t file) { copies_[object] = file; }
  uint64_t take_copy(uint64_t object);
  // The object that shows this copy; 0: none.
  uint64_t shows(uint64_t file) const;

 private:
  struct Object {
    Fd fd;
    uint64_t size = 0;
    bool sized = false;  // by resize()
  };
  Result<Object*> at_least(uint64_t object, uint64_t size);
  std::map<uint64_t, Object> objects_;
  std::map<uint64_t, uint64_t> copies_;  // files, by object
};

struct RestoredProcess {
  Stub stub;
  Address brk = 0;
  int32_t pid = 0;                    // when recorded
  std::optional<uint32_t> memory_of;  // the process whose memory it was born on (ProcessState)
  std::shared_ptr<LocalDescriptors> descriptors = std::make_shared<LocalDescriptors>();  // shared with the memory
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

Result<RestoredUnit> restore(const UnitState& state, const ReadPages& read_pages, const FilePath& file_path,
                             const StubTier& tier = {});

// Adds what maps one recorded mapping: file copies private, shared objects shared (for reading only, if nobody can
// change them), the stack growing downwards.
Result<void> map(Calls& calls, const Mapping& mapping, SharedObjects& shared, const FilePath& file_path);

}  // namespace redrive
