#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/write_behind.h"
#include "logstore/catalog.h"
#include "logstore/file_store.h"
#include "logstore/image_publisher.h"
#include "logstore/journal.h"
#include "logstore/payload_file.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {

struct TraceWriter::Segment {
  Segment(Storage& storage, const std::string& path, CatalogTally::Unit& counts)
      : unit(counts.id), counts(counts), writer(storage, path, FileKind::events, unit) {}
  UnitId unit;
  CatalogTally::Unit& counts;  // until its end
  RecordWriter writer;         // of the writing thread
  Encoder pending;
  uint32_t pending_events = 0;
  EventIndex events = 0;
};

namespace {

using Segment = TraceWriter::Segment;

constexpr size_t kFlushSize = 256 << 10;  // of all units' encoded events together
constexpr int kEventLevel = 1;
constexpr size_t kOpenSegments = 256;  // a make -j has thousands of units, a process 1024 descriptors
constexpr size_t kQueuedBatches = 4;
constexpr size_t kSpareEncoders = 8;

// What is left to say of a segment when the recording ends.
struct SegmentEnd {
  UnitId unit = 0;
  uint64_t bytes = 0;
  EventIndex events = 0;
};

// Events on their way to the disk: of each unit those since the batch before.
struct Batch {
  struct Block {
    Segment* segment;
    Encoder events;
    uint32_t count;
    bool last;  // the unit has ended
  };
  std::vector<Block> blocks;
  std::vector<std::unique_ptr<Segment>> ended;  // nothing comes after this
  std::vector<CatalogMessage> messages;
  std::vector<CatalogTally::Ended> counted;
  CatalogTally::Channels channels;
  struct Payload {
    EventRef receiver;
    Bytes bytes;
  };
  std::vector<Payload> payloads;  // of events in this batch, in one before, or still to come
};

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

}  // namespace

struct TraceWriter::State {
  State(Storage& s, std::string directory, FileCache* cache)
      : storage(s),
        files{std::move(directory)},
        journal(s, files.journal()),
        images(s, files, journal),
        copies(s, files.files(), cache),
        compressor(kEventLevel),
        short_units(s, files.segment(TraceFiles::kShortUnits), FileKind::events, TraceFiles::kShortUnits),
        payloads(s, files),
        batches(kQueuedBatches, [this](Batch& batch) {
          if (!failed) keep_error(write(batch));
        }) {}

  // Keeps the first error.
  void fail(const Error& error) {
    const Lock lock(error_mutex);
    if (!first_error) first_error = error;
    failed = true;
  }
  void keep_error(const Result<void>& result) {
    if (!result) fail(result.error());
  }
  Result<void> outcome() {
    const Lock lock(error_mutex);
    if (first_error) return *first_error;
    return {};
  }

  void note(const JournalRecord& record) {
    if (!failed) journal.add(record);
  }

  Segment& segment(UnitId unit) {
    auto& segment = segments[unit];
    if (!segment) segment = std::make_unique<Segment>(storage, files.segment(unit), tally.unit(unit));
    return *segment;
  }

  // Gives what is buffered to the writing thread.
  void hand_over() {
    Batch batch;
    const auto take = [&](Segment& segment, bool last) {
      if (segment.pending_events == 0) return;
      batch.blocks.push_back({&segment, std::move(segment.pending), std::exchange(segment.pending_events, 0), last});
      segment.pending = Encoder();
    };
    for (auto& [unit, segment] : segments) take(*segment, false);
    for (auto& segment : ended) take(*segment, true);
    batch.ended = std::exchange(ended, {});
    pending_bytes = 0;
    batch.payloads = std::exchange(pending_payloads, {});
    if (batch.blocks.empty() && batch.ended.empty() && batch.payloads.empty() && journal.buffered() == 0) return;
    std::swap(batch.messages, tally.messages());
    batch.counted = tally.take_ended();
    batch.channels = tally.take_channels();
    batches.add(std::move(batch));
  }

  // Memory that was used already is not cleared and mapped again.
  Encoder spare_encoder() {
    const Lock lock(spare_mutex);
    if (spare.empty()) return {};
    Encoder encoder = std::move(spare.back());
    spare.pop_back();
    return encoder;
  }

  // ---- The writing thread's

  // The journal before the events: it has what they cannot be understood without, such as where an interval begins with
  // another program, joined threads or a preempted one, and the files that they map. Of an interval without its events
  // the reader makes nothing.
  Result<void> write(Batch& batch) {
    TRY(write_journal());
    for (auto& block : batch.blocks) {
      if (block.last && !block.segment->writer.exists()) {
        add_short_unit(block);
      } else {
        if (open_segments.size() >= kOpenSegments) close_segments();
        TRY(write_block(block));
      }
      block.events.clear();
      const Lock lock(spare_mutex);
      if (spare.size() < kSpareEncoders) spare.push_back(std::move(block.events));
    }
    TRY(write_short_units());
    for (auto& segment : batch.ended) end(*segment);
    for (const auto& payload : batch.payloads) payloads.add(payload.receiver, payload.bytes);
    if (payloads.buffered() > kFlushSize) TRY(write_payloads());
    TRY(write_journal());
    list_messages(batch);
    return {};
  }

  Result<void> write_payloads() {
    TRY(payloads.write());
    const Lock lock(unsynced_mutex);
    for (const auto& written : payloads.take_written()) {
      unsynced.insert({files.directory, files.payloads(), files.payloads(written.unit)});
      written_payloads.push_back(written);
    }
    return {};
  }

  void end(Segment& segment) {
    std::erase(open_segments, &segment);
    if (segment.writer.exists()) segment_ends.push_back({segment.unit, segment.writer.written(), segment.events});
  }

  Result<void> write_block(const Batch::Block& block) {
    RecordWriter& writer = block.segment->writer;
    const uint64_t before = writer.written();
    const bool fresh = !writer.exists();
    writer.add(RecordType::events, block.events.data(), block.count, &compressor);
    if (!writer.is_open()) open_segments.push_back(block.segment);
    TRY(writer.write());
    bytes += writer.written() - before;
    const Lock lock(unsynced_mutex);
    unsynced.insert(writer.path());
    if (fresh) unsynced.insert(files.events());
    return {};
  }

  // Making a file takes longer than most programs of a shell script make events.
  void add_short_unit(const Batch::Block& block) {
    new_short_units.push_back({block.segment->unit, short_units.items(), block.count});
    short_units.add(RecordType::events, block.events.data(), block.count, &compressor);
  }

  Result<void> write_short_units() {
    if (new_short_units.empty()) return {};
    const uint64_t before = short_units.written();
    const bool fresh = !short_units.exists();
    TRY(short_units.write());
    bytes += short_units.written() - before;
    for (const auto& unit : std::exchange(new_short_units, {})) journal.add(unit);
    const Lock lock(unsynced_mutex);
    unsynced.insert(short_units.path());
    if (fresh) unsynced.insert(files.events());
    return {};
  }

  void close_segments() {
    for (Segment* segment : open_segments) segment->writer.close();
    open_segments.clear();
  }

  // The catalog's rows for what was written. Where they cannot be stored, the catalog is made from the trace in the
  // end.
  void list_messages(const Batch& batch) {
    const bool counted = !batch.counted.empty() || !batch.channels.empty();
    if (catalog_failed || (batch.messages.empty() && batch.payloads.empty() && !counted)) return;
    const auto list = [&]() -> Result<void> {
      if (!catalog) {
        ASSIGN_OR_RETURN(catalog, CatalogWriter::create(storage, files.growing_catalog()));
      }
      TRY(catalog->add(batch.messages));
      TRY(catalog->add(batch.counted, batch.channels));
      for (const auto& payload : batch.payloads) TRY(catalog->note_payload(payload.receiver, payload.bytes.size()));
      return {};
    };
    if (list()) return;
    catalog_failed = true;
    catalog.reset();
  }

  Result<void> publish_catalog(const Trace& trace) {
    if (!catalog && !catalog_failed) {
      ASSIGN_OR_RETURN(catalog, CatalogWriter::create(storage, files.growing_catalog()));
    }
    auto published = catalog ? catalog->publish(trace, tally) : build_catalog(trace);
    catalog.reset();
    return published;
  }

  Result<void> write_journal() {
    ASSIGN_OR_RETURN(const uint64_t written, journal.write());
    bytes += written;
    return {};
  }

  // What must be on disk before the journal may speak of it: files, and the directories that new ones are in. Of the
  // payloads it must not before.
  struct Unsynced {
    std::vector<std::string> paths;
    std::vector<PayloadsPublished> payloads;
  };
  Unsynced take_unsynced() {
    const Lock lock(unsynced_mutex);
    Unsynced taken{{unsynced.begin(), unsynced.end()}, std::exchange(written_payloads, {})};
    unsynced.clear();
    return taken;
  }

  Result<void> publish_images() {
    if (!images.pending()) return {};
    const Unsynced synced = take_unsynced();
    TRY(images.publish(synced.paths));
    for (const auto& of : synced.payloads) journal.add(of);
    TRY(write_journal());
    return storage.sync({files.journal()});
  }
  Result<void> finish(const RecordingEnd& end);

  Storage& storage;
  TraceFiles files;
  Fd lock;  // tells readers that the recording is under way
  JournalWriter journal;
  ImagePublisher images;  // of the publishing thread
  FileStoreWriter copies;
  CatalogTally tally;
  std::unordered_map<UnitId, std::unique_ptr<Segment>> segments;
  std::vector<std::unique_ptr<Segment>> ended;  // not yet handed over
  size_t pending_bytes = 0;                     // of events and payloads
  std::vector<Batch::Payload> pending_payloads;
  bool finished = false;

  // The writing thread's, as long as it is not idle:
  Compressor compressor;
  std::unique_ptr<CatalogWriter> catalog;  // from the first message or ended unit on
  bool catalog_failed = false;
  std::vector<Segment*> open_segments;
  RecordWriter short_units;
  std::vector<ShortUnit> new_short_units;  // not yet in the journal
  std::vector<SegmentEnd> segment_ends;
  PayloadWriter payloads;

  std::atomic<uint64_t> bytes = 0;
  std::atomic<bool> failed = false;
  Mutex error_mutex;
  std::optional<Error> first_error GUARDED_BY(error_mutex);
  Mutex unsynced_mutex;
  std::set<std::string> unsynced GUARDED_BY(unsynced_mutex);
  std::vector<PayloadsPublished> written_payloads GUARDED_BY(unsynced_mutex);  // those that the journal has not
  Mutex spare_mutex;
  std::vector<Encoder> spare GUARDED_BY(spare_mutex);
  WriteBehind<Batch> batches;  // the last member: its thread uses the others
};

Result<void> TraceWriter::State::finish(const RecordingEnd& end) {
  for (auto& [unit, segment] : segments) ended.push_back(std::move(segment));
  segments.clear();
  hand_over();
  batches.wait_until_idle();
  TRY(outcome());
  JournalEnd last{end, {}};
  std::sort(segment_ends.begin(), segment_ends.end(), [](const auto& a, const auto& b) { return a.unit < b.unit; });
  for (const auto& segment : segment_ends) {
    last.files.push_back(
        {files.segment(segment.unit).substr(files.directory.size() + 1), segment.bytes, segment.events});
  }
  TRY(write_payloads());
  if (short_units.exists()) {
    last.files.push_back(
        {TraceFiles::segment_name(TraceFiles::kShortUnits), short_units.written(), short_units.items()});
  }
  if (const RecordWriter& lists = images.images(); lists.exists()) {
    last.files.push_back({TraceFiles::images_name(), lists.written(), lists.items()});
  }
  Unsynced unsynced_now = take_unsynced();
  if (const PageStoreWriter& pages = images.pages(); pages.exists()) {
    last.files.push_back({TraceFiles::pages_name(), pages.bytes(), pages.pages()});
    unsynced_now.paths.push_back(pages.path());
    unsynced_now.paths.push_back(images.images().path());
  }
  TRY(storage.sync(unsynced_now.paths));
  for (const auto& of : unsynced_now.payloads) journal.add(of);
  journal.add(last);
  TRY(write_journal());
  TRY(storage.sync({files.journal()}));
  ASSIGN_OR_RETURN(const auto trace, Trace::open(files.directory, storage));
  return publish_catalog(*trace);
}

TraceWriter::TraceWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

TraceWriter::~TraceWriter() {
  if (!state_->finished && !state_->failed) state_->hand_over();
}

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(const std::string& directory, const Settings& settings,
                                                         Storage& storage, FileCache* cache) {
  if (storage.exists(directory)) return Error{directory + " exists already: choose another directory, or remove it"};
  const TraceFiles files{directory};
  TRY(storage.make_directory(directory));
  auto state = std::make_unique<State>(storage, directory, cache);
  state->lock = storage.lock(directory);
  const auto begin = [&]() -> Result<void> {
    for (const auto& below : {files.events(), files.files()}) TRY(storage.make_directory(below));
    state->journal.add(settings);
    TRY(state->write_journal());
    return storage.sync({files.journal(), directory, parent_of(directory)});
  };
  if (auto begun = begin(); !begun) {
    for (const auto& path : {files.journal(), files.events(), files.files(), directory}) {
      (void)static_cast<bool>(storage.remove(path));
    }
    return begun.error();
  }
  return std::unique_ptr<TraceWriter>(new TraceWriter(std::move(state)));
}

TraceWriter::Segment& TraceWriter::segment(UnitId unit) { return state_->segment(unit); }

EventIndex TraceWriter::append(Segment& segment, const Event& event) {
  const EventIndex index = segment.events++;
  if (state_->failed) return index;
  if (segment.pending_events == 0) segment.pending = state_->spare_encoder();
  const size_t before = segment.pending.size();
  encode(event, segment.pending);
  segment.pending_events++;
  state_->tally.add(segment.counts, index, event);
  state_->pending_bytes += segment.pending.size() - before;
  if (state_->pending_bytes > kFlushSize) state_->hand_over();
  return index;
}

void TraceWriter::add_payload(EventRef receiver, uint64_t channel, Bytes payload) {
  if (state_->failed) return;
  state_->tally.add_payload(channel, payload.size());
  state_->pending_bytes += payload.size();
  state_->pending_payloads.push_back({receiver, std::move(payload)});
  if (state_->pending_bytes > kFlushSize) state_->hand_over();
}

void TraceWriter::end_unit(UnitId unit) {
  state_->tally.end(unit);
  const auto found = state_->segments.find(unit);
  if (found == state_->segments.end()) return;
  state_->ended.push_back(std::move(found->second));
  state_->segments.erase(found);
}

void TraceWriter::add(const UnitRecord& unit) { state_->note(unit); }
void TraceWriter::add(const IntervalRecord& interval) {
  state_->tally.add(interval);
  state_->note(interval);
}
void TraceWriter::add(const IntervalEnd& end) { state_->note(end); }
void TraceWriter::add(const ChannelRecord& channel) { state_->note(channel); }
void TraceWriter::add(const Refusal& refusal) { state_->note(refusal); }
void TraceWriter::add(const Unsure& unsure) { state_->note(unsure); }
void TraceWriter::add(const Interception& interception) { state_->note(interception); }
void TraceWriter::add(const StoppingSite& site) { state_->note(site); }
void TraceWriter::add(const Join& join) { state_->note(join); }

Result<void> TraceWriter::write_behind() {
  if (!state_->failed) state_->hand_over();
  return state_->outcome();
}

Result<void> TraceWriter::flush() {
  if (!state_->failed) state_->hand_over();
  state_->batches.wait_until_idle();
  return state_->outcome();
}

Result<uint64_t> TraceWriter::add_file(const std::string& open_path, const std::string& path, bool mapped) {
  TRY(state_->outcome());
  bool storage_failed = false;
  auto added = state_->copies.add(open_path, path, mapped, storage_failed);
  if (!added) {
    if (storage_failed) state_->fail(added.error());
    return added.error();
  }
  state_->bytes += added->written;
  if (added->fresh) state_->note(added->record);
  const Lock lock(state_->unsynced_mutex);
  for (auto& copied : state_->copies.take_unsynced()) {
    state_->unsynced.insert(std::move(copied));
    state_->unsynced.insert(state_->files.files());
  }
  return added->record.file;
}

Result<TraceWriter::ImageStats> TraceWriter::write_image(UnitId unit, IntervalIndex interval, const ReadImage& read) {
  TRY(state_->outcome());
  bool storage_failed = false;
  auto written = state_->images.write(unit, interval, read, storage_failed);
  if (!written && storage_failed) state_->fail(written.error());
  if (!written) return written;
  state_->bytes += written->bytes;
  state_->images.announce();
  auto announced = state_->write_journal();
  state_->keep_error(announced);
  if (!announced) return announced.error();
  return written;
}

Result<void> TraceWriter::publish_images() {
  TRY(state_->outcome());
  auto published = state_->publish_images();
  state_->keep_error(published);
  return published;
}

Result<TraceWriter::ImageStats> TraceWriter::publish_image(UnitId unit, IntervalIndex interval, const ReadImage& read) {
  ASSIGN_OR_RETURN(const ImageStats stats, write_image(unit, interval, read));
  TRY(publish_images());
  return stats;
}

void TraceWriter::end_images(UnitId unit) { state_->images.end_unit(unit); }

const std::string& TraceWriter::directory() const { return state_->files.directory; }
uint64_t TraceWriter::bytes_written() const { return state_->bytes; }

Result<void> TraceWriter::finish(const RecordingEnd& end) {
  if (!state_->failed && !state_->finished) state_->keep_error(state_->finish(end));
  state_->finished = true;
  return state_->outcome();
}

}  // namespace redrive
