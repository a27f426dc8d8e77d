#include "logstore/volume.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/assert.h"
#include "logstore/file_store.h"
#include "logstore/image_file.h"

namespace redrive {
namespace {

// Numbers of events up to here can be added to without overflow.
constexpr EventIndex kLargestNumber = EventIndex{1} << 62;
constexpr uint64_t kMostThreads = uint64_t{1} << 22;  // PID_MAX_LIMIT of Linux

}  // namespace

bool Settings::has_possible_times() const {
  constexpr double kLongest_s = 1e9;
  const auto times = {critical_path_s, checkpoint_period_s, bound_s, restore_cost_s};
  return std::all_of(times.begin(), times.end(), [](double time_s) { return time_s >= 0 && time_s <= kLongest_s; });
}

Result<std::unique_ptr<EventBlock>> EventSegment::block_at(const RecordHeader& record, uint64_t item) const {
  std::unique_ptr<EventBlock> block;
  {
    const Lock lock(mutex_);
    block = std::move(last_);
  }
  if (!block) block = std::make_unique<EventBlock>();
  if (block->holds(record)) {
    if (block->next_item() > item) block->rewind();
    return block;
  }
  thread_local Unpacker unpacker;
  ASSIGN_OR_RETURN(const auto payload, file_.payload(record, unpacker));
  if (!block->open(record, payload)) return damage(file_.path(), record.offset, "not a record of events");
  return block;
}

// False if the visitor wants no more events.
Result<bool> EventSegment::visit_block(const RecordHeader& record, uint64_t& item, uint64_t last, Visited& visited,
                                       const std::function<bool(EventIndex, const Event&)>& visit) const {
  ASSIGN_OR_RETURN(std::unique_ptr<EventBlock> block, block_at(record, item));
  bool more = true;
  while (more && !block->at_end() && block->next_item() < last) {
    const uint64_t at = block->next_item();
    Event& event = visited.events[at % visited.events.size()];
    if (!block->next(event)) {
      return damage(file_.path(), record.offset, fmt::format("event {} cannot be decoded", at - item_of_0_));
    }
    // Times do not go back, although one block does not know what was guessed for the one before it.
    EventTime& time = event.time;
    if (time.known()) visited.latest_ns = time.at_ns = std::max(time.at_ns, visited.latest_ns);
    if (at >= item) more = visit(at - item_of_0_, event);
  }
  item = block->next_item();
  const Lock lock(mutex_);
  last_ = std::move(block);
  return more;
}

Result<void> EventSegment::for_each(EventIndex first, EventIndex last,
                                    const std::function<bool(EventIndex, const Event&)>& visit) const {
  first = std::max(first, first_);
  const EventIndex end = std::min(last, readable_);
  Visited visited;
  for (EventIndex at = first; at < end;) {
    uint64_t item = item_of_0_ + at;
    const RecordHeader* record = file_.find(item);
    ASSERT(record != nullptr);
    ASSIGN_OR_RETURN(const bool more, visit_block(*record, item, item_of_0_ + end, visited, visit));
    if (!more) return {};
    at = item - item_of_0_;
  }
  const bool whole = !has_own_file() && readable_ == end_;
  const bool wants_damaged = !whole && (last > readable_ || (last == readable_ && open_end_));
  if (first < last && wants_damaged && file_.damaged()) return *file_.damaged();
  return {};
}

std::optional<FileEnd> Volume::end_of(const std::string& name) const {
  if (!end) return std::nullopt;
  const auto found = file_ends.find(name);
  return found == file_ends.end() ? FileEnd{name, 0, 0} : found->second;
}

Result<const RecordFile*> Volume::short_events() const {
  return short_segment_.get([&]() -> Result<std::unique_ptr<RecordFile>> {
    constexpr UnitId kUnit = TraceFiles::kShortUnits;
    const auto known = end_of(TraceFiles::segment_name(kUnit));
    const std::string path = files.segment(kUnit);
    if (known ? known->size == 0 : !storage.exists(path)) return std::unique_ptr<RecordFile>();
    const auto size = known ? std::optional(known->size) : std::nullopt;
    return RecordFile::open(storage, path, FileKind::events, kUnit, 0, known ? Tail::whole : Tail::torn, size);
  });
}

Result<std::unique_ptr<EventSegment>> Volume::open_segment(UnitId unit) const {
  if (const auto place = short_units.find(unit); place != short_units.end()) {
    ASSIGN_OR_RETURN(const RecordFile* file, short_events());
    const uint64_t needed = place->second.first_item + place->second.events;
    if (file && (!end || file->damaged() || file->items() >= needed)) {
      return std::make_unique<EventSegment>(*file, first_event(unit), place->second, end.has_value());
    }
    if (!file && !end) return std::unique_ptr<EventSegment>();
    return damage(files.segment(TraceFiles::kShortUnits), file ? file->readable_size() : 0,
                  fmt::format("events of unit {} are missing", unit));
  }
  const auto known = end_of(TraceFiles::segment_name(unit));
  const std::string path = files.segment(unit);
  if (known ? known->size == 0 : !storage.exists(path)) return std::unique_ptr<EventSegment>();
  const Tail tail = known ? Tail::whole : Tail::torn;
  const auto size = known ? std::optional(known->size) : std::nullopt;
  ASSIGN_OR_RETURN(auto file, RecordFile::open(storage, path, FileKind::events, unit, 0, tail, size));
  if (known && !file->damaged() && file->items() != known->items) {
    return damage(path, file->readable_size(),
                  fmt::format("file has {} events, {} expected", file->items(), known->items));
  }
  return std::make_unique<EventSegment>(std::move(file), first_event(unit), known);
}

Result<const EventSegment*> Volume::segment(UnitId unit) const {
  const auto it = segments.find(unit);
  if (it == segments.end()) return static_cast<const EventSegment*>(nullptr);
  return it->second.get([&] { return open_segment(unit); });
}

FileEnd Volume::published_pages() const {
  FileEnd known = end_of(TraceFiles::pages_name()).value_or(FileEnd{});
  if (last_image && last_image->store_size > known.size) {
    known.size = last_image->store_size;
    known.items = last_image->store_pages;
  }
  return known;
}

FileEnd Volume::published_images() const {
  FileEnd known = end_of(TraceFiles::images_name()).value_or(FileEnd{});
  if (last_image && !last_image->own_file && last_image->file_size > known.size) {
    known.size = last_image->file_size;
    known.items = last_image->first_item + 1 + last_image->pages;
  }
  return known;
}

// How the files with the images may end.
Tail Volume::images_tail() const {
  if (end) return preparing() ? Tail::ignored : Tail::whole;
  return unsynced_images.empty() ? Tail::ignored : Tail::torn;
}

bool Volume::may_be_there(const std::string& path) const { return images_tail() == Tail::torn && storage.exists(path); }

Result<std::unique_ptr<RecordFile>> Volume::open_all(const std::string& path, FileKind kind, const FileEnd& end) const {
  if (end.size == 0 && !may_be_there(path)) return std::unique_ptr<RecordFile>();
  return RecordFile::open(storage, path, kind, 0, 0, images_tail(), end.size);
}

Result<std::unique_ptr<RecordFile>> Volume::open_all_images() const {
  return open_all(files.images(), FileKind::image, published_images());
}

Result<std::unique_ptr<RecordFile>> Volume::open_all_pages() const {
  return open_all(files.pages(), FileKind::pages, published_pages());
}

// Opens the file with the images, or that with their pages, of which a reader may need little. `ends`: where it ended
// when images were written.
Result<std::unique_ptr<RecordParts>> Volume::open_parts(const std::string& path, FileKind kind, const FileEnd& end,
                                                        std::vector<RecordPlace> ends) const {
  if (images_tail() == Tail::torn) {
    ASSIGN_OR_RETURN(auto file, open_all(path, kind, end));
    return file ? std::make_unique<RecordParts>(std::move(file)) : nullptr;
  }
  if (end.size == 0) return std::unique_ptr<RecordParts>();
  ASSIGN_OR_RETURN(auto file, RecordFile::open_unread(storage, path, kind, 0, 0));
  ends.push_back({end.size, end.items});
  std::ranges::sort(ends, {}, [](const RecordPlace& place) { return std::pair(place.offset, place.item); });
  // What does not fit was not written by a recorder: then fewer places are known.
  std::vector<RecordPlace> places{{}};
  for (const RecordPlace& place : ends) {
    const bool fits = place.offset <= end.size && place.item <= end.items;
    if (fits && place.offset > places.back().offset && place.item > places.back().item) places.push_back(place);
  }
  return std::make_unique<RecordParts>(std::move(file), places);
}

Result<const RecordParts*> Volume::image_file() const {
  return image_lists_.get([&] {
    std::vector<RecordPlace> ends;
    for (const auto& [of, image] : images) {
      if (!image.own_file) ends.push_back({image.file_size, image.first_item + 1 + image.pages});
    }
    return open_parts(files.images(), FileKind::image, published_images(), std::move(ends));
  });
}

Result<const PayloadFile*> Volume::payloads(UnitId unit) const {
  const auto it = payload_files.find(unit);
  if (it == payload_files.end()) return static_cast<const PayloadFile*>(nullptr);
  return it->second.get(
      [&] { return PayloadFile::open(storage, files.payloads(unit), unit, payloads_published.at(unit).size); });
}

Result<const PageStore*> Volume::page_store() const {
  return pages_.get([&]() -> Result<std::unique_ptr<PageStore>> {
    std::vector<RecordPlace> ends;
    for (const auto& [of, image] : images) ends.push_back({image.store_size, image.store_pages});
    ASSIGN_OR_RETURN(auto records, open_parts(files.pages(), FileKind::pages, published_pages(), std::move(ends)));
    return records ? std::make_unique<PageStore>(std::move(records)) : nullptr;
  });
}

Result<void> Volume::read_journal() {
  TRY(journal->for_each_payload([&](const RecordHeader& header, std::span<const uint8_t> payload) -> Result<void> {
    JournalRecord record;
    // Packed, a few bytes could be millions of facts, which are all kept in memory.
    if (header.packed || !decode(header.type, payload, record)) {
      return damage(journal->path(), header.offset, "record cannot be decoded");
    }
    const bool settings = std::holds_alternative<Settings>(record);
    const bool added =
        settings || std::holds_alternative<ImagePublished>(record) || std::holds_alternative<PayloadsPublished>(record);
    if (end && !added) return damage(journal->path(), header.offset, "record after the recording's end");
    const bool first = header.offset == kPreambleSize;
    if (!end && first != settings) {
      return damage(journal->path(), header.offset, "settings are not the first record, or not the only ones");
    }
    return take(header, record);
  }));
  if (end && journal->readable_size() != journal->size_on_disk() && !preparing()) {
    return damage(journal->path(), journal->readable_size(), "bytes after the recording's end");
  }
  return {};
}

// Takes one record of the journal. A later record of the same unit or interval replaces the earlier one.
Result<void> Volume::take(const RecordHeader& at, const JournalRecord& record) {
  const auto wrong = [&](const std::string& what) { return damage(journal->path(), at.offset, what); };
  if (const auto* r = std::get_if<Settings>(&record)) {
    if (!r->has_possible_times()) return wrong("settings with an impossible time");
    settings = *r;
  } else if (const auto* r = std::get_if<UnitRecord>(&record)) {
    if (r->unit == 0) return wrong("unit 0");
    unit_records[r->unit] = *r;
  } else if (const auto* r = std::get_if<IntervalRecord>(&record)) {
    auto& list = intervals[r->unit];
    if (list.empty() && numbered) {
      if (r->first_event > kLargestNumber) return wrong("interval with an impossible number");
      begins_[r->unit] = {r->first_event, r->interval};
    }
    const uint64_t place = uint64_t{r->interval} - first_interval(r->unit);  // huge if it is before the first one
    if (place > list.size()) return wrong("interval out of order");
    if (place > 0 && r->first_event < list[place - 1].first_event)
      return wrong("interval begins before the previous one");
    if (place == 0 && r->first_event != first_event(r->unit) && numbered) return wrong("interval begins elsewhere");
    if (r->threads > kMostThreads) return wrong("interval with an impossible number of threads");
    if (place == list.size()) list.emplace_back();
    list[place] = *r;
  } else if (const auto* r = std::get_if<IntervalEnd>(&record)) {
    interval_ends[{r->unit, r->interval}] = *r;
  } else if (const auto* r = std::get_if<ChannelRecord>(&record)) {
    channels.push_back(*r);
  } else if (const auto* r = std::get_if<FileRecord>(&record)) {
    if (!is_content_name(r->copy)) return wrong("not the name of a file copy");
    file_records[r->file] = *r;
  } else if (const auto* r = std::get_if<Refusal>(&record)) {
    refusals.push_back(*r);
  } else if (const auto* r = std::get_if<Unsure>(&record)) {
    unsure.push_back(*r);
  } else if (const auto* r = std::get_if<Interception>(&record)) {
    interceptions.push_back(*r);
  } else if (const auto* r = std::get_if<StoppingSite>(&record)) {
    stopping_sites.push_back(*r);
  } else if (const auto* r = std::get_if<Join>(&record)) {
    joins.push_back(*r);
  } else if (const auto* r = std::get_if<WallClockRecord>(&record)) {
    if (!wall_clock.add(*r)) return wrong("an impossible time of day");
  } else if (const auto* r = std::get_if<ImagePublished>(&record)) {
    images[{r->unit, r->interval}] = *r;
    last_image = *r;
    unsynced_images.clear();
  } else if (const auto* r = std::get_if<ImageWritten>(&record)) {
    unsynced_images.push_back(*r);
  } else if (const auto* r = std::get_if<ShortUnit>(&record)) {
    if (r->unit == 0 || r->first_item + r->events < r->events) return wrong("place of a unit's events");
    short_units[r->unit] = *r;
  } else if (const auto* r = std::get_if<PayloadsPublished>(&record)) {
    payloads_published[r->unit] = *r;
    payload_files.try_emplace(r->unit);
  } else if (const auto* r = std::get_if<JournalEnd>(&record)) {
    end = *r;
    for (const auto& file : r->files) file_ends.emplace(file.name, file);
  }
  return {};
}

// Counts the images that a killed recorder wrote but did not sync, up to the first incomplete one.
Result<void> Volume::take_unsynced_images() {
  if (unsynced_images.empty()) return {};
  ASSIGN_OR_RETURN(const RecordParts* lists, image_file());
  ASSIGN_OR_RETURN(const PageStore* store, page_store());
  const uint64_t lists_size = lists ? lists->file().readable_size() : 0;
  const uint64_t store_size = store ? store->file().readable_size() : 0;
  for (const auto& image : unsynced_images) {
    if (image.file_size > lists_size || image.store_size > store_size) break;
    images[{image.unit, image.interval}] = image;
    last_image = image;
  }
  return {};
}

// The journal of a killed recorder may mention more than its segments hold; what refers to lost events is lost with
// them. So is an interval without events, except the first one of a unit: there is nothing to execute, and since it is
// not known how the interval begins, the end of the one before it cannot be compared with its image.
void Volume::cut_to_events() {
  for (auto& of_unit : intervals) {
    const UnitId unit = of_unit.first;
    auto& list = of_unit.second;
    auto found = segment(unit);
    const EventIndex end = found && *found ? (*found)->end() : first_event(unit);
    const auto damaged = found ? *found && (*found)->file().damaged() : true;
    if (damaged) continue;  // there were events: readers must learn of the damage, not see a short recording
    const auto lost = [&] {
      return list.back().first_event > end || (list.size() > 1 && list.back().first_event == end);
    };
    while (!list.empty() && lost()) list.pop_back();
    std::erase_if(interval_ends,
                  [&](const auto& known) { return known.first.first == unit && known.second.end_event > end; });
  }
}

EventIndex Volume::first_event(UnitId unit) const {
  const auto begin = begins_.find(unit);
  return begin == begins_.end() ? 0 : begin->second.event;
}

IntervalIndex Volume::first_interval(UnitId unit) const {
  const auto begin = begins_.find(unit);
  return begin == begins_.end() ? 0 : begin->second.interval;
}

EventIndex Volume::end_event(UnitId unit) const {
  const EventIndex first = first_event(unit);
  if (!end) {  // the journal of a finished recording says it
    const auto read = segment(unit);
    if (read) return *read ? (*read)->end() : first;
  }
  if (const auto place = short_units.find(unit); place != short_units.end()) return first + place->second.events;
  const auto known = end_of(TraceFiles::segment_name(unit));
  return first + (known ? known->items : 0);
}

Result<Image> Volume::image(const ImagePublished& published) const {
  if (!published.own_file) {
    ASSIGN_OR_RETURN(const RecordParts* all, image_file());
    if (!all) return damage(files.images(), 0, "file is missing");
    return read_image(*all, published.first_item, published.pages);
  }
  ASSIGN_OR_RETURN(auto file,
                   RecordFile::open(storage, files.image(published.unit, published.interval), FileKind::image,
                                    published.unit, published.interval, Tail::whole, published.file_size));
  if (file->damaged()) return *file->damaged();
  return read_image(RecordParts(std::move(file)), 0, published.pages);
}

Result<std::unique_ptr<Volume>> Volume::open(std::string directory, Storage& storage, bool numbered) {
  auto volume = std::make_unique<Volume>(std::move(directory), storage, numbered);
  const std::string path = volume->files.journal();
  ASSIGN_OR_RETURN(volume->journal, RecordFile::open(storage, path, FileKind::journal, 0, 0, Tail::torn));
  if (volume->journal->damaged()) return *volume->journal->damaged();
  if (volume->journal->records().empty()) {
    return Error{volume->files.directory + " is empty: the recorder was killed before it began"};
  }
  TRY(volume->read_journal());
  for (const auto& [unit, record] : volume->unit_records) volume->segments.try_emplace(unit);
  for (const auto& [unit, list] : volume->intervals) volume->segments.try_emplace(unit);
  for (const auto& [unit, place] : volume->short_units) volume->segments.try_emplace(unit);
  if (volume->end) {
    for (const auto& file : volume->end->files) {
      if (const auto unit = TraceFiles::unit_of_segment(file.name)) volume->segments.try_emplace(*unit);
    }
    return volume;
  }
  TRY(volume->take_unsynced_images());
  volume->cut_to_events();
  return volume;
}

Result<std::vector<uint64_t>> list_volumes(Storage& storage, const TraceFiles& files) {
  ASSIGN_OR_RETURN(const auto names, storage.list_directories(files.volumes()));
  std::vector<uint64_t> numbers;
  for (const auto& name : names) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace redrive
