// Puts volumes together for writing: what of a trace goes into which of them, and the copies of files that all share.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/assert.h"
#include "base/mutex.h"
#include "logstore/file_store.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"
#include "logstore/volume_writer.h"

namespace redrive {

// A unit's events on their way into the volume in which it is.
struct TraceWriter::Segment {
  VolumeWriter* volume = nullptr;
  std::unique_ptr<EventBlockWriter> pending;  // exists if there are pending events
  uint32_t pending_events = 0;
  EventIndex events = 0;       // of the unit
  EventIndex first_event = 0;  // of those, in this volume
};

namespace {

using Segment = TraceWriter::Segment;

constexpr size_t kFlushSize = 256 << 10;  // of all units' encoded events together

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

}  // namespace

struct TraceWriter::State {
  State(Storage& s, std::string directory, Settings its_settings, FileCache* cache)
      : storage(s), files{std::move(directory)}, settings(std::move(its_settings)), copies(s, files.files(), cache) {}

  Result<void> add_volume(const std::string& in, std::vector<std::string> above) {
    auto volume = std::make_shared<VolumeWriter>(storage, in, first_error, spare);
    TRY(volume->begin(settings, std::move(above)));
    const Lock holding(mutex);
    current = volumes.empty() ? 1 : volumes.rbegin()->first + 1;
    volumes.emplace(current, std::move(volume));
    return {};
  }
  std::map<VolumeNumber, std::shared_ptr<VolumeWriter>> all() const {
    const Lock holding(mutex);
    return volumes;
  }
  VolumeWriter& volume(VolumeNumber number) {
    const Lock holding(mutex);
    return *volumes.at(number);
  }

  Segment& segment(UnitId unit) {
    auto& segment = segments[unit];
    if (!segment) {
      segment = std::make_unique<Segment>();
      segment->volume = &volume(current);
    }
    return *segment;
  }
  // Where a unit is, or was when it ended.
  VolumeWriter& home_of(UnitId unit) {
    if (const auto found = segments.find(unit); found != segments.end()) return *found->second->volume;
    const auto known = all();
    for (auto each = known.rbegin(); each != known.rend(); ++each) {
      if (each->second->holds({unit, UINT64_MAX})) return *each->second;
    }
    return volume(current);
  }
  void note_everywhere(const JournalRecord& record) {
    for (const auto& [number, volume] : all()) volume->note(record);
  }
  void mention(VolumeWriter& volume, uint64_t file) {
    if (file == 0 || !numbered || !volume.first_mention(file)) return;
    const auto record = file_records.find(file);
    ASSERT(record != file_records.end());
    volume.note(record->second);
  }

  // What has no place in its unit's volume any more: the unit has ended, or goes on in another volume.
  struct Left {
    UnitId unit = 0;
    VolumeWriter* volume = nullptr;
    std::unique_ptr<EventBlockWriter> pending;
    uint32_t pending_events = 0;
    EventIndex events = 0;  // in that volume
  };
  void leave(UnitId unit, Segment& segment) {
    left.push_back({unit, segment.volume, std::move(segment.pending), std::exchange(segment.pending_events, 0),
                    segment.events - segment.first_event});
    segment.volume->leave(unit);
  }
  void enter_current(UnitId unit, Segment& segment, const IntervalRecord& record) {
    leave(unit, segment);
    hand_over();
    segment.volume = &volume(current);
    segment.first_event = segment.events;
    if (const auto known = unit_records.find(unit); known != unit_records.end()) segment.volume->note(known->second);
    segment.volume->enter(unit, record.first_event, record.interval);
  }

  // Hands over what is buffered to the writing threads. `last`: as in VolumeWriter::write().
  void hand_over(bool last = false) {
    std::map<VolumeWriter*, Batch> batches;
    for (const auto& [number, volume] : all()) batches[volume.get()];
    for (auto& [unit, segment] : segments) {
      if (segment->pending_events == 0) continue;
      batches[segment->volume].blocks.push_back(
          {unit, std::move(segment->pending), std::exchange(segment->pending_events, 0), false});
    }
    for (auto& from : left) {
      Batch& batch = batches[from.volume];
      if (from.pending_events) batch.blocks.push_back({from.unit, std::move(from.pending), from.pending_events, true});
      batch.ended.push_back({from.unit, from.events});
    }
    left.clear();
    pending_bytes = 0;
    for (auto& payload : std::exchange(pending_payloads, {})) {
      if (VolumeWriter* const volume = volume_of(payload.receiver))
        batches[volume].payloads.push_back(std::move(payload));
    }
    for (auto& [volume, batch] : batches) volume->write(std::move(batch), last);
  }

  // A unit is born where its parent is, from whose events its first interval may be executed.
  void add(const UnitRecord& unit) {
    if (numbered) {
      unit_records[unit.unit] = unit;
      const auto parent = segments.find(unit.parent.unit);
      if (parent != segments.end() && !segments.contains(unit.unit)) {
        Segment& of_unit = segment(unit.unit);
        of_unit.volume = parent->second->volume;
      }
    }
    segment(unit.unit).volume->note(unit);
  }
  void add(const IntervalRecord& interval) {
    const UnitId unit = interval.unit;
    if (numbered) {
      Segment& of_unit = segment(unit);
      const bool starts_alone = interval.kind != CheckpointKind::fork;
      if (of_unit.volume != &volume(current) && starts_alone) enter_current(unit, of_unit, interval);
      if (!of_unit.volume->first_interval(unit)) of_unit.volume->enter(unit, interval.first_event, interval.interval);
    }
    home_of(unit).note(interval);
  }
  void add(const ChannelRecord& channel) { note_everywhere(channel); }
  void add(const StoppingSite& site) { volume(current).note(site); }
  void add(const WallClockRecord& record) {
    clock = record;
    note_everywhere(record);
  }
  template <typename OfUnit>
  void add(const OfUnit& fact) {
    home_of(fact.unit).note(fact);
  }

  // Null if the event is in none that is left.
  VolumeWriter* volume_of(EventRef event) {
    const Lock holding(mutex);
    if (!numbered) return volumes.begin()->second.get();
    for (auto each = volumes.rbegin(); each != volumes.rend(); ++each) {
      if (each->second->holds(event)) return each->second.get();
    }
    return nullptr;
  }

  Storage& storage;
  const TraceFiles files;
  Settings settings;  // with which volumes begin
  Fd lock;            // tells readers that the recording is under way
  FirstError first_error;
  SpareBlocks spare;
  FileStoreWriter copies;
  bool numbered = false;  // there are volumes, each in a directory of its own
  VolumeNumber current = 0;
  mutable Mutex mutex;
  std::map<VolumeNumber, std::shared_ptr<VolumeWriter>> volumes GUARDED_BY(mutex);
  std::unordered_map<UnitId, std::unique_ptr<Segment>> segments;
  std::vector<Left> left;    // not yet handed over
  size_t pending_bytes = 0;  // of events and payloads
  std::vector<Batch::Payload> pending_payloads;
  // If there are volumes: what they may have to say again.
  std::map<UnitId, UnitRecord> unit_records;  // of units that have not ended
  std::map<uint64_t, FileRecord> file_records;
  std::set<uint64_t> pinned_files;
  std::optional<WallClockRecord> clock;
  std::atomic<uint64_t> removed_bytes = 0, copied_bytes = 0;
  bool finished = false;
};

TraceWriter::TraceWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

TraceWriter::~TraceWriter() {
  if (!state_->finished && !state_->first_error.failed()) state_->hand_over();
}

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(const std::string& directory, const Settings& settings,
                                                         Storage& storage, FileCache* cache, bool in_volumes) {
  TRY(storage.make_directory(directory));
  auto state = std::make_unique<State>(storage, directory, settings, cache);
  const TraceFiles& files = state->files;
  state->lock = storage.lock(directory);
  state->numbered = in_volumes;
  const auto begin = [&]() -> Result<void> {
    TRY(storage.make_directory(files.files()));
    if (!in_volumes) return state->add_volume(directory, {parent_of(directory)});
    for (const auto& below : {files.volumes(), files.volume(1)}) TRY(storage.make_directory(below));
    return state->add_volume(files.volume(1), {files.volumes(), directory, parent_of(directory)});
  };
  if (auto begun = begin(); !begun) {
    state.reset();
    (void)static_cast<bool>(remove_tree(storage, directory));
    return begun.error();
  }
  return std::unique_ptr<TraceWriter>(new TraceWriter(std::move(state)));
}

TraceWriter::Segment& TraceWriter::segment(UnitId unit) { return state_->segment(unit); }

EventIndex TraceWriter::append(Segment& segment, const Event& event) {
  const EventIndex index = segment.events++;
  if (state_->first_error.failed()) return index;
  if (state_->numbered) {
    if (event.map) state_->mention(*segment.volume, event.map->file);
    for (const auto& change : event.changes) state_->mention(*segment.volume, change.file);
  }
  if (segment.pending_events == 0) segment.pending = state_->spare.take();
  const size_t before = segment.pending->size();
  segment.pending->add(event);
  segment.pending_events++;
  state_->pending_bytes += segment.pending->size() - before;
  if (state_->pending_bytes > kFlushSize) state_->hand_over();
  return index;
}

void TraceWriter::add_payload(EventRef receiver, Bytes payload) {
  if (state_->first_error.failed()) return;
  state_->pending_bytes += payload.size();
  state_->pending_payloads.push_back({receiver, std::move(payload)});
  if (state_->pending_bytes > kFlushSize) state_->hand_over();
}

void TraceWriter::end_unit(UnitId unit) {
  const auto found = state_->segments.find(unit);
  if (found == state_->segments.end()) return;
  state_->leave(unit, *found->second);
  state_->segments.erase(found);
  state_->unit_records.erase(unit);
}

void TraceWriter::add(const TraceFact& fact) {
  std::visit([&](const auto& kind) { state_->add(kind); }, fact);
}

Result<void> TraceWriter::write_behind() {
  if (!state_->first_error.failed()) state_->hand_over();
  return state_->first_error.outcome();
}

Result<void> TraceWriter::flush() {
  if (!state_->first_error.failed()) state_->hand_over();
  for (const auto& [number, volume] : state_->all()) volume->wait_until_idle();
  return state_->first_error.outcome();
}

Result<uint64_t> TraceWriter::add_file(const std::string& open_path, const std::string& path, bool identified) {
  TRY(state_->first_error.outcome());
  bool storage_failed = false;
  auto added = state_->copies.add(open_path, path, identified, storage_failed);
  if (!added) {
    if (storage_failed) state_->first_error.keep(added.error());
    return added.error();
  }
  VolumeWriter& volume = state_->volume(state_->current);
  state_->copied_bytes += added->written;
  if (state_->numbered) {
    state_->file_records.emplace(added->record.file, added->record);
    state_->mention(volume, added->record.file);
  } else if (added->fresh) {
    volume.note(added->record);
  }
  volume.unsynced().add(state_->copies.take_unsynced(), {});
  return added->record.file;
}

bool TraceWriter::has_file(uint64_t file) const { return !state_->numbered || state_->file_records.contains(file); }
void TraceWriter::pin_file(uint64_t file) { state_->pinned_files.insert(file); }
void TraceWriter::mention_file(UnitId unit, uint64_t file) { state_->mention(state_->home_of(unit), file); }

Result<TraceWriter::ImageStats> TraceWriter::write_image(UnitId unit, IntervalIndex interval, const ReadImage& read) {
  const auto known = state_->all();
  for (auto each = known.rbegin(); each != known.rend(); ++each) {
    const auto first = each->second->first_interval(unit);
    if (!state_->numbered || (first && *first <= interval)) return each->second->write_image(unit, interval, read);
  }
  return Error{"the part of the trace that the image belongs to was removed"};
}

Result<void> TraceWriter::publish_images() {
  for (const auto& [number, volume] : state_->all()) TRY(volume->publish_images());
  return {};
}

Result<TraceWriter::ImageStats> TraceWriter::publish_image(UnitId unit, IntervalIndex interval, const ReadImage& read) {
  ASSIGN_OR_RETURN(const ImageStats stats, write_image(unit, interval, read));
  TRY(publish_images());
  return stats;
}

void TraceWriter::end_images(UnitId unit) {
  for (const auto& [number, volume] : state_->all()) volume->end_images(unit);
}

const std::string& TraceWriter::directory() const { return state_->files.directory; }

uint64_t TraceWriter::bytes_written() const {
  uint64_t sum = state_->removed_bytes + state_->copied_bytes;
  for (const auto& [number, volume] : state_->all()) sum += volume->bytes();
  return sum;
}

Result<void> TraceWriter::finish(const RecordingEnd& end) {
  if (state_->finished) return state_->first_error.outcome();
  state_->finished = true;
  if (state_->first_error.failed()) return state_->first_error.outcome();
  for (auto& [unit, segment] : state_->segments) state_->leave(unit, *segment);
  state_->segments.clear();
  state_->hand_over(true);
  for (const auto& [number, volume] : state_->all()) {
    if (!volume->is_finished() && !state_->first_error.failed()) state_->first_error.keep(volume->finish(end));
  }
  return state_->first_error.outcome();
}

// ---- Volumes

bool TraceWriter::in_volumes() const { return state_->numbered; }

Result<void> TraceWriter::begin_volume(const Settings* changed) {
  TRY(state_->first_error.outcome());
  if (changed) state_->settings = *changed;
  const std::string directory = state_->files.volume(state_->current + 1);
  const auto begin = [&]() -> Result<void> {
    TRY(state_->storage.make_directory(directory));
    return state_->add_volume(directory, {state_->files.volumes()});
  };
  const auto begun = begin();
  state_->first_error.keep(begun);
  if (begun && state_->clock) state_->volume(state_->current).note(*state_->clock);
  return begun;
}

bool TraceWriter::in_one_volume(UnitId unit, EventRef event) const {
  if (!state_->numbered) return true;
  const auto found = state_->segments.find(unit);
  return found != state_->segments.end() && state_->volume_of(event) == found->second->volume;
}

std::vector<TraceWriter::VolumeState> TraceWriter::volumes() const {
  std::vector<VolumeState> found;
  for (const auto& [number, volume] : state_->all()) {
    found.push_back({number, volume->bytes(), volume->is_empty() && number != state_->current, volume->is_closed(),
                     volume->is_finished()});
  }
  return found;
}

bool TraceWriter::is_in_volume(VolumeNumber number, EventRef event) const {
  return state_->volume_of(event) == &state_->volume(number);
}

void TraceWriter::close_volume(VolumeNumber number) {
  ASSERT(number != state_->current);
  state_->hand_over();
  state_->volume(number).close();
}

Result<void> TraceWriter::finish_volume(VolumeNumber number, const RecordingEnd& end) {
  TRY(state_->first_error.outcome());
  VolumeWriter& volume = state_->volume(number);
  ASSERT(volume.is_closed());
  auto finished = volume.finish(end);
  state_->first_error.keep(finished);
  return finished;
}

Result<void> TraceWriter::remove_volume(VolumeNumber number) {
  std::shared_ptr<VolumeWriter> volume;
  {
    const Lock holding(state_->mutex);
    volume = state_->volumes.extract(number).mapped();
  }
  ASSERT(volume->is_finished());
  state_->removed_bytes += volume->bytes();
  const std::string directory = volume->files().directory, leaving = directory + kRemoving;
  TRY(state_->storage.rename(directory, leaving));
  TRY(remove_tree(state_->storage, leaving));
  const auto left = state_->all();
  for (const uint64_t file : volume->mentioned_files()) {
    const bool needed = state_->pinned_files.contains(file) ||
                        std::any_of(left.begin(), left.end(),
                                    [&](const auto& each) { return each.second->mentioned_files().contains(file); });
    if (needed) continue;
    TRY(state_->copies.remove(state_->file_records.at(file)));
    state_->file_records.erase(file);
  }
  return {};
}

}  // namespace redrive
