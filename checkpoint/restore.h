// Builds a unit from a checkpoint: stub processes with the recorded memory, threads and registers, all stopped and
// traced by the calling thread. Pages are filled in in the order in which the page store has them, so that each of its
// records is read once. Registers are set last.
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

// The objects that a re-driven unit has mapped shared. An object that can be changed is a memfd; unless its size is
// known, it grows as it is mapped. An object that nobody can change is a copy of the file in the trace.
class SharedObjects {
 public:
  // A path by which a stub can open the object so that it can map `size` bytes of it.
  Result<std::string> path(uint64_t object, uint64_t size);
  Result<void> write(uint64_t object, uint64_t offset, const void* data, size_t size);
  // Sets the size: what is beyond it is lost, and what is new is zero.
  Result<void> resize(uint64_t object, uint64_t size);
  // Makes a range zero. The size of the object does not change.
  Result<void> clear(uint64_t object, uint64_t offset, uint64_t length);
  // Fills a range with what the file at this path holds in the same range.
  Result<void> fill(uint64_t object, uint64_t offset, uint64_t length, const std::string& path);
  // Identifies the object by the device and inode that processes see where they have mapped it.
  std::optional<uint64_t> object_of(uint64_t device, uint64_t inode) const;
  // Its size, if it was resized.
  std::optional<uint64_t> size_of(uint64_t object) const;
  // At least what a process can have mapped of it.
  uint64_t mapped_size(uint64_t object) const;

  // The object shows the trace's copy of this file until take_copy(), which returns that file; 0: none.
  void show_copy(uint64_t object, uint64_t file) { copies_[object] = file; }
  uint64_t take_copy(uint64_t object);
  // The object that shows this copy; 0: none.
  uint64_t shows(uint64_t file) const;

 private:
  struct Object {
    Fd fd;
    uint64_t size = 0;
    bool sized = false;  // it was resized
  };
  Result<Object*> at_least(uint64_t object, uint64_t size);
  std::map<uint64_t, Object> objects_;
  std::map<uint64_t, uint64_t> copies_;  // files, by object
};

struct RestoredProcess {
  Stub stub;
  Address brk = 0;
  int32_t pid = 0;                    // when recorded
  std::optional<uint32_t> memory_of;  // the process in whose memory it was born (ProcessState)
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

// What a process that has memory of its own is to be.
struct ProcessPlan {
  const ProcessState& state;
  size_t threads;              // how many it has
  std::vector<Address> pages;  // of its own that will be filled, in ascending order, if it is known
  SharedObjects& shared;
  const FilePath& file_path;
  const StubTier& tier;
};

// A process while it is made.
class ProcessMaker {
 public:
  struct Made {
    Stub stub;
    std::vector<pid_t> threads;  // in the order in which the state has them; none: only the first has been made
  };
  virtual ~ProcessMaker() = default;
  // Puts pages into its own memory.
  virtual Result<void> fill(std::span<const MemoryPiece> pieces) = 0;
  // Called once, after all pages.
  virtual Result<Made> finish() = 0;
};

// What makes processes with their memory. Several threads may use it at the same time. The plan outlives the maker.
class RestoreEngine {
 public:
  virtual ~RestoreEngine() = default;
  virtual Result<std::unique_ptr<ProcessMaker>> begin(const ProcessPlan& plan) = 0;
};

// Without an engine, processes are forked from stubs that are there already (stub_maker.h), and nothing is written to
// files. `stored`: the pages that read_pages hands over, in ascending order of process and address, without their data;
// an engine must know them.
Result<RestoredUnit> restore(const UnitState& state, const ReadPages& read_pages, const FilePath& file_path,
                             const StubTier& tier = {}, RestoreEngine* engine = nullptr,
                             std::span<const PageRef> stored = {});

// Adds the calls that map one recorded mapping: file copies are mapped private, shared objects shared (only for reading
// if nobody can change them). The stack grows downwards, up to the limit that the process had, above the same mappings,
// so it overflows at the same place. Advice about what children get (kForkAdvice) is given again, because a replay
// forks in the stub.
Result<void> map(Calls& calls, const Mapping& mapping, SharedObjects& shared, const FilePath& file_path);

}  // namespace redrive
