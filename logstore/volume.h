// A part of a trace that lies in one directory, for reading: known only to Trace and what verifies it or adds to it.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
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
  // `first`: the number of its first event. `end`: what the journal says of the segment of a finished recording.
  EventSegment(std::unique_ptr<RecordFile> file, EventIndex first, std::optional<FileEnd> end)
      : own_file_(std::move(file)),
        file_(*own_file_),
        first_(first),
        item_of_0_(0 - first),
        end_(first + (end ? end->items : file_.items())),
        readable_(first + file_.items()),
        open_end_(!end) {}
  // For a unit whose events are in a shared file. `finished`: whether all of its events must be there.
  EventSegment(const RecordFile& file, EventIndex first, const ShortUnit& place, bool finished)
      : file_(file),
        first_(first),
        item_of_0_(place.first_item - first),
        readable_(first + std::min(place.events, file_.items() - std::min(file_.items(), place.first_item))) {
    end_ = finished ? first + place.events : readable_;
  }
  EventIndex end() const { return end_; }  // one past its last event
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
  EventIndex first_ = 0;
  uint64_t item_of_0_ = 0;  // of the event with the number 0, modulo 2^64: it may be before the file's first
  EventIndex end_ = 0;
  EventIndex readable_ = 0;  // one past the last that can be read
  bool open_end_ = false;    // more may follow after what is readable
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

// What a journal says beside where things are.
struct TraceFacts {
  Settings settings;
  std::map<UnitId, UnitRecord> unit_records;
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
};

// One part of a trace on disk: what lies in one directory with a journal. Most traces have only one, and then it is the
// trace's directory. Numbers of events and intervals are as they are stored; a trace whose beginning was removed shows
// smaller ones (trace_state.h). Its facts are moved from here to the trace when it is opened.
struct Volume : TraceFacts {
  // `numbered`: one of several, whose numbers of events and intervals need not begin at 0.
  Volume(std::string directory, Storage& s, bool is_numbered)
      : files{std::move(directory)}, storage(s), numbered(is_numbered) {}
  static Result<std::unique_ptr<Volume>> open(std::string directory, Storage& storage, bool numbered);

  const TraceFiles files;
  Storage& storage;
  const bool numbered;
  std::unique_ptr<RecordFile> journal;
  std::optional<JournalEnd> end;
  std::unordered_map<std::string, FileEnd> file_ends;  // by name
  std::map<std::pair<UnitId, IntervalIndex>, ImagePublished> images;
  std::map<UnitId, PayloadsPublished> payloads_published;
  std::optional<ImagePublished> last_image;
  std::vector<ImageWritten> unsynced_images;  // since then
  std::map<UnitId, ShortUnit> short_units;

  // Whether a process was killed while adding to the trace: its files may then hold more than the journal says.
  bool preparing() const { return storage.exists(files.preparing()); }
  FileEnd published_pages() const;
  FileEnd published_images() const;

  // The number of a unit's first event and interval here.
  EventIndex first_event(UnitId unit) const;
  IntervalIndex first_interval(UnitId unit) const;
  EventIndex end_event(UnitId unit) const;  // one past its last event

  mutable std::map<UnitId, Lazy<EventSegment>> segments;   // one for each unit, made at open
  Result<const EventSegment*> segment(UnitId unit) const;  // null: the unit has no events
  Result<const RecordFile*> short_events() const;          // null: there are none
  Result<const RecordParts*> image_file() const;           // null: no image was stored there
  Result<const PageStore*> page_store() const;             // null: no page was stored
  // The files of these two with all headers, or null.
  Result<std::unique_ptr<RecordFile>> open_all_images() const;
  Result<std::unique_ptr<RecordFile>> open_all_pages() const;
  mutable std::map<UnitId, Lazy<PayloadFile>> payload_files;  // one for each unit that has some
  Result<const PayloadFile*> payloads(UnitId unit) const;     // that were added; null: none

  Result<Image> image(const ImagePublished& published) const;

 private:
  Tail images_tail() const;
  bool may_be_there(const std::string& path) const;
  Result<void> read_journal();
  Result<void> take(const RecordHeader& at, const JournalRecord& record);
  Result<void> take_unsynced_images();
  void cut_to_events();
  std::optional<FileEnd> end_of(const std::string& name) const;
  Result<std::unique_ptr<EventSegment>> open_segment(UnitId unit) const;
  Result<std::unique_ptr<RecordFile>> open_all(const std::string& path, FileKind kind, const FileEnd& end) const;
  Result<std::unique_ptr<RecordParts>> open_parts(const std::string& path, FileKind kind, const FileEnd& end,
                                                  std::vector<RecordPlace> ends) const;

  struct Begin {
    EventIndex event = 0;
    IntervalIndex interval = 0;
  };
  std::map<UnitId, Begin> begins_;  // of units whose numbers do not begin at 0
  mutable Lazy<RecordFile> short_segment_;
  mutable Lazy<RecordParts> image_lists_;
  mutable Lazy<PageStore> pages_;
};

// The numbers of a trace's volumes, in the order in which they were begun.
Result<std::vector<uint64_t>> list_volumes(Storage& storage, const TraceFiles& files);

}  // namespace redrive
