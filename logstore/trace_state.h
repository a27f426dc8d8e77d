// The contents of a Trace, known only to trace.cc (reading) and trace_check.cc (verifying).
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "logstore/copy_verifier.h"
#include "logstore/event_block.h"
#include "logstore/journal.h"
#include "logstore/page_store.h"
#include "logstore/payload_file.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {

// One unit's events. Thread-safe once loaded.
class EventSegment {
 public:
  // `end`: what the journal says of the segment of a finished recording.
  EventSegment(std::unique_ptr<RecordFile> file, std::optional<FileEnd> end)
      : own_file_(std::move(file)),
        file_(*own_file_),
        count_(end ? end->items : file_.items()),
        readable_(file_.items()),
        open_end_(!end) {}
  // For a unit whose events are in a shared file. `finished`: whether all of its events must be there.
  EventSegment(const RecordFile& file, const ShortUnit& place, bool finished)
      : file_(file),
        first_item_(place.first_item),
        readable_(std::min(place.events, file_.items() - std::min(file_.items(), place.first_item))) {
    count_ = finished ? place.events : readable_;
  }
  EventIndex count() const { return count_; }
  const RecordFile& file() const { return file_; }
  bool has_own_file() const { return own_file_ != nullptr; }
  Result<void> for_each(EventIndex first, EventIndex last,
                        const std::function<bool(EventIndex, const Event&)>& visit) const;

 private:
  Result<std::unique_ptr<EventBlock>> block_at(const RecordHeader& record, uint64_t item) const;
  struct Visited {
    std::array<Event, 2> events;
    uint64_t latest_ns = 0;  // what was guessed for the last one's time
  };
  Result<bool> visit_block(const RecordHeader& record, uint64_t& item, uint64_t last, Visited& visited,
                           const std::function<bool(EventIndex, const Event&)>& visit) const;

  std::unique_ptr<RecordFile> own_file_;
  const RecordFile& file_;
  uint64_t first_item_ = 0;  // of event 0
  EventIndex count_ = 0;
  EventIndex readable_ = 0;
  bool open_end_ = false;  // more may follow after what is readable
  mutable Mutex mutex_;
  // Where the last reader stopped, unless another one continues there: the next one usually does.
  mutable std::unique_ptr<EventBlock> last_ GUARDED_BY(mutex_);
};

// Opened when it is first needed; if that fails, the error is kept. Null is a value. Thread-safe.
template <typename T>
class Lazy {
 public:
  // `open` returns a Result<std::unique_ptr<T>>.
  template <typename Open>
  Result<const T*> get(Open open) {
    std::call_once(once_, [&] {
      auto opened = open();
      if (opened) {
        value_ = std::move(opened).value();
      } else {
        error_ = opened.error();
      }
    });
    if (error_) return *error_;
    return static_cast<const T*>(value_.get());
  }

 private:
  std::once_flag once_;
  std::unique_ptr<T> value_;
  std::optional<Error> error_;
};

struct Trace::State {
  State(std::string directory, Storage& s) : files{std::move(directory)}, storage(s) {}

  TraceFiles files;
  Storage& storage;
  std::unique_ptr<RecordFile> journal;
  bool locked = false;  // by its writer, before the journal was read
  Settings settings;
  std::optional<JournalEnd> end;
  std::unordered_map<std::string, FileEnd> file_ends;  // by name
  RecordingEnd recording_end;
  std::map<UnitId, UnitRecord> unit_records;
  std::vector<UnitRecord> units;
  std::map<UnitId, std::vector<IntervalRecord>> intervals;
  std::map<std::pair<UnitId, IntervalIndex>, IntervalEnd> interval_ends;
  std::vector<ChannelRecord> channels;
  std::map<uint64_t, FileRecord> file_records;
  std::vector<Refusal> refusals;
  std::vector<Unsure> unsure;
  std::vector<Interception> interceptions;
  std::vector<StoppingSite> stopping_sites;
  std::vector<Join> joins;
  WallClock wall_clock;
  std::map<std::pair<UnitId, IntervalIndex>, ImagePublished> images;
  std::map<UnitId, PayloadsPublished> payloads_published;
  std::optional<ImagePublished> last_image;
  std::vector<ImageWritten> unsynced_images;  // since then
  std::map<UnitId, ShortUnit> short_units;
  std::map<UnitId, std::string> names;

  // Whether a process was killed while adding to the trace: its files may then hold more than the journal says.
  bool preparing() const { return storage.exists(files.preparing()); }
  Tail images_tail() const;
  bool may_be_there(const std::string& path) const;
  FileEnd published_pages() const;
  FileEnd published_images() const;
  Result<void> read_journal();
  Result<void> take(const RecordHeader& at, const JournalRecord& record);
  Result<void> take_unsynced_images();
  void cut_to_events();
  void mark_images();
  void name_units();
  std::optional<FileEnd> end_of(const std::string& name) const;

  mutable std::map<UnitId, Lazy<EventSegment>> segments;   // one for each unit, made at open
  Result<const EventSegment*> segment(UnitId unit) const;  // null: the unit has no events
  Result<std::unique_ptr<EventSegment>> open_segment(UnitId unit) const;

  mutable Lazy<RecordFile> short_segment;
  Result<const RecordFile*> short_events() const;  // null: there are none

  mutable Lazy<RecordFile> image_lists;
  Result<const RecordFile*> image_file() const;  // null: no image was stored there

  mutable Lazy<PageStore> pages;
  Result<const PageStore*> page_store() const;  // null: no page was stored
  Result<std::unique_ptr<PageStore>> open_page_store() const;

  mutable std::map<UnitId, Lazy<PayloadFile>> payload_files;  // one for each unit that has some
  Result<const PayloadFile*> payloads(UnitId unit) const;     // that were added; null: none

  Result<void> verify_copy(const FileRecord& file) const;
  mutable CopyVerifier used_copies{[this](const FileRecord& file) { return verify_copy(file); }};
};

}  // namespace redrive
