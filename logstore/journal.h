// The journal: a trace's small facts in the order in which they were learnt. Here is what its records say and how they
// are encoded; the framing is record_file.h, and trace.cc makes the whole of it.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "logstore/record_file.h"
#include "logstore/trace.h"

namespace redrive {

// An image was written and synced, and the pages that it names were synced before.
struct ImagePublished {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  uint64_t pages = 0;        // in the image
  uint64_t file_size = 0;    // bytes of the images' file up to its end; of a file of its own, where it has one
  uint64_t store_size = 0;   // bytes of the page store that were synced before
  uint64_t store_pages = 0;  // pages in them
  uint64_t first_item = 0;   // of its header in the images' file
  bool own_file = false;     // images/U-I.img, as up to format 3
};

// An image was written, and the pages that it names before, but none of it synced: if the recorder is killed, whoever
// reads the trace has to look whether it is there.
struct ImageWritten : ImagePublished {};

// All events of a unit that has ended lie in one record, in the segment that such units share.
struct ShortUnit {
  UnitId unit = 0;
  uint64_t first_item = 0;  // of its first event
  uint64_t events = 0;
};

// Contents of messages that unit's receives brought were written and synced, after the recording.
struct PayloadsPublished {
  UnitId unit = 0;
  uint64_t size = 0;   // bytes of payloads/U.seg
  uint64_t items = 0;  // payloads in them
};

// A growing file as it was when the recording ended.
struct FileEnd {
  std::string name;    // below the trace's directory
  uint64_t size = 0;   // bytes
  uint64_t items = 0;  // events or pages
};

// The last record of a recording: nothing may be missing any more. What follows was added later (trace_additions.h).
struct JournalEnd {
  RecordingEnd end;
  std::vector<FileEnd> files;
};

using JournalRecord = std::variant<Settings, UnitRecord, IntervalRecord, IntervalEnd, ChannelRecord, Refusal, Unsure,
                                   FileRecord, ImagePublished, JournalEnd, Interception, StoppingSite,
                                   PayloadsPublished, ShortUnit, Join, ImageWritten>;

RecordType type_of(const JournalRecord& record);
Bytes encode(const JournalRecord& record);
// False if the payload is not a record of that type.
bool decode(RecordType type, std::span<const uint8_t> payload, JournalRecord& record);

// Appends to the journal; thread-safe.
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
  size_t buffered();  // bytes that write() would write

 private:
  Mutex mutex_;
  RecordWriter writer_ GUARDED_BY(mutex_);
};

}  // namespace redrive
