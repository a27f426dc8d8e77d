// The memory of one process of a recording, at a place of which there is an image, or where a unit stands stopped.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "checkpoint/unit_state.h"
#include "logstore/trace.h"

namespace redrive {

// The trace's copies of mapped files, opened. Not for several threads.
class OpenCopies {
 public:
  explicit OpenCopies(const Trace& trace) : trace_(trace) {}

  // The descriptor of the copy, which stays open.
  Result<int> get(uint64_t file);
  // Reads from the copy of the file that a mapping shows. What lies beyond the file's end is zero.
  Result<void> read(const Mapping& mapping, Address from, std::span<uint8_t> to);
  // How many bytes of the mapping, from its start, show the file.
  Result<uint64_t> extent(const Mapping& mapping);

 private:
  const Trace& trace_;
  std::map<uint64_t, Fd> open_;
};

class RecordedMemory {
 public:
  using Visit = std::function<Result<void>(Address, std::span<const uint8_t>)>;

  virtual ~RecordedMemory() = default;
  virtual const std::vector<Mapping>& mappings() const = 0;
  // Pages of one of its mappings that have contents of their own, in address order. All others are zero or show the
  // mapped file.
  virtual Result<std::vector<PageRun>> own_pages(const Mapping& mapping) const = 0;
  // Visits the contents of all these, in any order.
  virtual Result<void> visit_own(const Visit& visit) const = 0;
  // Reads all or nothing. An error: what the trace holds there cannot be read.
  virtual Result<bool> read(Address from, std::span<uint8_t> to) const = 0;
};

// `state` and `image` must outlive it. `process`: has memory of its own. Fails if these contradict each other.
Result<std::unique_ptr<RecordedMemory>> memory_in_image(const Trace& trace, OpenCopies& copies, const UnitState& state,
                                                        const Image& image, const ProcessState& process);
// The memory of a stopped process; both must outlive it.
std::unique_ptr<RecordedMemory> memory_of_stopped(const Memory& memory, const ProcessState& process);

}  // namespace redrive
