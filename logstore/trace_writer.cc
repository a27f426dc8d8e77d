#include <algorithm>
#include <atomic>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "base/write_behind.h"
#include "logstore/batch_writer.h"
#include "logstore/file_store.h"
#include "logstore/image_publisher.h"
#include "logstore/journal.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {

struct TraceWriter::Segment {
  std::unique_ptr<EventBlockWriter> pending;  // exists if there are pending events
  uint32_t pending_events = 0;
  EventIndex events = 0;
};

namespace {

using Segment = TraceWriter::Segment;

constexpr size_t kFlushSize = 256 << 10;  // of all units' encoded events together
constexpr size_t kQueuedBatches = 4;

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
        writer(s, files, journal, unsynced, spare) {
    batches.emplace(kQueuedBatches, [this](Batch& batch) {
      if (!failed) keep_error(writer.write(batch));
    });
  }

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
    if (!segment) segment = std::make_unique<Segment>();
    return *segment;
  }

  // Hands over what is buffered to the writing thread.
  void hand_over() {
    if (!batches) return;  // the recording has ended
    Batch batch;
    const auto take = [&](UnitId unit, Segment& segment, bool last) {
      if (segment.pending_events == 0) return;
      batch.blocks.push_back({unit, std::move(segment.pending), std::exchange(segment.pending_events, 0), last});
    };
    for (auto& [unit, segment] : segments) take(unit, *segment, false);
    for (auto& [unit, segment] : ended) {
      take(unit, *segment, true);
      batch.ended.push_back({unit, segment->events});
    }
    ended.clear();
    pending_bytes = 0;
    batch.payloads = std::exchange(pending_payloads, {});
    batch.unsynced = std::exchange(begun, {});
    if (batch.empty() && journal.buffered() == 0) return;
    batches->add(std::move(batch));
  }

  Result<void> write_journal() {
    ASSIGN_OR_RETURN(const uint64_t written, journal.write());
    bytes += written;
    return {};
  }

  Result<void> publish_images() {
    if (!images.pending()) return {};
    const UnsyncedFiles::Taken synced = unsynced.take();
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
  ImagePublisher images;  // used by the publishing thread
  FileStoreWriter copies;
  std::unordered_map<UnitId, std::unique_ptr<Segment>> segments;
  std::vector<std::pair<UnitId, std::unique_ptr<Segment>>> ended;  // not yet handed over
  size_t pending_bytes = 0;                                        // of events and payloads
  std::vector<Batch::Payload> pending_payloads;
  std::vector<std::string> begun;  // files that the first batch, or the end, syncs
  bool finished = false;

  std::atomic<uint64_t> bytes = 0;  // not yet written by the writing thread
  std::atomic<bool> failed = false;
  Mutex error_mutex;
  std::optional<Error> first_error GUARDED_BY(error_mutex);
  UnsyncedFiles unsynced;
  SpareBlocks spare;
  BatchWriter writer;                         // used by the writing thread as long as that exists
  std::optional<WriteBehind<Batch>> batches;  // must be the last member: its thread uses the others
};

Result<void> TraceWriter::State::finish(const RecordingEnd& end) {
  for (auto& [unit, segment] : segments) ended.emplace_back(unit, std::move(segment));
  segments.clear();
  unsynced.add(std::exchange(begun, {}), {});
  hand_over();
  batches.reset();
  TRY(outcome());
  JournalEnd last{end, {}};
  ASSIGN_OR_RETURN(last.files, writer.close());
  if (const RecordWriter& lists = images.images(); lists.exists()) {
    last.files.push_back({TraceFiles::images_name(), lists.written(), lists.items()});
  }
  UnsyncedFiles::Taken unsynced_now = unsynced.take();
  if (const PageStoreWriter& pages = images.pages(); pages.exists()) {
    last.files.push_back({TraceFiles::pages_name(), pages.bytes(), pages.pages()});
  }
  TRY(images.sync(unsynced_now.paths));
  for (const auto& of : unsynced_now.payloads) journal.add(of);
  journal.add(last);
  TRY(write_journal());
  return storage.sync({files.journal()});
}

TraceWriter::TraceWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

TraceWriter::~TraceWriter() {
  if (!state_->finished && !state_->failed) state_->hand_over();
}

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(const std::string& directory, const Settings& settings,
                                                         Storage& storage, FileCache* cache) {
  if (storage.exists(directory)) return Error{directory + " already exists: choose another directory, or remove it"};
  const TraceFiles files{directory};
  TRY(storage.make_directory(directory));
  auto state = std::make_unique<State>(storage, directory, cache);
  state->lock = storage.lock(directory);
  const auto begin = [&]() -> Result<void> {
    for (const auto& below : {files.events(), files.files()}) TRY(storage.make_directory(below));
    state->journal.add(settings);
    return state->write_journal();
  };
  if (auto begun = begin(); !begun) {
    for (const auto& path : {files.journal(), files.events(), files.files(), directory}) {
      (void)static_cast<bool>(storage.remove(path));
    }
    return begun.error();
  }
  state->begun = {files.journal(), directory, parent_of(directory)};
  return std::unique_ptr<TraceWriter>(new TraceWriter(std::move(state)));
}

TraceWriter::Segment& TraceWriter::segment(UnitId unit) { return state_->segment(unit); }

EventIndex TraceWriter::append(Segment& segment, const Event& event) {
  const EventIndex index = segment.events++;
  if (state_->failed) return index;
  if (segment.pending_events == 0) segment.pending = state_->spare.take();
  const size_t before = segment.pending->size();
  segment.pending->add(event);
  segment.pending_events++;
  state_->pending_bytes += segment.pending->size() - before;
  if (state_->pending_bytes > kFlushSize) state_->hand_over();
  return index;
}

void TraceWriter::add_payload(EventRef receiver, Bytes payload) {
  if (state_->failed) return;
  state_->pending_bytes += payload.size();
  state_->pending_payloads.push_back({receiver, std::move(payload)});
  if (state_->pending_bytes > kFlushSize) state_->hand_over();
}

void TraceWriter::end_unit(UnitId unit) {
  const auto found = state_->segments.find(unit);
  if (found == state_->segments.end()) return;
  state_->ended.emplace_back(unit, std::move(found->second));
  state_->segments.erase(found);
}

void TraceWriter::add(const UnitRecord& unit) { state_->note(unit); }
void TraceWriter::add(const IntervalRecord& interval) { state_->note(interval); }
void TraceWriter::add(const IntervalEnd& end) { state_->note(end); }
void TraceWriter::add(const ChannelRecord& channel) { state_->note(channel); }
void TraceWriter::add(const Refusal& refusal) { state_->note(refusal); }
void TraceWriter::add(const Unsure& unsure) { state_->note(unsure); }
void TraceWriter::add(const Interception& interception) { state_->note(interception); }
void TraceWriter::add(const StoppingSite& site) { state_->note(site); }
void TraceWriter::add(const Join& join) { state_->note(join); }
void TraceWriter::add(const WallClockRecord& clock) { state_->note(clock); }

Result<void> TraceWriter::write_behind() {
  if (!state_->failed) state_->hand_over();
  return state_->outcome();
}

Result<void> TraceWriter::flush() {
  if (!state_->failed) state_->hand_over();
  if (state_->batches) state_->batches->wait_until_idle();
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
  std::vector<std::string> copied = state_->copies.take_unsynced();
  if (!copied.empty()) copied.push_back(state_->files.files());
  state_->unsynced.add(copied, {});
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
uint64_t TraceWriter::bytes_written() const { return state_->bytes + state_->writer.bytes(); }

Result<void> TraceWriter::finish(const RecordingEnd& end) {
  if (!state_->failed && !state_->finished) state_->keep_error(state_->finish(end));
  state_->finished = true;
  return state_->outcome();
}

}  // namespace redrive
