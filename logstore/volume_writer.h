// Writes one volume of a trace: the journal, the segments, the pages and the images in its directory. A separate thread
// packs and writes events; images may be written from a third one. The threads share the journal (by its mutex), the
// list of unsynced paths and the first error. Syncing opens files by path, so that no descriptor is shared.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/write_behind.h"
#include "logstore/batch_writer.h"
#include "logstore/image_publisher.h"
#include "logstore/journal.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {

// The first error of whatever writes a trace: from then on nothing more is written. Thread-safe.
class FirstError {
 public:
  void keep(const Error& error) {
    const Lock lock(mutex_);
    if (!error_) error_ = error;
    failed_ = true;
  }
  void keep(const Result<void>& result) {
    if (!result) keep(result.error());
  }
  bool failed() const { return failed_; }
  Result<void> outcome() {
    const Lock lock(mutex_);
    if (error_) return *error_;
    return {};
  }

 private:
  std::atomic<bool> failed_ = false;
  Mutex mutex_;
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

class VolumeWriter {
 public:
  // `first_error`, `spare` must outlive it.
  VolumeWriter(Storage& storage, std::string directory, FirstError& first_error, SpareBlocks& spare);

  // Makes the files that a reader needs. `above`: directories that hold the volume's, which are synced soon too.
  Result<void> begin(const Settings& settings, std::vector<std::string> above);
  const TraceFiles& files() const { return files_; }

  void note(const JournalRecord& record);
  // Hands over events and payloads to the writing thread. `last`: finish() follows, which syncs everything.
  void write(Batch batch, bool last);
  void wait_until_idle();
  uint64_t bytes() const { return bytes_ + writer_.bytes(); }  // written so far; for any thread
  UnsyncedFiles& unsynced() { return unsynced_; }

  // As TraceWriter's, for one thread at a time, and for none when the volume is finished.
  Result<TraceWriter::ImageStats> write_image(UnitId unit, IntervalIndex interval, const ReadImage& read);
  Result<void> publish_images();
  void end_images(UnitId unit);

  // All units have left it: nothing comes any more, but images.
  void close() { closed_ = true; }
  // Completes it, on any thread, and waits for the disk. Nothing can be written after this.
  Result<void> finish(const RecordingEnd& end);

  // ---- Which units are in it. For one thread, except first_interval().
  // The unit's events go here from this one and this interval on.
  void enter(UnitId unit, EventIndex first_event, IntervalIndex first_interval) EXCLUDES(mutex_);
  void leave(UnitId unit) { inside_.erase(unit); }
  bool is_empty() const { return inside_.empty(); }
  bool is_closed() const { return closed_; }
  bool is_finished() const { return finished_; }
  bool holds(EventRef event) const {
    const auto first = first_events_.find(event.unit);
    return first != first_events_.end() && first->second <= event.event;
  }
  std::optional<IntervalIndex> first_interval(UnitId unit) const EXCLUDES(mutex_);
  // Whether the journal does not name this copy of a file yet; from now on it does.
  bool first_mention(uint64_t file) { return mentioned_.insert(file).second; }
  const std::set<uint64_t>& mentioned_files() const { return mentioned_; }

 private:
  Result<void> write_journal();

  Storage& storage_;
  const TraceFiles files_;
  FirstError& first_error_;
  JournalWriter journal_;
  UnsyncedFiles unsynced_;
  std::vector<std::string> begun_;  // directories that the first batch, or the end, syncs
  std::atomic<uint64_t> bytes_ = 0;

  Mutex images_mutex_;
  ImagePublisher images_ GUARDED_BY(images_mutex_);
  std::atomic<bool> closed_ = false, finished_ = false;

  std::set<UnitId> inside_;
  std::map<UnitId, EventIndex> first_events_;
  mutable Mutex mutex_;
  std::map<UnitId, IntervalIndex> first_intervals_ GUARDED_BY(mutex_);
  std::set<uint64_t> mentioned_;

  BatchWriter writer_;                         // used by the writing thread as long as that exists
  std::optional<WriteBehind<Batch>> batches_;  // the last member: its thread uses the others
};

}  // namespace redrive
