#include "logstore/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "logstore/block_sums.h"
#include "logstore/file_store.h"
#include "logstore/hash.h"
#include "logstore/image_file.h"
#include "logstore/trace_state.h"

namespace redrive {
namespace {

const std::vector<IntervalRecord> kNoIntervals;

std::string program_of(const IntervalRecord& interval) {
  return interval.command.substr(0, interval.command.find(' '));
}

}  // namespace

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
      return damage(file_.path(), record.offset, fmt::format("event {} cannot be decoded", at - first_item_));
    }
    // Times do not go back, although one block does not know what was guessed for the one before it.
    EventTime& time = event.time;
    if (time.known()) visited.latest_ns = time.at_ns = std::max(time.at_ns, visited.latest_ns);
    if (at >= item) more = visit(at - first_item_, event);
  }
  item = block->next_item();
  const Lock lock(mutex_);
  last_ = std::move(block);
  return more;
}

Result<void> EventSegment::for_each(EventIndex first, EventIndex last,
                                    const std::function<bool(EventIndex, const Event&)>& visit) const {
  const uint64_t end = first_item_ + std::min(last, readable_);
  Visited visited;
  for (uint64_t item = first_item_ + std::min(first, readable_); item < end;) {
    const RecordHeader* record = file_.find(item);
    CHECK(record != nullptr);
    ASSIGN_OR_RETURN(const bool more, visit_block(*record, item, end, visited, visit));
    if (!more) return {};
  }
  const bool whole = !has_own_file() && readable_ == count_;
  const bool wants_damaged = !whole && (last > readable_ || (last == readable_ && open_end_));
  if (first < last && wants_damaged && file_.damaged()) return *file_.damaged();
  return {};
}

std::optional<FileEnd> Trace::State::end_of(const std::string& name) const {
  if (!end) return std::nullopt;
  const auto found = file_ends.find(name);
  return found == file_ends.end() ? FileEnd{name, 0, 0} : found->second;
}

Result<const RecordFile*> Trace::State::short_events() const {
  return short_segment.get([&]() -> Result<std::unique_ptr<RecordFile>> {
    constexpr UnitId kUnit = TraceFiles::kShortUnits;
    const auto known = end_of(TraceFiles::segment_name(kUnit));
    const std::string path = files.segment(kUnit);
    if (known ? known->size == 0 : !storage.exists(path)) return std::unique_ptr<RecordFile>();
    const auto size = known ? std::optional(known->size) : std::nullopt;
    return RecordFile::open(storage, path, FileKind::events, kUnit, 0, known ? Tail::whole : Tail::torn, size);
  });
}

Result<std::unique_ptr<EventSegment>> Trace::State::open_segment(UnitId unit) const {
  if (const auto place = short_units.find(unit); place != short_units.end()) {
    ASSIGN_OR_RETURN(const RecordFile* file, short_events());
    const uint64_t needed = place->second.first_item + place->second.events;
    if (file && (!end || file->damaged() || file->items() >= needed)) {
      return std::make_unique<EventSegment>(*file, place->second, end.has_value());
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
  return std::make_unique<EventSegment>(std::move(file), known);
}

Result<const EventSegment*> Trace::State::segment(UnitId unit) const {
  const auto it = segments.find(unit);
  if (it == segments.end()) return static_cast<const EventSegment*>(nullptr);
  return it->second.get([&] { return open_segment(unit); });
}

FileEnd Trace::State::published_pages() const {
  FileEnd known = end_of(TraceFiles::pages_name()).value_or(FileEnd{});
  if (last_image && last_image->store_size > known.size) {
    known.size = last_image->store_size;
    known.items = last_image->store_pages;
  }
  return known;
}

FileEnd Trace::State::published_images() const {
  FileEnd known = end_of(TraceFiles::images_name()).value_or(FileEnd{});
  if (last_image && !last_image->own_file && last_image->file_size > known.size) {
    known.size = last_image->file_size;
    known.items = last_image->first_item + 1 + last_image->pages;
  }
  return known;
}

// How the files with the images may end.
Tail Trace::State::images_tail() const {
  if (end) return preparing() ? Tail::ignored : Tail::whole;
  return unsynced_images.empty() ? Tail::ignored : Tail::torn;
}

bool Trace::State::may_be_there(const std::string& path) const {
  return images_tail() == Tail::torn && storage.exists(path);
}

Result<const RecordFile*> Trace::State::image_file() const {
  return image_lists.get([&]() -> Result<std::unique_ptr<RecordFile>> {
    const uint64_t size = published_images().size;
    if (size == 0 && !may_be_there(files.images())) return std::unique_ptr<RecordFile>();
    return RecordFile::open(storage, files.images(), FileKind::image, 0, 0, images_tail(), size);
  });
}

Result<const PayloadFile*> Trace::State::payloads(UnitId unit) const {
  const auto it = payload_files.find(unit);
  if (it == payload_files.end()) return static_cast<const PayloadFile*>(nullptr);
  return it->second.get(
      [&] { return PayloadFile::open(storage, files.payloads(unit), unit, payloads_published.at(unit).size); });
}

Result<std::unique_ptr<PageStore>> Trace::State::open_page_store() const {
  const uint64_t size = published_pages().size;
  if (size == 0 && !may_be_there(files.pages())) return std::unique_ptr<PageStore>();
  ASSIGN_OR_RETURN(auto file, RecordFile::open(storage, files.pages(), FileKind::pages, 0, 0, images_tail(), size));
  return std::make_unique<PageStore>(std::move(file));
}

Result<const PageStore*> Trace::State::page_store() const {
  return pages.get([&] { return open_page_store(); });
}

Result<void> Trace::State::read_journal() {
  TRY(journal->for_each_payload([&](const RecordHeader& header, std::span<const uint8_t> payload) -> Result<void> {
    JournalRecord record;
    if (!decode(header.type, payload, record)) {
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
Result<void> Trace::State::take(const RecordHeader& at, const JournalRecord& record) {
  const auto wrong = [&](const std::string& what) { return damage(journal->path(), at.offset, what); };
  if (const auto* r = std::get_if<Settings>(&record)) {
    constexpr double kLongest_s = 1e9;
    for (const double time_s : {r->critical_path_s, r->checkpoint_period_s, r->bound_s, r->restore_cost_s}) {
      if (!(time_s >= 0 && time_s <= kLongest_s)) return wrong("settings with an impossible time");
    }
    settings = *r;
  } else if (const auto* r = std::get_if<UnitRecord>(&record)) {
    if (r->unit == 0) return wrong("unit 0");
    unit_records[r->unit] = *r;
  } else if (const auto* r = std::get_if<IntervalRecord>(&record)) {
    auto& list = intervals[r->unit];
    if (r->interval > list.size()) return wrong("interval out of order");
    if (r->interval > 0 && r->first_event < list[r->interval - 1].first_event)
      return wrong("interval begins before the previous one");
    if (r->interval == list.size()) list.emplace_back();
    list[r->interval] = *r;
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
    recording_end = r->end;
    for (const auto& file : r->files) file_ends.emplace(file.name, file);
  }
  return {};
}

// Counts the images that a killed recorder wrote but did not sync, up to the first incomplete one.
Result<void> Trace::State::take_unsynced_images() {
  if (unsynced_images.empty()) return {};
  ASSIGN_OR_RETURN(const RecordFile* lists, image_file());
  ASSIGN_OR_RETURN(const PageStore* store, page_store());
  const uint64_t lists_size = lists ? lists->readable_size() : 0;
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
void Trace::State::cut_to_events() {
  for (auto& of_unit : intervals) {
    const UnitId unit = of_unit.first;
    auto& list = of_unit.second;
    auto found = segment(unit);
    const EventIndex count = found && *found ? (*found)->count() : 0;
    const auto damaged = found ? *found && (*found)->file().damaged() : true;
    if (damaged) continue;  // there were events: readers must learn of the damage, not see a short recording
    const auto lost = [&] {
      return list.back().first_event > count || (list.size() > 1 && list.back().first_event == count);
    };
    while (!list.empty() && lost()) list.pop_back();
    std::erase_if(interval_ends,
                  [&](const auto& end) { return end.first.first == unit && end.second.end_event > count; });
  }
}

void Trace::State::mark_images() {
  for (auto& [unit, list] : intervals) {
    for (auto& interval : list) interval.has_image = images.contains({unit, interval.interval});
  }
}

// PROGRAM if only one unit has it, otherwise PROGRAM.1, PROGRAM.2, ... in the order of units.
void Trace::State::name_units() {
  std::map<std::string, std::vector<UnitId>> by_program;
  for (const auto& unit : units) {
    const auto it = intervals.find(unit.unit);
    const std::string program = it == intervals.end() || it->second.empty() ? "" : program_of(it->second.back());
    by_program[program.empty() ? "unit" : program].push_back(unit.unit);
  }
  for (const auto& [program, ids] : by_program) {
    for (size_t i = 0; i < ids.size(); i++)
      names[ids[i]] = ids.size() == 1 ? program : fmt::format("{}.{}", program, i + 1);
  }
}

Result<void> Trace::State::verify_copy(const FileRecord& file) const {
  const std::string path = files.copy(file.copy);
  ASSIGN_OR_RETURN(const BlockSums sums, read_sums(storage, path));
  if (sums.size != file.size) return damage(sums_path(path), kPreambleSize, "size differs from the journal's");
  return verify_sums(storage, path, sums);
}

const Trace::State& Trace::state() const { return *state_; }
Trace::Trace(std::unique_ptr<State> state) : state_(std::move(state)) {}
Trace::~Trace() = default;

Result<std::shared_ptr<Trace>> Trace::open(const std::string& directory, Storage& storage) {
  if (!storage.exists(directory)) return Error{"no trace " + directory};
  auto state = std::make_unique<State>(directory, storage);
  state->locked = storage.locked(directory);
  const std::string path = state->files.journal();
  if (!storage.exists(path)) return Error{directory + " is not a redrive trace (it has no 'journal')"};
  ASSIGN_OR_RETURN(state->journal, RecordFile::open(storage, path, FileKind::journal, 0, 0, Tail::torn));
  if (state->journal->damaged()) return *state->journal->damaged();
  if (state->journal->records().empty()) return Error{directory + " is empty: the recorder was killed before it began"};
  TRY(state->read_journal());
  for (const auto& [unit, record] : state->unit_records) {
    state->units.push_back(record);
    state->segments.try_emplace(unit);
  }
  for (const auto& [unit, list] : state->intervals) state->segments.try_emplace(unit);
  for (const auto& [unit, place] : state->short_units) state->segments.try_emplace(unit);
  if (state->end) {
    for (const auto& file : state->end->files) {
      if (const auto unit = TraceFiles::unit_of_segment(file.name)) state->segments.try_emplace(*unit);
    }
  }
  if (!state->end) {
    TRY(state->take_unsynced_images());
    state->cut_to_events();
  }
  state->mark_images();
  state->name_units();
  return std::shared_ptr<Trace>(new Trace(std::move(state)));
}

const std::string& Trace::directory() const { return state_->files.directory; }
Storage& Trace::storage() const { return state_->storage; }
const Settings& Trace::settings() const { return state_->settings; }
bool Trace::finished() const { return state_->end.has_value(); }
bool Trace::recording() const { return state_->locked && !finished(); }
const RecordingEnd& Trace::end() const { return state_->recording_end; }
const std::vector<UnitRecord>& Trace::units() const { return state_->units; }
const std::vector<ChannelRecord>& Trace::channels() const { return state_->channels; }
const std::map<uint64_t, FileRecord>& Trace::files() const { return state_->file_records; }
const std::vector<Refusal>& Trace::refusals() const { return state_->refusals; }
const std::vector<Unsure>& Trace::unsure() const { return state_->unsure; }
const std::vector<Interception>& Trace::interceptions() const { return state_->interceptions; }
const std::vector<Join>& Trace::joins() const { return state_->joins; }
const std::vector<StoppingSite>& Trace::stopping_sites() const { return state_->stopping_sites; }

uint64_t Trace::fingerprint() const {
  Encoder out;
  out.u(kFormatVersion);
  out.u(state_->journal->readable_size());
  out.fixed64(state_->journal->records().back().checksum);
  if (!finished()) {
    for (const auto& [unit, lazy] : state_->segments) {
      auto segment = state_->segment(unit);
      out.u(segment && *segment ? (*segment)->file().readable_size() : 0);
    }
  }
  return hash64(out.data());
}

const std::vector<IntervalRecord>& Trace::intervals(UnitId unit) const {
  const auto it = state_->intervals.find(unit);
  return it == state_->intervals.end() ? kNoIntervals : it->second;
}

const IntervalEnd* Trace::interval_end(UnitId unit, IntervalIndex interval) const {
  const auto it = state_->interval_ends.find({unit, interval});
  return it == state_->interval_ends.end() ? nullptr : &it->second;
}

std::string Trace::unit_name(UnitId unit) const {
  const auto it = state_->names.find(unit);
  return it == state_->names.end() ? fmt::format("{}", unit) : it->second;
}

namespace {

std::vector<UnitId> units_of_process(const Trace& trace, pid_t pid) {
  std::vector<UnitId> found;
  for (const auto& unit : trace.units()) {
    const auto& its = trace.intervals(unit.unit);
    const bool began_one =
        std::any_of(its.begin(), its.end(), [&](const auto& interval) { return interval.pid == pid; });
    if (unit.pid == pid || began_one) found.push_back(unit.unit);
  }
  return found;
}

}  // namespace

// If a number is both a unit's and a process's, the unit is meant.
Result<UnitId> Trace::find_unit(const std::string& text) const {
  UnitId number = 0;
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, number);
  if (error == std::errc() && end == text_end && state_->unit_records.contains(number)) return number;
  for (const auto& [unit, unit_name] : state_->names) {
    if (unit_name == text) return unit;
  }
  std::vector<UnitId> known;
  if (error == std::errc() && end == text_end) known = units_of_process(*this, static_cast<pid_t>(number));
  if (known.size() == 1) return known.front();
  const bool ambiguous = !known.empty();
  if (!ambiguous) {
    for (const auto& unit : state_->units) known.push_back(unit.unit);
  }
  constexpr size_t kShown = 5;
  std::string some;
  for (size_t i = 0; i < known.size() && i < kShown; i++) {
    some += fmt::format("{}{} ({})", i ? ", " : "", known[i], unit_name(known[i]));
  }
  if (known.size() > kShown) some += ", ...";
  if (ambiguous) return Error{"several units had process " + text + ": name one of " + some};
  return Error{"no unit or process '" + text + "' in " + directory() + "; there " +
               (some.empty() ? "are no units" : "are: " + some)};
}

EventIndex Trace::event_count(UnitId unit) const {
  auto segment = state_->segment(unit);
  if (!segment) {
    if (const auto place = state_->short_units.find(unit); place != state_->short_units.end()) {
      return place->second.events;
    }
    const auto known = state_->end_of(TraceFiles::segment_name(unit));
    return known ? known->items : 0;
  }
  return *segment ? (*segment)->count() : 0;
}

Result<void> Trace::for_each_event(UnitId unit, EventIndex first, EventIndex last,
                                   const std::function<bool(EventIndex, const Event&)>& visit) const {
  auto segment = state_->segment(unit);
  if (!segment) return segment.error();
  if (!*segment) return {};
  ASSIGN_OR_RETURN(const PayloadFile* added, state_->payloads(unit));
  if (!added) return (*segment)->for_each(first, last, visit);
  std::optional<Error> error;
  std::array<Event, 2> filled;  // the previous one is still valid
  TRY((*segment)->for_each(first, last, [&](EventIndex index, const Event& event) {
    if (!event.receive || event.receive->logged) return visit(index, event);
    Event& own = filled[index % filled.size()] = event;
    const auto found = added->fill(index, own);
    if (!found) error = found.error();
    return found && visit(index, own);
  }));
  if (error) return *error;
  return {};
}

uint64_t Trace::stored_bytes(UnitId unit, IntervalIndex interval) const {
  const auto it = state_->images.find({unit, interval});
  return it == state_->images.end() ? 0 : it->second.pages * kPageSize;
}

Result<Image> Trace::image(UnitId unit, IntervalIndex interval) const {
  const auto it = state_->images.find({unit, interval});
  if (it == state_->images.end()) {
    return Error{fmt::format("interval {}:{} has no image", unit_name(unit), interval)};
  }
  const ImagePublished& published = it->second;
  const auto read = [&]() -> Result<Image> {
    if (!published.own_file) {
      ASSIGN_OR_RETURN(const RecordFile* file, state_->image_file());
      if (!file) return damage(state_->files.images(), 0, "file is missing");
      return read_image(*file, published.first_item);
    }
    ASSIGN_OR_RETURN(const auto file, RecordFile::open(storage(), state_->files.image(unit, interval), FileKind::image,
                                                       unit, interval, Tail::whole, published.file_size));
    if (file->damaged()) return *file->damaged();
    return read_image(*file, 0);
  };
  ASSIGN_OR_RETURN(Image image, read());
  const bool known = std::all_of(image.pages.begin(), image.pages.end(),
                                 [&](const Image::Page& page) { return page.page_id < published.store_pages; });
  if (image.pages.size() != published.pages || !known) {
    const std::string path = published.own_file ? state_->files.image(unit, interval) : state_->files.images();
    return damage(path, kPreambleSize, "pages differ from the journal's");
  }
  return image;
}

Result<void> Trace::read_pages(std::vector<Image::Page> pages, const VisitPages& visit) const {
  if (pages.empty()) return {};
  ASSIGN_OR_RETURN(const PageStore* store, state_->page_store());
  if (!store) return damage(state_->files.pages(), 0, fmt::format("page {} is missing", pages[0].page_id));
  return store->read(std::move(pages), visit);
}

Result<std::string> Trace::file_path(uint64_t file) const {
  const auto it = state_->file_records.find(file);
  if (it == state_->file_records.end()) return Error{fmt::format("no file {} in {}", file, directory())};
  const FileRecord& record = it->second;
  const std::string path = state_->files.copy(record.copy);
  TRY(open_plain(storage(), path, record.size));  // so it is a regular file of the trace, and can be opened again
  state_->used_copies.add(record);
  return path;
}

const WallClock& wall_clock(const Trace& trace) { return trace.state().wall_clock; }

Result<void> used_copies_are_good(const Trace& trace) { return trace.state().used_copies.outcome(); }

uint64_t Trace::size_on_disk() const {
  uint64_t sum = 0;
  const TraceFiles& files = state_->files;
  for (const auto& below :
       {files.directory, files.events(), files.image_directory(), files.files(), files.payloads()}) {
    const auto names = storage().list(below);
    if (!names) continue;
    for (const auto& file_name : names.value()) {
      const auto file = storage().open(below + "/" + file_name);
      if (file) sum += file.value()->size();
    }
  }
  return sum;
}

}  // namespace redrive
