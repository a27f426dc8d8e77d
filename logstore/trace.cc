#include "logstore/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/assert.h"
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

// ---- Opening

Result<void> Trace::State::open() {
  locked = storage.locked(files.directory);
  TRY(open_volumes());
  find_shown();
  take_units();
  for (const auto& volume : volumes) take_facts(*volume);
  name_units();
  return {};
}

Result<void> Trace::State::open_volumes() {
  if (!storage.exists(files.volumes())) {
    if (!storage.exists(files.journal())) {
      return Error{files.directory + " is not a redrive trace (it has no 'journal')"};
    }
    ASSIGN_OR_RETURN(auto only, Volume::open(files.directory, storage, false));
    volumes.push_back(std::move(only));
    return {};
  }
  ASSIGN_OR_RETURN(const auto numbers, list_volumes(storage, files));
  uint64_t last = 0;
  for (const uint64_t number : numbers) {
    auto volume = Volume::open(files.volume(number), storage, true);
    // A recorder may have removed it meanwhile, or not yet have written its beginning, or may have been killed then.
    const bool passing = !storage.exists(files.volume(number)) || (number == numbers.back() && !has_begun(number));
    // What a unit that sleeps on and on keeps of an older one cannot be re-driven without what was removed since.
    if (volume && number > last + 1) volumes.clear();
    last = number;
    if (volume) {
      volumes.push_back(std::move(volume).value());
    } else if (!passing) {
      return volume.error();
    }
  }
  if (volumes.empty()) return Error{files.directory + " is empty: the recorder was killed before it began"};
  return {};
}

// Whether the volume's journal has its first record.
bool Trace::State::has_begun(uint64_t number) const {
  const auto journal = storage.open(TraceFiles{files.volume(number)}.journal());
  return journal && journal.value()->size() > kPreambleSize + kRecordHeaderSize;
}

void Trace::State::find_shown() {
  for (const auto& volume : volumes) {
    for (const auto& [unit, segment] : volume->segments) {
      if (volume->numbered && volume->intervals[unit].empty()) continue;
      Shown& its = shown[unit];
      const EventIndex first_event = volume->first_event(unit);
      const IntervalIndex first_interval = volume->first_interval(unit);
      if (!its.parts.empty()) {
        const Shown::Part& before = its.parts.back();
        const auto& intervals = before.volume->intervals[unit];
        const bool follows = before.end == first_event && intervals.back().interval + 1 == first_interval;
        if (!follows) its.parts.clear();
      }
      if (its.parts.empty()) {
        its.first_event = first_event;
        its.first_interval = first_interval;
      }
      its.parts.push_back({volume.get(), volume->end_event(unit)});
      renumbered |= volume->numbered;
    }
  }
}

EventRef Trace::State::shown_as(EventRef stored) const {
  const auto its = shown.find(stored.unit);
  if (its == shown.end() || stored.event < its->second.first_event) return {};
  return {stored.unit, stored.event - its->second.first_event};
}

void Trace::State::take_units() {
  for (const auto& volume : volumes) {
    for (const auto& [unit, record] : volume->unit_records) {
      if (volume->numbered && !shown.contains(unit)) continue;
      UnitRecord& taken = unit_records[unit] = record;
      if (volume->numbered) taken.parent = shown_as(record.parent);
    }
  }
  for (const auto& [unit, record] : unit_records) units.push_back(record);
  for (const auto& [unit, its] : shown) take_unit(unit, its);
  if (last_volume().numbered) return;
  for (const auto& [interval, image] : last_volume().images) images[interval] = {0, image};
}

// What was added to the trace later is in its last volume.
std::optional<Trace::State::StoredImage> Trace::State::find_image(const Volume& volume,
                                                                  std::pair<UnitId, IntervalIndex> stored) const {
  for (size_t index = volumes.size(); index-- > 0;) {
    if (volumes[index].get() != &volume && index + 1 < volumes.size()) continue;
    const auto image = volumes[index]->images.find(stored);
    if (image != volumes[index]->images.end()) return StoredImage{index, image->second};
  }
  return std::nullopt;
}

void Trace::State::take_unit(UnitId unit, const Shown& its) {
  for (const auto& part : its.parts) {
    Volume& volume = *part.volume;
    for (IntervalRecord record : volume.intervals[unit]) {
      const std::pair stored(unit, record.interval);
      record.interval -= its.first_interval;
      record.first_event -= its.first_event;
      const std::pair key(unit, record.interval);
      const auto image = find_image(volume, stored);
      if (image) images[key] = *image;
      record.has_image = image.has_value();
      if (const auto known = volume.interval_ends.find(stored); known != volume.interval_ends.end()) {
        IntervalEnd& end = interval_ends[key] = std::move(known->second);
        end.interval = record.interval;
        end.end_event -= std::min(end.end_event, its.first_event);
      }
      intervals[unit].push_back(std::move(record));
    }
    volume.intervals.erase(unit);
  }
}

void Trace::State::take_facts(Volume& volume) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    from.clear();
  };
  settings = volume.settings;
  if (volume.end) recording_end = volume.end->end;
  if (volume.numbered) {
    const auto hidden = [&](auto& fact) {
      const EventRef at = shown_as({fact.unit, fact.event});
      fact.event = at.event;
      return at.unit == 0;
    };
    std::erase_if(volume.unsure, hidden);
    std::erase_if(volume.joins, hidden);
    std::erase_if(volume.refusals, [&](const Refusal& refusal) { return !shown.contains(refusal.unit); });
    std::erase_if(volume.interceptions, [&](const Interception& of) { return !shown.contains(of.unit); });
    // Each volume names the channels that were open when it began.
    std::erase_if(volume.channels,
                  [&](const ChannelRecord& channel) { return !known_channels.insert(channel.channel).second; });
  }
  append(channels, volume.channels);
  file_records.merge(volume.file_records);
  append(refusals, volume.refusals);
  append(unsure, volume.unsure);
  append(interceptions, volume.interceptions);
  append(stopping_sites, volume.stopping_sites);
  append(joins, volume.joins);
  wall_clock.append(volume.wall_clock);
}

// What the event refers to is as the trace shows it.
Result<void> Trace::State::show(EventRef at, Event& event) const {
  if (!event.receive) return {};
  for (auto& part : event.receive->parts) {
    if (part.sender.unit == 0) continue;
    part.sender = shown_as(part.sender);
    if (part.sender.unit == 0 && !event.receive->logged) {
      return Error{
          fmt::format("{}: event {} of unit {} received a message that is not kept, from a removed part of the trace",
                      files.directory, at.event, at.unit),
          Status::damaged};
    }
  }
  return {};
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
  auto state = std::make_unique<State>(named_directory(directory), storage);
  TRY(state->open());
  return std::shared_ptr<Trace>(new Trace(std::move(state)));
}

const std::string& Trace::directory() const { return state_->files.directory; }
Storage& Trace::storage() const { return state_->storage; }
const Settings& Trace::settings() const { return state_->settings; }
bool Trace::finished() const {
  const auto ended = [](const auto& volume) { return volume->end.has_value(); };
  return std::all_of(state_->volumes.begin(), state_->volumes.end(), ended);
}
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
  for (const auto& volume : state_->volumes) {
    out.u(volume->journal->readable_size());
    out.fixed64(volume->journal->records().back().checksum);
    if (volume->end) continue;
    for (const auto& [unit, lazy] : volume->segments) {
      auto segment = volume->segment(unit);
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
  const auto its = state_->shown.find(unit);
  return its == state_->shown.end() ? 0 : its->second.parts.back().end - its->second.first_event;
}

// Damage is reported where the last events of a volume cannot be read, so only the last volume is asked for more than
// it has.
Result<void> Trace::for_each_event(UnitId unit, EventIndex first, EventIndex last,
                                   const std::function<bool(EventIndex, const Event&)>& visit) const {
  const auto found = state_->shown.find(unit);
  if (found == state_->shown.end()) return {};
  const State::Shown& its = found->second;
  const auto stored = [&](EventIndex event) {
    return event > UINT64_MAX - its.first_event ? event : event + its.first_event;
  };
  std::array<Event, 2> own;  // the previous one is still valid
  for (const auto& part : its.parts) {
    if (stored(first) >= part.end && part.volume != its.parts.back().volume) continue;
    ASSIGN_OR_RETURN(const EventSegment* segment, part.volume->segment(unit));
    if (!segment) continue;
    std::vector<const PayloadFile*> payloads;
    for (const Volume* volume : {static_cast<const Volume*>(part.volume), &state_->last_volume()}) {
      ASSIGN_OR_RETURN(const PayloadFile* added, volume->payloads(unit));
      if (added && (payloads.empty() || payloads.front() != added)) payloads.push_back(added);
    }
    std::optional<Error> error;
    bool more = true;
    const auto visit_stored = [&](EventIndex at, const Event& event) {
      const EventIndex index = at - its.first_event;
      const bool as_it_is = !event.receive || (!state_->renumbered && (payloads.empty() || event.receive->logged));
      if (as_it_is) return more = visit(index, event);
      Event& shown = own[index % own.size()] = event;
      const auto keep_error = [&](const auto& result) {
        if (!result && !error) error = result.error();
      };
      for (const PayloadFile* added : payloads) {
        if (!shown.receive->logged) keep_error(added->fill(at, shown));
      }
      if (state_->renumbered) keep_error(state_->show({unit, index}, shown));
      return more = !error && visit(index, shown);
    };
    const EventIndex until = part.volume == its.parts.back().volume ? stored(last) : std::min(stored(last), part.end);
    TRY(segment->for_each(stored(first), until, visit_stored));
    if (error) return *error;
    if (!more) return {};
  }
  return {};
}

uint64_t Trace::stored_bytes(UnitId unit, IntervalIndex interval) const {
  const auto it = state_->images.find({unit, interval});
  return it == state_->images.end() ? 0 : it->second.published.pages * kPageSize;
}

namespace {

// The numbers of pages say in which volume they are.
constexpr int kPageBits = 40;

}  // namespace

Result<Image> Trace::image(UnitId unit, IntervalIndex interval) const {
  const auto it = state_->images.find({unit, interval});
  if (it == state_->images.end()) {
    return Error{fmt::format("interval {}:{} has no image", unit_name(unit), interval)};
  }
  const auto& [index, published] = it->second;
  const Volume& volume = *state_->volumes[index];
  ASSIGN_OR_RETURN(Image image, volume.image(published));
  const uint64_t pages = std::min(published.store_pages, uint64_t{1} << kPageBits);
  const bool known = std::all_of(image.pages.begin(), image.pages.end(),
                                 [&](const Image::Page& page) { return page.page_id < pages; });
  if (image.pages.size() != published.pages || !known) {
    const std::string path = published.own_file ? volume.files.image(unit, interval) : volume.files.images();
    return damage(path, kPreambleSize, "pages differ from the journal's");
  }
  if (index > 0) {
    for (auto& page : image.pages) page.page_id += uint64_t{index} << kPageBits;
  }
  return image;
}

Result<void> Trace::read_pages(std::vector<Image::Page> pages, const VisitPages& visit) const {
  while (!pages.empty()) {
    const uint64_t index = pages.front().page_id >> kPageBits;
    const auto others = std::stable_partition(
        pages.begin(), pages.end(), [&](const Image::Page& page) { return page.page_id >> kPageBits == index; });
    std::vector<Image::Page> rest(others, pages.end());
    pages.erase(others, pages.end());
    ASSERT(index < state_->volumes.size());
    const Volume& volume = *state_->volumes[index];
    ASSIGN_OR_RETURN(const PageStore* store, volume.page_store());
    if (!store) return damage(volume.files.pages(), 0, fmt::format("page {} is missing", pages[0].page_id));
    for (auto& page : pages) page.page_id -= index << kPageBits;
    TRY(store->read(std::move(pages), visit));
    pages = std::move(rest);
  }
  return {};
}

Result<std::string> Trace::file_path(uint64_t file) const {
  const auto it = state_->file_records.find(file);
  if (it == state_->file_records.end()) return Error{fmt::format("no file {} in {}", file, directory())};
  const FileRecord& record = it->second;
  const std::string path = state_->files.copy(record.copy);
  // A process maps some files many times. What could be opened before can be opened again.
  if (state_->used_copies.has(record)) return path;
  TRY(open_plain(storage(), path, record.size));  // so it is a regular file of the trace
  state_->used_copies.add(record);
  return path;
}

const WallClock& wall_clock(const Trace& trace) { return trace.state().wall_clock; }

std::optional<int32_t> exit_status(const Trace& trace) {
  const RecordingEnd& end = trace.end();
  if (!trace.finished() || end.reason == kGoesOn || end.reason == kLetGo) return std::nullopt;
  return end.exit_status;
}

Result<void> used_copies_are_good(const Trace& trace) { return trace.state().used_copies.outcome(); }

uint64_t stored_image_bytes(const Trace& trace) {
  uint64_t sum = 0;
  for (const auto& volume : trace.state().volumes) {
    for (const auto& path : {volume->files.pages(), volume->files.images()}) {
      if (const auto file = trace.storage().open(path)) sum += file.value()->size();
    }
  }
  return sum;
}

uint64_t Trace::size_on_disk() const {
  uint64_t sum = 0;
  const auto add = [&](const std::string& below) {
    const auto names = storage().list(below);
    if (!names) return;
    for (const auto& file_name : names.value()) {
      const auto file = storage().open(below + "/" + file_name);
      if (file) sum += file.value()->size();
    }
  };
  add(state_->files.files());
  if (state_->last_volume().numbered) add(state_->files.directory);
  for (const auto& volume : state_->volumes) {
    const TraceFiles& files = volume->files;
    for (const auto& below : {files.directory, files.events(), files.image_directory(), files.payloads()}) add(below);
  }
  return sum;
}

}  // namespace redrive
