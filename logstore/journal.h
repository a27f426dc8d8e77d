// The journal: a trace's small facts, in the order in which they became known. This header says what its records hold
// and how they are encoded; the framing is record_file.h, and trace.cc puts the records together.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "logstore/record_file.h"
#include "logstore/trace.h"

namespace redrive {

// An image was written and synced, after the pages that it names.
struct ImagePublished {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  uint64_t pages = 0;        // in the image
  uint64_t file_size = 0;    // size of the images' file up to its end, or of its own file
  uint64_t store_size = 0;   // bytes of the page store that were synced before it
  uint64_t store_pages = 0;  // pages in them
  uint64_t first_item = 0;   // of its header in the images' file
  bool own_file = false;     // it has a file images/U-I.img, as up to format 3
};

// An image was written, after the pages that it names, but neither is synced. If the recorder is killed, a reader of
// the trace has to check whether the image is there.
struct ImageWritten : ImagePublished {};

// All events of a unit that has ended are in one record, in a segment that such units share.
struct ShortUnit {
  UnitId unit = 0;
  uint64_t first_item = 0;  // of its first event
  uint64_t events = 0;
};

// Payloads of messages that the unit received were written and synced after their events.
struct PayloadsPublished {
  UnitId unit = 0;
  uint64_t size = 0;   // bytes of payloads/U.seg
  uint64_t items = 0;  // payloads in them
};

// The state of a growing file when the recording ended.
struct FileEnd {
  std::string name;    // below the trace's directory
  uint64_t size = 0;   // bytes
  uint64_t items = 0;  // events or pages
};

// The last record of a recording: from now on nothing may be missing. Records after it were added later
// (trace_additions.h).
struct JournalEnd {
  RecordingEnd end;
  std::vector<FileEnd> files;
};

using JournalRecord = std::variant<Settings, UnitRecord, IntervalRecord, IntervalEnd, ChannelRecord, Refusal, Unsure,
                                   FileRecord, ImagePublished, JournalEnd, Interception, StoppingSite,
                                   PayloadsPublished, ShortUnit, Join, ImageWritten, WallClockRecord>;

RecordType type_of(const JournalRecord& record);
Bytes encode(const JournalRecord& record);
// False if the payload is not a record of that type.
bool decode(RecordType type, std::span<const uint8_t> payload, JournalRecord& record);

// Appends to the journal. Thread-safe.
class JournalWriter {
 public:
  JournalWriter(Storage& storage, std::string path) : writer_(storage, std::move(path), FileKind::journal) {}
  Result<void> resume(uint64_t written, uint64_t items) {
    const Lock lock(mutex_);
    return writer_.resume(written, items);
  }
  void add(const JournalRecord& record);
  // Returns the bytes written.
  Result<uint64_t> write();
  size_t buffered();  // how many bytes write() would write

 private:
  Mutex mutex_;
  RecordWriter writer_ GUARDED_BY(mutex_);
};

}  // namespace redrive
