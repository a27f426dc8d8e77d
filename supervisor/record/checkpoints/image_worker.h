// Publishes images off the critical path: a separate thread reads the memory of a stopped copy piece by piece, adds
// what was read already, and hands it all to the trace.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/remote.h"
#include "checkpoint/address_space.h"
#include "checkpoint/unit_state.h"
#include "logstore/trace.h"
#include "supervisor/record/checkpoints/criu_dump.h"
#include "supervisor/record/checkpoints/criu_service.h"
#include "supervisor/record/checkpoints/page_buffers.h"

namespace redrive {

struct ImageJob {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  UnitState state;
  // Pages read while the unit was stopped. Processes that show the same object have the same ones.
  struct Run {
    uint32_t process;
    Address address;
    std::span<const uint8_t> pages;
    std::shared_ptr<uint8_t> buffer;  // in which they lie
  };
  std::vector<Run> runs;
  std::shared_ptr<uint8_t> buffer;  // that is being filled
  size_t free_bytes = 0;            // in it
  // Copies the pages into `buffers`.
  void add(uint32_t process, const Mapping& mapping, Address address, std::span<const uint8_t> pages,
           PageBuffers& buffers);
  uint64_t bytes() const;  // that the runs hold
  // What the program's memory would hold there if the recorder had not patched it.
  struct Patch {
    uint32_t process;
    Address address;
    Bytes original;
  };
  std::vector<Patch> patches;
  // The pages as they would be without patches; `copy` holds them if that makes a difference.
  std::span<const uint8_t> unpatched(uint32_t process, Address address, std::span<const uint8_t> pages,
                                     Bytes& copy) const;
  // A copy whose private pages are still to be read.
  struct Copy {
    uint32_t process = 0;  // of the state
    pid_t pid = -1;
    pid_t number = -1;    // as its original sees it
    pid_t original = -1;  // whose child it is
    Memory memory;
    // If the process was attached to: which of its memory is known to be empty in the copy (madvise(2),
    // MADV_WIPEONFORK). The image fails if there is more.
    std::optional<std::vector<AddressRange>> known_not_copied;
    // If it is not traced any more and sleeps, so that CRIU can dump it: by which it is ended.
    Fd pidfd;
  };
  std::vector<Copy> copies;
  uint64_t copied_bytes = 0;        // the private memory of their originals
  bool by_criu = false;             // if CRIU can; our own image otherwise
  std::vector<UnitId> ended_units;  // no image of them follows
  // It is no image: finishes this volume.
  std::optional<std::pair<TraceWriter::VolumeNumber, RecordingEnd>> volume;
};

struct CopiesAlive {
  size_t count = 0;
  uint64_t bytes = 0;  // that they have copied, as soon as their originals write
};

class ImageWorker {
 public:
  explicit ImageWorker(TraceWriter& writer);
  ~ImageWorker() { close(); }

  // Waits while other images are queued and hold, together with this one, more than 256 MiB of pages.
  void add(ImageJob job);
  // Finishes a volume of the trace, which is closed, when its images are written.
  void finish(TraceWriter::VolumeNumber volume, RecordingEnd end);
  CopiesAlive copies_alive() const;

  struct Done {
    std::vector<ImageJob::Copy> copies;
    uint64_t copied_bytes = 0;
    std::optional<Error> error;
  };
  std::vector<Done> take_done();
  // How many images CRIU has made, and how many that it was to make it has not, with its first error if it had one.
  CriuImages criu_images() const;
  bool is_idle() const;    // what was handed in is written
  void wait_until_idle();  // until what was handed in is written
  // Writes what was handed in and ends the thread. What is not published then is left to the writer's finish().
  void close();

 private:
  void run();
  Result<void> write(ImageJob& job);
  static Result<void> add_copy(ImageJob& job, const ImageJob::Copy& copy, const AddPages& add);
  static Result<void> add_dump(ImageJob& job, CriuDump& dump, const AddPages& add);
  using ReadPages = std::function<Result<void>(const VisitRun& visit)>;
  static Result<void> add_pages(ImageJob& job, uint32_t process, const AddPages& add, const ReadPages& read);
  std::optional<CriuDump> dump(ImageJob& job);
  Result<CriuDump> try_dump(ImageJob& job);

  TraceWriter& writer_;
  mutable Mutex mutex_;
  Condition changed_;
  std::optional<CriuService> criu_;  // the thread's
  std::deque<ImageJob> queue_ GUARDED_BY(mutex_);
  std::vector<Done> done_ GUARDED_BY(mutex_);
  CopiesAlive copies_ GUARDED_BY(mutex_);
  uint64_t queued_bytes_ GUARDED_BY(mutex_) = 0;
  bool busy_ GUARDED_BY(mutex_) = false;
  size_t unpublished_ GUARDED_BY(mutex_) = 0;  // images that are written, to be published together
  CriuImages criu_images_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace redrive
