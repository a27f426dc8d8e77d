// What belongs to the thread that writes behind a recording: the units' events on their way to the disk, and
// payloads. Everything that it needs is handed over in a Batch, and close() hands back what remains.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "logstore/event_block.h"
#include "logstore/journal.h"
#include "logstore/payload_file.h"
#include "logstore/record_file.h"
#include "logstore/trace_files.h"

namespace redrive {

// Files that must be on disk before the journal may mention their contents, and the directories of new files.
// Thread-safe.
class UnsyncedFiles {
 public:
  struct Taken {
    std::vector<std::string> paths;
    std::vector<PayloadsPublished> payloads;  // the journal must not mention them before
  };

  void add(std::initializer_list<std::string> paths) { add(paths, {}); }
  void add(const std::vector<std::string>& paths, const std::vector<PayloadsPublished>& payloads);
  Taken take();

 private:
  Mutex mutex_;
  std::set<std::string> paths_ GUARDED_BY(mutex_);
  std::vector<PayloadsPublished> payloads_ GUARDED_BY(mutex_);
};

// Used writers of blocks, whose memory then need not be cleared and mapped again. Thread-safe.
class SpareBlocks {
 public:
  std::unique_ptr<EventBlockWriter> take();
  void give_back(std::unique_ptr<EventBlockWriter> block);

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<EventBlockWriter>> spare_ GUARDED_BY(mutex_);
};

// The events of each unit since the previous batch.
struct Batch {
  struct Block {
    UnitId unit = 0;
    std::unique_ptr<EventBlockWriter> events;
    uint32_t count = 0;
    bool last = false;  // the unit has ended
  };
  struct Ended {
    UnitId unit = 0;
    EventIndex events = 0;  // how many it had
  };
  struct Payload {
    EventRef receiver;
    Bytes bytes;
  };
  std::vector<Block> blocks;
  std::vector<Ended> ended;           // nothing of these comes after this
  std::vector<Payload> payloads;      // of events in this batch, an earlier one, or a later one
  std::vector<std::string> unsynced;  // files that are to be on disk soon

  bool empty() const { return blocks.empty() && ended.empty() && payloads.empty() && unsynced.empty(); }
};

// For one thread. The journal, the spare writers of blocks and the unsynced files are shared with others.
class BatchWriter {
 public:
  BatchWriter(Storage& storage, const TraceFiles& files, JournalWriter& journal, UnsyncedFiles& unsynced,
              SpareBlocks& spare);

  Result<void> write(Batch& batch);
  // Returns the files of events, in the order of their units. Nothing can be written after this.
  Result<std::vector<FileEnd>> close();
  uint64_t bytes() const { return bytes_; }  // written so far; for any thread

 private:
  Result<void> write_journal();
  Result<void> write_payloads();
  Result<void> write_block(const Batch::Block& block);
  void add_short_unit(const Batch::Block& block);
  Result<void> write_short_units();
  void close_files();
  void end(const Batch::Ended& unit);

  Storage& storage_;
  const TraceFiles& files_;
  JournalWriter& journal_;
  UnsyncedFiles& unsynced_;
  SpareBlocks& spare_;
  Compressor compressor_;
  std::unordered_map<UnitId, RecordWriter> events_;  // of units that have not ended
  std::vector<RecordWriter*> open_;                  // those of them with open files
  RecordWriter short_units_;
  std::vector<ShortUnit> new_short_units_;  // not yet in the journal
  struct EventsEnd {
    UnitId unit = 0;
    FileEnd file;
  };
  std::vector<EventsEnd> ended_;
  PayloadWriter payloads_;
  std::atomic<uint64_t> bytes_ = 0;
};

}  // namespace redrive
