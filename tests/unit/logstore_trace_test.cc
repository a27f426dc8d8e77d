// Writing a trace and reading it back, on the in-memory twin of the disk.
#include <algorithm>
#include <limits>
#include <thread>

#include "logstore/hash.h"
#include "logstore/image_file.h"
#include "logstore/journal.h"
#include "logstore/memory_storage.h"
#include "logstore/page_store.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::logstore_trace_test {

namespace {

const TraceFiles kFiles{"/t"};

std::shared_ptr<Trace> opened(Storage& storage) {
  auto trace = Trace::open("/t", storage);
  REQUIRE_MESSAGE(trace, trace.error().message);
  return std::move(trace).value();
}

// If finished, with a catalog.
void make_sample(Storage& storage, bool finish = true) {
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(writer);
  sample::fill(**writer);
  if (finish) {
    const auto finished = (*writer)->finish(sample::recording_end());
    REQUIRE_MESSAGE(finished, finished.error().message);
    REQUIRE(build_catalog(*opened(storage)));
  }
}

void check_events(const Trace& trace, UnitId unit, EventIndex first, EventIndex last) {
  auto values = sample::event_values(unit);
  for (EventIndex i = 0; i < first; i++) (void)sample::event(values);
  EventIndex next = first;
  uint64_t wrong = 0;
  const Event* before = nullptr;
  Event expected_before;
  const auto read = trace.for_each_event(unit, first, last, [&](EventIndex index, const Event& event) {
    if (before && !(*before == expected_before)) wrong++;  // it is still valid
    before = &event;
    expected_before = sample::event(values);
    if (index != next++ || !(event == expected_before)) wrong++;
    return true;
  });
  REQUIRE_MESSAGE(read, read.error().message);
  CHECK_EQ(wrong, 0);
  CHECK_EQ(next, last);
}

// The contents by address; each page must be visited once.
std::map<Address, Bytes> pages_of(const Trace& trace, const std::vector<Image::Page>& pages) {
  std::map<Address, Bytes> contents;
  const auto read = trace.read_pages(pages, [&](std::span<const PageRef> found) -> Result<void> {
    for (const auto& page : found) {
      CHECK(contents.emplace(page.address, Bytes(page.data, page.data + kPageSize)).second);
    }
    return {};
  });
  REQUIRE_MESSAGE(read, read.error().message);
  return contents;
}

void check_image(const Trace& trace, UnitId unit, IntervalIndex interval) {
  auto image = trace.image(unit, interval);
  REQUIRE_MESSAGE(image, image.error().message);
  CHECK(image->header == sample::Values(77).bytes(300));
  CHECK_EQ(image->pages.size(), sample::kPages * 9 / 10);
  const auto read = pages_of(trace, image->pages);
  size_t at = 0;
  for (size_t i = 0; i < sample::kPages; i++) {
    if (i % 10 == 9) continue;
    const auto& page = image->pages[at++];
    CHECK_EQ(page.address, sample::page_address(i));
    CHECK_EQ(page.process, 1);
    REQUIRE(read.contains(page.address));
    CHECK(read.at(page.address) == sample::page(unit, interval, i));
  }
  CHECK_EQ(read.size(), at);
}

bool is_of_catalog(const std::string& path) { return path.starts_with(kFiles.catalog()); }

// Makes a record of the journal say something else, with a correct checksum.
void replace_journal_header(Bytes& journal, uint32_t version) {
  std::memcpy(journal.data() + 8, &version, sizeof version);
  const auto sum = static_cast<uint32_t>(hash64(std::span(journal).first(20)));
  std::memcpy(journal.data() + 20, &sum, sizeof sum);
}

}  // namespace

TEST_CASE("a finished trace says what was written") {
  MemoryStorage storage;
  make_sample(storage);
  const auto trace = opened(storage);
  CHECK(trace->finished());
  CHECK_EQ(trace->end().exit_status, 7);
  CHECK_EQ(trace->end().wall_s, 12.5);
  CHECK_EQ(trace->settings().command, sample::settings().command);
  CHECK_EQ(trace->settings().started_unix_ns, sample::settings().started_unix_ns);
  REQUIRE_EQ(trace->units().size(), sample::kUnits + 1);
  CHECK_EQ(trace->units()[1].joined, std::vector<UnitId>{3});
  CHECK(trace->units()[1].parent == EventRef{1, 3});
  CHECK_EQ(trace->channels().size(), 2);
  REQUIRE_EQ(trace->refusals().size(), 1);
  CHECK_EQ(trace->refusals()[0].what, "io_uring_setup");
  REQUIRE_EQ(trace->unsure().size(), 1);
  CHECK_EQ(trace->unsure()[0].event, 17);
  REQUIRE_EQ(trace->interceptions().size(), 1);
  CHECK_EQ(trace->interceptions()[0].served, 10);
  CHECK_EQ(trace->interceptions()[0].stopped, 5);
  REQUIRE_EQ(trace->stopping_sites().size(), 1);
  CHECK_EQ(trace->stopping_sites()[0].offset, 0x1234);
  CHECK_EQ(trace->stopping_sites()[0].stops, 5);
  for (UnitId unit = 1; unit <= sample::kUnits; unit++) {
    REQUIRE_EQ(trace->intervals(unit).size(), 2);
    CHECK_FALSE(trace->intervals(unit)[0].has_image);
    CHECK(trace->intervals(unit)[1].has_image);
    CHECK_EQ(trace->intervals(unit)[1].first_event, sample::kEventsPerInterval);
    REQUIRE(trace->interval_end(unit, 1));
    CHECK_EQ(trace->interval_end(unit, 1)->cpu_ns, 1'000'000'000 * unit);
    CHECK_EQ(trace->event_count(unit), 2 * sample::kEventsPerInterval);
    check_events(*trace, unit, 0, 80);
    check_image(*trace, unit, 1);
  }
  CHECK_EQ(trace->event_count(sample::kShortUnit), sample::kShortEvents);
  CHECK_FALSE(storage.exists(kFiles.segment(sample::kShortUnit)));
  check_events(*trace, sample::kShortUnit, 0, sample::kShortEvents);
  check_events(*trace, sample::kShortUnit, 2, 4);
  CHECK(trace->interval_end(1, 2) == nullptr);
  CHECK(trace->intervals(99).empty());
  CHECK_EQ(trace->event_count(99), 0);
  CHECK_FALSE(trace->image(1, 0));
  const auto path = trace->file_path(1);
  REQUIRE(path);
  CHECK_EQ(storage.bytes(path.value()).size(), 70'000);
  CHECK_FALSE(trace->file_path(2));
  CHECK(used_copies_are_good(*trace));
  CHECK(check_trace(*trace).empty());
}

TEST_CASE("a copy that is damaged is found while it is used") {
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(writer);
  sample::fill(**writer);
  REQUIRE((*writer)->finish({}));
  const auto path = Trace::open("/t", storage).value()->file_path(1);
  REQUIRE(path);
  storage.bytes(*path)[60'000] ^= 1;
  const auto trace = Trace::open("/t", storage);
  REQUIRE(trace);
  CHECK(used_copies_are_good(**trace));  // none is used
  CHECK_EQ((*trace)->file_path(1).value(), *path);
  const auto found = used_copies_are_good(**trace);
  REQUIRE_FALSE(found);
  CHECK(found.error().status == Status::damaged);
  CHECK_FALSE(used_copies_are_good(**trace));
}

TEST_CASE("there is an exit status only if the program has ended") {
  for (const auto& [reason, status] : std::vector<std::pair<std::string, std::optional<int32_t>>>{
           {"exited", 7}, {kGoesOn, std::nullopt}, {kLetGo, std::nullopt}, {"", std::nullopt}}) {
    CAPTURE(reason);
    MemoryStorage storage;
    auto writer = TraceWriter::create("/t", sample::settings(), storage);
    REQUIRE(writer);
    RecordingEnd end = sample::recording_end();
    end.reason = reason;
    if (!reason.empty()) REQUIRE((*writer)->finish(end));
    if (reason.empty()) REQUIRE((*writer)->flush());
    CHECK(exit_status(*opened(storage)) == status);
  }
}

TEST_CASE("a copy that was cut is refused as often as it is asked for") {
  MemoryStorage storage;
  make_sample(storage);
  const std::string path = opened(storage)->file_path(1).value();
  storage.bytes(path).pop_back();
  const auto trace = opened(storage);
  for (int times = 0; times < 2; ++times) CHECK(trace->file_path(1).error().status == Status::damaged);
  storage.bytes(path).push_back(0);
  for (int times = 0; times < 2; ++times) CHECK_EQ(trace->file_path(1).value(), path);
}

TEST_CASE("events are found from any place, in any order, by several threads") {
  MemoryStorage storage;
  make_sample(storage);
  const auto trace = opened(storage);
  for (const auto& [first, last] : {std::pair{79, 80}, {0, 1}, {39, 41}, {10, 70}, {40, 40}, {41, 42}, {42, 43}}) {
    check_events(*trace, 2, static_cast<EventIndex>(first), static_cast<EventIndex>(last));
  }
  std::vector<std::thread> threads;
  std::atomic<uint64_t> seen = 0;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (EventIndex i = 0; i < 80; i++) {
        (void)static_cast<bool>(
            trace->for_each_event(1, i, i + 1, [&](EventIndex, const Event&) { return ++seen > 0; }));
        (void)static_cast<bool>(
            trace->read_pages({{1, i, i}}, [](std::span<const PageRef>) { return Result<void>(); }));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(seen, 4 * 80);
}

TEST_CASE("units are found by number and by name") {
  MemoryStorage storage;
  make_sample(storage);
  const auto trace = opened(storage);
  CHECK_EQ(trace->unit_name(1), "server");
  CHECK_EQ(trace->unit_name(2), "jacobi.1");
  CHECK_EQ(trace->unit_name(3), "jacobi.2");
  CHECK_EQ(trace->find_unit("jacobi.2").value(), 3);
  CHECK_EQ(trace->find_unit("2").value(), 2);
  for (const char* unknown : {"jacobi", "5", "", "0", "99999999999"}) CHECK_FALSE(trace->find_unit(unknown));
  CHECK_EQ(trace->find_unit("nobody").error().message,
           "no unit or process 'nobody' in /t; there are: 1 (server), 2 (jacobi.1), 3 (jacobi.2), 4 (true)");
}

TEST_CASE("a killed recorder's trace is read up to what was flushed") {
  MemoryStorage storage;
  make_sample(storage, false);
  const auto trace = opened(storage);
  CHECK_FALSE(trace->finished());
  CHECK_EQ(trace->end().wall_s, 0);
  for (UnitId unit = 1; unit <= sample::kUnits; unit++) check_events(*trace, unit, 0, trace->event_count(unit));
  check_image(*trace, 3, 1);
  CHECK(check_trace(*trace).empty());
  CHECK(catalog_path(*trace));
}

TEST_CASE("every length of every file of a killed recorder's trace can be read") {
  MemoryStorage whole;
  make_sample(whole, false);
  for (const std::string& path : {kFiles.journal(), kFiles.segment(1), kFiles.segment(TraceFiles::kShortUnits)}) {
    const Bytes all = whole.bytes(path);
    // Every size near the end, where records are many and small, and a sample of the others.
    for (size_t size = 0; size <= all.size(); size += size + 1000 > all.size() ? 1 : 7) {
      whole.bytes(path) = Bytes(all.begin(), all.begin() + static_cast<ptrdiff_t>(size));
      const auto trace = Trace::open("/t", whole);
      if (!trace) {
        CHECK_EQ(trace.error().status, Status::failed);  // killed before it began
        CHECK(path == kFiles.journal());
        continue;
      }
      const auto& t = *trace.value();
      for (const auto& unit : t.units()) check_events(t, unit.unit, 0, t.event_count(unit.unit));
      for (const auto& unit : t.units()) {
        for (const auto& interval : t.intervals(unit.unit)) CHECK(interval.first_event <= t.event_count(unit.unit));
      }
      CHECK(check_trace(t).empty());
    }
    whole.bytes(path) = all;
  }
}

TEST_CASE("a disk that becomes full holds no event without what the journal says of it") {
  constexpr EventIndex kEvents = 3;
  constexpr IntervalIndex kIntervals = 6;
  uint64_t cut = 0;
  for (uint64_t change = 0;; ++change) {
    CAPTURE(change);
    MemoryStorage storage;
    storage.fail_from(change);
    auto writer = TraceWriter::create("/t", sample::settings(), storage);
    if (!writer) continue;
    for (IntervalIndex i = 0; i < kIntervals; ++i) {
      for (const UnitId unit : {1u, 2u}) {
        if (i == 0) (*writer)->add(UnitRecord{unit, 100, {}, {}});
        (*writer)->add(IntervalRecord{unit, i, CheckpointKind::exec, i * kEvents, false, 0, "program", 0});
        for (EventIndex event = 0; event < kEvents; ++event) (*writer)->append(unit, Event{});
      }
      (void)static_cast<bool>((*writer)->flush());
    }
    const bool whole = static_cast<bool>((*writer)->flush());
    writer->reset();
    const auto trace = opened(storage);
    for (const auto& unit : trace->units()) {
      const EventIndex events = trace->event_count(unit.unit);
      const auto& intervals = trace->intervals(unit.unit);
      CHECK_LE(events, kEvents * intervals.size());
      CHECK_LE(kEvents * intervals.size(), std::max<EventIndex>(events, 1) + kEvents - 1);
      cut += events < kEvents * kIntervals;
    }
    if (whole) break;
  }
  CHECK_GE(cut, kIntervals);
}

TEST_CASE("one flipped bit in any file is reported with file and offset") {
  MemoryStorage storage;
  make_sample(storage);
  for (const auto& path : storage.all_files()) {
    if (is_of_catalog(path)) continue;
    CAPTURE(path);
    const size_t size = storage.bytes(path).size();
    for (size_t at = 0; at < size; at += 1 + size / 100) {
      CAPTURE(at);
      storage.bytes(path)[at] ^= static_cast<uint8_t>(1 << (at % 8));
      const auto trace = Trace::open("/t", storage);
      std::vector<std::string> found;
      if (!trace) {
        CHECK_EQ(trace.error().status, Status::damaged);
        found.push_back(trace.error().message);
      } else {
        found = check_trace(*trace.value());
      }
      REQUIRE_FALSE(found.empty());
      CHECK(found[0].starts_with(path + ": offset "));
      storage.bytes(path)[at] ^= static_cast<uint8_t>(1 << (at % 8));
    }
  }
}

TEST_CASE("one flipped bit in the catalog or its sums is a change, and no damage") {
  MemoryStorage storage;
  make_sample(storage);
  const auto trace = opened(storage);
  CHECK_FALSE(*is_catalog_changed(*trace));
  for (const auto& path : storage.all_files()) {
    if (!is_of_catalog(path)) continue;
    CAPTURE(path);
    const size_t size = storage.bytes(path).size();
    for (size_t at = 0; at < size; at += 1 + size / 100) {
      CAPTURE(at);
      storage.bytes(path)[at] ^= static_cast<uint8_t>(1 << (at % 8));
      CHECK(*is_catalog_changed(*trace));
      CHECK(check_trace(*trace).empty());
      storage.bytes(path)[at] ^= static_cast<uint8_t>(1 << (at % 8));
    }
  }
}

TEST_CASE("lists of pages are read only as long as they are in order and expected") {
  MemoryStorage storage;
  RecordWriter writer(storage, kFiles.images(), FileKind::image);
  writer.add(RecordType::image_header, Bytes{1});
  for (const int64_t address : {0x5000, 0x3000, 0x7000}) {
    Encoder list;
    list.u(0), list.s(address), list.s(0);
    writer.add(RecordType::image_pages, list.data());
  }
  REQUIRE(writer.write());
  storage.bytes(kFiles.images()).back() ^= 1;  // whoever reads the last list finds other damage
  const auto error_of = [&](uint64_t pages) {
    auto file = RecordFile::open(storage, kFiles.images(), FileKind::image, 0, 0, Tail::whole);
    REQUIRE_MESSAGE(file, file.error().message);
    const auto image = read_image(RecordParts(std::move(file).value()), 0, pages);
    REQUIRE_FALSE(image);
    CHECK_EQ(image.error().status, Status::damaged);
    return image.error().message;
  };
  CHECK(error_of(3).ends_with("pages are not in order"));
  CHECK(error_of(1).ends_with("more pages than the journal says"));
}

TEST_CASE("a packed record in a journal is damage") {
  MemoryStorage storage;
  make_sample(storage, false);
  const auto journal = RecordFile::open(storage, kFiles.journal(), FileKind::journal, 0, 0, Tail::torn).value();
  Compressor compressor(1);
  const JournalRecord record = Unsure{1, 0, std::string(1000, 'x')};
  for (Compressor* const packing : {static_cast<Compressor*>(nullptr), &compressor}) {
    RecordWriter writer(storage, kFiles.journal(), FileKind::journal);
    REQUIRE(writer.resume(journal->readable_size(), journal->items()));
    writer.add(type_of(record), encode(record), 1, packing);
    REQUIRE(writer.write());
    CHECK_EQ(static_cast<bool>(Trace::open("/t", storage)), !packing);
  }
}

// If this took quadratic time, it would take minutes.
TEST_CASE("each of many damaged records is reported") {
  constexpr size_t kRecords = 200'000;
  MemoryStorage storage;
  make_sample(storage);
  const std::string path = kFiles.payloads(1);
  RecordWriter payloads(storage, path, FileKind::payloads, 1);
  for (size_t i = 0; i < kRecords; ++i) {
    Encoder place;
    place.u(1'000'000 + i), place.u(1);  // no event of the sample
    payloads.add(RecordType::payload_places, place.data());
    payloads.add(RecordType::payload_bytes, Bytes{0});
  }
  REQUIRE(payloads.write());
  JournalWriter journal(storage, kFiles.journal());
  const auto before = RecordFile::open(storage, kFiles.journal(), FileKind::journal, 0, 0, Tail::torn).value();
  REQUIRE(journal.resume(before->readable_size(), before->items()));
  journal.add(PayloadsPublished{1, payloads.written(), payloads.items()});
  REQUIRE(journal.write());
  REQUIRE(check_trace(*opened(storage)).empty());
  const auto file = RecordFile::open(storage, path, FileKind::payloads, 1, 0, Tail::whole).value();
  for (const RecordHeader& record : file->records()) {
    if (record.type == RecordType::payload_bytes) storage.bytes(path)[record.end() - 1] ^= 1;
  }
  CHECK_EQ(check_trace(*opened(storage)).size(), kRecords);
}

TEST_CASE("what is before the damage stays readable") {
  MemoryStorage storage;
  make_sample(storage);
  const std::string path = kFiles.segment(2);
  storage.bytes(path).back() ^= 1;
  const auto trace = opened(storage);
  CHECK_EQ(trace->event_count(2), 80);
  check_events(*trace, 2, 0, 40);
  const auto read = trace->for_each_event(2, 30, 80, [](EventIndex, const Event&) { return true; });
  REQUIRE_FALSE(read);
  CHECK_EQ(read.error().status, Status::damaged);
  CHECK(read.error().message.starts_with(path + ": offset "));
}

TEST_CASE("a finished trace that lost a file's end, or a file, is damaged") {
  MemoryStorage storage;
  make_sample(storage);
  for (const auto& path : storage.all_files()) {
    // A journal without its end is that of a killed recorder.
    if (path == kFiles.journal() || is_of_catalog(path)) continue;
    CAPTURE(path);
    const Bytes all = storage.bytes(path);
    for (const size_t size : {all.size() - 1, all.size() / 2, size_t{0}}) {
      storage.bytes(path).resize(size);
      const auto found = check_trace(*opened(storage));
      REQUIRE_FALSE(found.empty());
      CHECK(found[0].starts_with(path + ": offset "));
    }
    storage.bytes(path) = all;
    storage.bytes(path).push_back(0);
    CHECK_FALSE(check_trace(*opened(storage)).empty());
    storage.bytes(path) = all;
  }
  REQUIRE(storage.remove(kFiles.segment(1)));
  CHECK_EQ(check_trace(*opened(storage))[0], "/t/events/1.seg: offset 0: file is missing");
  const Error removed = missing(storage, "/gone/events/1.seg");
  CHECK_EQ(removed.message, "/gone was removed meanwhile");
  CHECK_EQ(removed.status, Status::failed);
}

TEST_CASE("settings with impossible times are damage") {
  for (const double time_s :
       {-1.0, 1e10, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(time_s);
    for (double Settings::*const field :
         {&Settings::bound_s, &Settings::critical_path_s, &Settings::checkpoint_period_s, &Settings::restore_cost_s}) {
      MemoryStorage storage;
      Settings settings = sample::settings();
      settings.*field = time_s;
      auto writer = TraceWriter::create("/t", settings, storage);
      REQUIRE(writer);
      writer->reset();
      const auto trace = Trace::open("/t", storage);
      REQUIRE_FALSE(trace);
      CHECK_EQ(trace.error().status, Status::damaged);
    }
  }
}

TEST_CASE("a newer format and what is no trace are told apart from damage") {
  MemoryStorage storage;
  make_sample(storage);
  replace_journal_header(storage.bytes("/t/journal"), kFormatVersion + 1);
  const auto newer = Trace::open("/t", storage);
  REQUIRE_FALSE(newer);
  CHECK_EQ(newer.error().status, Status::failed);
  CHECK_EQ(newer.error().message, "/t/journal: trace made by a newer redrive, format " +
                                      std::to_string(kFormatVersion + 1) + "; this one reads up to " +
                                      std::to_string(kFormatVersion));
  CHECK_EQ(Trace::open("/none", storage).error().message, "no trace /none");
  REQUIRE(storage.make_directory("/d"));
  CHECK_EQ(Trace::open("/d", storage).error().message, "/d is not a redrive trace (it has no 'journal')");
}

TEST_CASE("a writer does not write into what exists") {
  MemoryStorage storage;
  make_sample(storage);
  const auto again = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE_FALSE(again);
  CHECK(again.error().message.starts_with("/t already exists"));
}

TEST_CASE("equal pages are stored once, zero pages not at all, equal files once") {
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(writer);
  auto& w = **writer;
  CHECK_EQ(sample::publish(w, 1, 0)->new_pages, 90);
  CHECK_EQ(sample::publish(w, 1, 1)->new_pages, 65);  // a quarter is common
  const auto again = sample::publish(w, 1, 1);
  REQUIRE(again);
  CHECK_EQ(again.value().pages, 90);
  CHECK_EQ(again.value().new_pages, 0);
  const auto first = w.add_file(sample::source_file(), "/a", true);
  REQUIRE(first);
  const uint64_t bytes = w.bytes_written();
  CHECK_EQ(w.add_file(sample::source_file(), "/a", true).value(), first.value());
  const auto other = w.add_file(sample::source_file(), "/b", true);
  REQUIRE(other);
  CHECK(other.value() != first.value());
  CHECK_EQ(w.bytes_written(), bytes);
  CHECK_FALSE(w.add_file("/nonexistent", "/c", true));
  CHECK_FALSE(w.add_file("/dev/null", "/c", true));
  CHECK(w.flush());
}

TEST_CASE("the pages of the last images are remembered, however many those are, and few others") {
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(writer);
  // Publishes pages of consecutive numbers; each page holds its own number.
  const auto publish = [&](UnitId unit, IntervalIndex interval, uint64_t first, uint64_t count) {
    const auto stats = (*writer)->publish_image(unit, interval, [&](const AddPages& add) -> Result<Bytes> {
      Bytes page(kPageSize);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t number = first + i + 1;
        std::memcpy(page.data(), &number, sizeof number);
        TRY(add(1, kPageSize * (i + 1), page));
      }
      return Bytes{1};
    });
    REQUIRE(stats);
    return stats->new_pages;
  };
  constexpr uint64_t kLarge = 2 * PageIndex::kLeast;
  CHECK_EQ(publish(1, 0, 0, kLarge), kLarge);
  CHECK_EQ(publish(2, 0, 50 * kLarge, 100), 100);
  CHECK_EQ(publish(1, 1, 0, kLarge + 1), 1);
  // No large unit is alive: what was seen long ago is stored again.
  CHECK_EQ(publish(1, 2, 0, 10), 0);
  for (IntervalIndex i = 3; i < 20; ++i) CHECK_EQ(publish(1, i, i * kLarge, PageIndex::kLeast), PageIndex::kLeast);
  CHECK_EQ(publish(2, 1, 50 * kLarge, 100), 100);
  // Neither is what has ended remembered.
  CHECK_EQ(publish(3, 0, 60 * kLarge, kLarge), kLarge);
  (*writer)->end_images(3);
  for (IntervalIndex i = 20; i < 25; ++i) CHECK_EQ(publish(1, i, i * kLarge, PageIndex::kLeast), PageIndex::kLeast);
  CHECK_EQ(publish(4, 0, 60 * kLarge, 10), 10);
}

TEST_CASE("a zero page is recognized, and nothing else") {
  Bytes page(4096);
  CHECK(is_zero_page(page.data()));
  for (size_t i = 0; i < page.size(); i++) {
    page[i] = 1;
    CHECK_FALSE(is_zero_page(page.data()));
    page[i] = 0;
  }
}

TEST_CASE("pages are read in the store's order, wherever they lie, and as often as they are named") {
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(writer);
  constexpr size_t kMany = 300;  // more than one record
  const auto page = [](size_t i) { return Bytes(kPageSize, static_cast<uint8_t>(1 + i % 200)); };
  REQUIRE((*writer)->publish_image(1, 0, [&](const AddPages& add) -> Result<Bytes> {
    Bytes run;
    for (size_t i = kMany; i-- > 0;) {  // backwards: the order of the image is not that of the store
      run = page(i);
      TRY(add(1, 0x1000 * (i + 1), run));
    }
    run.insert(run.end(), kPageSize, 0);
    run.insert(run.end(), kPageSize, 77);
    TRY(add(2, 0x10000, run));  // page 0, a zero page, and one that process 1 also has
    return Bytes();
  }));
  REQUIRE((*writer)->finish(sample::recording_end()));
  const auto trace = opened(storage);
  const auto image = trace->image(1, 0);
  REQUIRE(image);
  REQUIRE_EQ(image->pages.size(), kMany + 2);
  std::map<std::pair<uint32_t, Address>, Bytes> read;
  REQUIRE(trace->read_pages(image->pages, [&](std::span<const PageRef> found) -> Result<void> {
    for (const auto& p : found) read[{p.process, p.address}] = Bytes(p.data, p.data + kPageSize);
    return {};
  }));
  CHECK_EQ(read.size(), kMany + 2);
  for (size_t i = 0; i < kMany; i++) CHECK((read[{1, 0x1000 * (i + 1)}] == page(i)));
  CHECK((read[{2, 0x10000}] == page(0)));
  CHECK((read[{2, 0x12000}] == Bytes(kPageSize, 77)));

  size_t visits = 0;
  const auto stopped = trace->read_pages(image->pages, [&](std::span<const PageRef>) -> Result<void> {
    visits++;
    return Error{"enough"};
  });
  REQUIRE_FALSE(stopped);
  CHECK_EQ(stopped.error().message, "enough");
  CHECK_EQ(visits, 1);
}

TEST_CASE("an image that cannot be read leaves the writer as good as it was") {
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(writer);
  const auto failed = (*writer)->publish_image(1, 0, [](const AddPages& add) -> Result<Bytes> {
    TRY(add(1, 0x1000, Bytes(kPageSize, 1)));
    return Error{"the copy has ended"};
  });
  REQUIRE_FALSE(failed);
  CHECK_EQ(failed.error().message, "the copy has ended");
  REQUIRE(sample::publish(**writer, 1, 1));
  REQUIRE((*writer)->finish(sample::recording_end()));
  const auto trace = opened(storage);
  CHECK_FALSE(trace->image(1, 0));
  check_image(*trace, 1, 1);
}

TEST_CASE("an image is published while another thread records") {
  MemoryStorage storage;
  auto created = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(created);
  auto& writer = **created;
  constexpr EventIndex kEvents = 50'000;
  std::thread publisher([&] {
    for (IntervalIndex i = 0; i < 20; i++) (void)static_cast<bool>(sample::publish(writer, 1, i));
  });
  writer.add(UnitRecord{1, 1, {}, {}});
  auto values = sample::event_values(1);
  for (EventIndex i = 0; i < kEvents; i++) {
    if (i % (kEvents / 20) == 0) {
      writer.add(
          IntervalRecord{1, static_cast<IntervalIndex>(i / (kEvents / 20)), CheckpointKind::image, i, true, 1, "a", 0});
    }
    CHECK_EQ(writer.append(1, sample::event(values)), i);
  }
  publisher.join();
  REQUIRE(writer.finish(sample::recording_end()));
  const auto trace = opened(storage);
  check_events(*trace, 1, 0, kEvents);
  for (IntervalIndex i = 0; i < 20; i++) check_image(*trace, 1, i);
  CHECK(check_trace(*trace).empty());
}

TEST_CASE("an image that is not synced outlives its recorder, and is none if the machine has lost it") {
  enum class Lost { nothing, pages, pages_and_lists };
  for (const Lost lost : {Lost::nothing, Lost::pages, Lost::pages_and_lists}) {
    for (const bool keep_sizes : {false, true}) {
      CAPTURE(static_cast<int>(lost));
      CAPTURE(keep_sizes);
      MemoryStorage storage;
      auto created = TraceWriter::create("/t", sample::settings(), storage);
      REQUIRE(created);
      auto writer = std::move(created).value();
      sample::fill(*writer);
      for (UnitId unit = 1; unit <= 2; ++unit) {
        writer->add(IntervalRecord{unit, 2, CheckpointKind::image, 2 * sample::kEventsPerInterval, false, 1, "a", 0});
        writer->append(unit, Event{});
      }
      REQUIRE(writer->flush());
      for (UnitId unit = 1; unit <= 2; ++unit) REQUIRE(sample::write_image(*writer, unit, 2));
      writer.reset();
      std::vector<std::string> synced{kFiles.journal(), kFiles.segment(1), kFiles.segment(2)};
      if (lost == Lost::pages) synced.push_back(kFiles.images());
      REQUIRE(storage.sync(synced));
      if (lost != Lost::nothing) storage.lose_unsynced(keep_sizes);
      const auto trace = opened(storage);
      CHECK(check_trace(*trace).empty());
      for (UnitId unit = 1; unit <= 2; ++unit) {
        check_image(*trace, unit, 1);
        REQUIRE_EQ(trace->intervals(unit).size(), 3);
        CHECK_EQ(trace->intervals(unit)[2].has_image, lost == Lost::nothing);
        if (lost == Lost::nothing) check_image(*trace, unit, 2);
      }
    }
  }
}

TEST_CASE("a recording that ends soon syncs each file once, and the journal last") {
  struct Syncs : MemoryStorage {
    Result<void> sync(const std::vector<std::string>& paths) override {
      if (!paths.empty()) all.push_back(paths);
      return MemoryStorage::sync(paths);
    }
    std::vector<std::vector<std::string>> all;
  };
  Syncs storage;
  auto created = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(created);
  (*created)->add(UnitRecord{1, 100, {}, {}});
  (*created)->add(IntervalRecord{1, 0, CheckpointKind::exec, 0, false, 1, "a", 0});
  (*created)->append(1, Event{});
  REQUIRE((*created)->finish(sample::recording_end()));
  REQUIRE_EQ(storage.all.size(), 2);
  const auto& first = storage.all.front();
  for (const std::string& path : {kFiles.directory, kFiles.events(), kFiles.segment(TraceFiles::kShortUnits)}) {
    CAPTURE(path);
    CHECK_EQ(std::count(first.begin(), first.end(), path), 1);
  }
  CHECK_EQ(std::count(first.begin(), first.end(), kFiles.journal()), 0);
  CHECK(storage.all.back() == std::vector{kFiles.journal()});
}

TEST_CASE("journal records are what their encodings say, and nothing longer or shorter") {
  const std::vector<JournalRecord> records{sample::settings(),
                                           UnitRecord{1, -1, {2, 3}, {4, 5}},
                                           IntervalRecord{1, 2, CheckpointKind::fork, 3, true, 4, "a b", 5},
                                           IntervalEnd{1, 2, 3, 4, {5, 6}, 7},
                                           ChannelRecord{1, "a", "b"},
                                           Refusal{1, "a", "b", 2},
                                           Unsure{1, 2, "a"},
                                           FileRecord{1, "a", "b", 2},
                                           ImagePublished{1, 2, 3, 4, 5, 6, 7, false},
                                           JournalEnd{sample::recording_end(), {{"a", 1, 2}, {"b", 3, 4}}},
                                           Interception{1, 2, 3},
                                           StoppingSite{"a", 1, "b", 2, true},
                                           PayloadsPublished{1, 2, 3},
                                           ShortUnit{1, 2, 3},
                                           Join{1, 2, 3, 4, "a"},
                                           ImageWritten{{1, 2, 3, 4, 5, 6, 7, false}},
                                           WallClockRecord{1, 2, -3, 4},
                                           ImagePublished{1, 2, 3, 4, 5, 6, 0, true}};
  CHECK_EQ(records.size(), std::variant_size_v<JournalRecord> + 1);
  for (const auto& record : records) {
    Bytes data = encode(record);
    JournalRecord back;
    REQUIRE(decode(type_of(record), data, back));
    CHECK_EQ(back.index(), record.index());
    CHECK(encode(back) == data);
    const auto* written = std::get_if<ImageWritten>(&record);
    const auto* image = written ? written : std::get_if<ImagePublished>(&record);
    const bool ends = std::holds_alternative<IntervalEnd>(record);
    const bool begins = std::holds_alternative<IntervalRecord>(record);
    const auto* finish = std::get_if<JournalEnd>(&record);
    const size_t by_criu = finish ? finish->end.criu_images.first_error.size() + 1 : 0;  // after two numbers
    for (size_t size = 0; size < data.size(); size++) {
      const size_t lacks = data.size() - size;
      const bool before_criu = finish && lacks >= by_criu && lacks <= by_criu + 2;
      const bool of_format_3 = image && !image->own_file && size == data.size() - 1;
      const bool of_format_4 = ends && size == data.size() - 5;
      const bool of_format_9 = ends && size == data.size() - 2;
      const bool of_format_10 = (begins && size == data.size() - 2) || (ends && size == data.size() - 1);
      const bool of_format_14 = begins && size == data.size() - 1;
      CHECK_EQ(decode(type_of(record), std::span(data).first(size), back),
               of_format_3 || of_format_4 || of_format_9 || of_format_10 || of_format_14 || before_criu);
    }
    if (image && image->own_file) continue;  // the same with one more field
    data.push_back(0);
    CHECK_FALSE(decode(type_of(record), data, back));
  }
  JournalRecord none;
  CHECK_FALSE(decode(RecordType::events, {}, none));
}

}  // namespace redrive::logstore_trace_test
