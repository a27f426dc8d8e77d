// Disks that fill up, lose power or were tampered with.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "logstore/file_store.h"
#include "logstore/memory_storage.h"
#include "logstore/record_file.h"
#include "logstore/storage.h"
#include "logstore/trace_files.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::logstore_storage_test {

namespace {

// What was flushed must be there, complete.
void check_readable(MemoryStorage& storage, EventIndex flushed) {
  const auto trace = Trace::open("/t", storage);
  REQUIRE_MESSAGE(trace, trace.error().message);
  for (UnitId unit = 1; unit <= sample::kUnits; unit++) {
    CHECK(trace.value()->event_count(unit) >= flushed);
    auto values = sample::event_values(unit);
    uint64_t wrong = 0;
    const auto read = trace.value()->for_each_event(unit, 0, UINT64_MAX, [&](EventIndex, const Event& event) {
      if (!(event == sample::event(values))) wrong++;
      return true;
    });
    CHECK_MESSAGE(read, read.error().message);
    CHECK_EQ(wrong, 0);
    for (const auto& interval : trace.value()->intervals(unit)) {
      if (interval.has_image) CHECK(trace.value()->image(unit, interval.interval));
    }
  }
  const auto found = check_trace(*trace.value());
  CHECK_MESSAGE(found.empty(), (found.empty() ? "" : found[0]));
}

}  // namespace

TEST_CASE("the Nth write fails: the error is kept, and what was flushed stays good") {
  uint64_t change = 0;
  for (bool passed = false; !passed; change++) {
    CAPTURE(change);
    MemoryStorage storage;
    storage.fail_from(change);
    auto writer = TraceWriter::create("/t", sample::settings(), storage);
    if (!writer) {
      CHECK(writer.error().message.ends_with("No space left on device"));
      continue;
    }
    EventIndex flushed = 0;
    sample::fill(**writer, [&](EventIndex events) { flushed = events; });
    const auto flush = (*writer)->flush();
    const auto finish = (*writer)->finish(sample::recording_end());
    passed = static_cast<bool>(finish);
    if (!finish) CHECK(finish.error().message.ends_with("No space left on device"));
    if (!flush) CHECK_EQ(flush.error().message, finish.error().message);
    writer = Error{"gone"};
    storage.fail_from(UINT64_MAX);
    check_readable(storage, flushed);
  }
  CHECK(change > 40);
}

TEST_CASE("a full disk is told by the file that could not be written") {
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(writer);
  REQUIRE((*writer)->flush());
  (*writer)->append(1, Event{});
  storage.fail_from(storage.changes() + 1);  // the segment is made, but nothing can be written to it
  const auto flushed = (*writer)->flush();
  REQUIRE_FALSE(flushed);
  CHECK_EQ(flushed.error().message, "cannot write /t/events/1.seg: No space left on device");
  CHECK_EQ(flushed.error().status, Status::failed);
  CHECK_EQ((*writer)->append(1, Event{}), 1);
  CHECK_FALSE((*writer)->publish_image(1, 0, [](const AddPages&) { return Bytes(); }));
}

TEST_CASE("nothing comes after a torn record that could not be cut off") {
  MemoryStorage storage;
  RecordWriter writer(storage, "/f", FileKind::events, 1);
  writer.add(RecordType::events, Bytes(1000, 1));
  REQUIRE(writer.write());
  storage.fail_from(storage.changes());
  writer.add(RecordType::events, Bytes(1000, 2));
  CHECK_FALSE(writer.write());
  storage.fail_from(UINT64_MAX);
  writer.add(RecordType::events, Bytes(1000, 3));
  CHECK_FALSE(writer.write());
  const auto read = RecordFile::open(storage, "/f", FileKind::events, 1, 0, Tail::torn);
  REQUIRE(read);
  CHECK_FALSE((*read)->damaged());
  CHECK_EQ((*read)->items(), 1);
}

TEST_CASE("power is lost: what was synced stays readable, the rest is cut") {
  for (const bool keep_sizes : {false, true}) {
    CAPTURE(keep_sizes);
    MemoryStorage storage;
    auto writer = TraceWriter::create("/t", sample::settings(), storage);
    REQUIRE(writer);
    sample::fill(**writer);  // its last images sync all events
    for (int i = 0; i < 5000; i++) (*writer)->append(1, Event{});
    REQUIRE((*writer)->flush());
    storage.lose_unsynced(keep_sizes);
    check_readable(storage, 2 * sample::kEventsPerInterval);
    const auto trace = Trace::open("/t", storage);
    CHECK_EQ(trace.value()->event_count(1), 2 * sample::kEventsPerInterval);
    CHECK(trace.value()->image(3, 1));
    CHECK(trace.value()->file_path(1));
    CHECK(used_copies_are_good(*trace.value()));
  }
}

TEST_CASE("power is lost before anything was synced twice") {
  for (const bool keep_sizes : {false, true}) {
    MemoryStorage storage;
    auto writer = TraceWriter::create("/t", sample::settings(), storage);
    REQUIRE(writer);
    (*writer)->add(UnitRecord{1, 1, {}, {}});
    (*writer)->add(IntervalRecord{1, 0, CheckpointKind::exec, 0, false, 1, "a", 0});
    for (int i = 0; i < 5000; i++) (*writer)->append(1, Event{});
    REQUIRE((*writer)->flush());
    storage.lose_unsynced(keep_sizes);
    const auto trace = Trace::open("/t", storage);
    REQUIRE(trace);
    CHECK(trace.value()->units().empty());
    CHECK(check_trace(*trace.value()).empty());
  }
}

TEST_CASE("records: found by item, packed where that helps") {
  MemoryStorage storage;
  Compressor compressor(1);
  RecordWriter writer(storage, "/r", FileKind::events, 5);
  const Bytes zeros(10'000);
  const Bytes noise = sample::Values(1).bytes(1000);
  writer.add(RecordType::events, zeros, 3, &compressor);
  writer.add(RecordType::events, noise, 4, &compressor);
  REQUIRE(writer.write());
  writer.close();
  writer.add(RecordType::events, {}, 1);
  REQUIRE(writer.write());
  CHECK_EQ(storage.bytes("/r").size(), writer.written());
  auto file = RecordFile::open(storage, "/r", FileKind::events, 5, 0, Tail::whole, writer.written());
  REQUIRE(file);
  CHECK_FALSE((*file)->damaged());
  CHECK_EQ((*file)->items(), 8);
  CHECK((*file)->find(8) == nullptr);
  CHECK((*file)->find(0) == (*file)->find(2));
  REQUIRE((*file)->find(6));
  CHECK((*file)->find(2)->packed);
  CHECK_FALSE((*file)->find(6)->packed);
  CHECK((*file)->payload(*(*file)->find(1)).value() == zeros);
  CHECK((*file)->payload(*(*file)->find(3)).value() == noise);
  CHECK((*file)->payload(*(*file)->find(7)).value().empty());
  const auto other = RecordFile::open(storage, "/r", FileKind::events, 6, 0, Tail::whole);
  REQUIRE_FALSE(other);
  CHECK_EQ(other.error().message, "/r: offset 0: another file of a trace stands here");
}

TEST_CASE("the disk and its twin do the same") {
  char name[] = "/tmp/redrive-storage-XXXXXX";
  REQUIRE(::mkdtemp(name));
  MemoryStorage memory;
  REQUIRE(memory.make_directory(name));
  for (Storage* storage : {&disk(), static_cast<Storage*>(&memory)}) {
    const std::string a = std::string(name) + "/a", b = std::string(name) + "/b";
    const Bytes text{'h', 'e', 'l', 'l', 'o'};
    {
      auto file = storage->create(a);
      REQUIRE(file);
      REQUIRE((*file)->append(text));
      REQUIRE((*file)->append(text));
      REQUIRE((*file)->truncate(7));
      CHECK_EQ((*file)->size(), 7);
    }
    auto more = storage->append_to(a);
    REQUIRE(more);
    REQUIRE((*more)->append(text));
    REQUIRE(storage->rename(a, b));
    CHECK_FALSE(storage->exists(a));
    auto file = storage->open(b);
    REQUIRE(file);
    Bytes data(20);
    CHECK_EQ((*file)->read(5, data).value(), 7);
    CHECK_EQ(std::string(data.begin(), data.begin() + 7), "hehello");
    CHECK_EQ((*file)->read(12, data).value(), 0);
    CHECK(storage->sync({b, name}));
    CHECK_EQ(storage->list(name).value(), std::vector<std::string>{"b"});
    CHECK_EQ(storage->open(a).error().message, "cannot open " + a + ": No such file or directory");
    CHECK(storage->remove(b));
    CHECK_FALSE(storage->make_directory(name));
  }
  REQUIRE(disk().remove(name));
}

TEST_CASE("more files can be read than a process may have open") {
  char name[] = "/tmp/redrive-many-XXXXXX";
  REQUIRE(::mkdtemp(name));
  rlimit before{};
  REQUIRE_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto open_now = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  const rlimit few{static_cast<rlim_t>(open_now) + 290, before.rlim_max};
  REQUIRE_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  constexpr int kFiles = 600;
  std::vector<std::unique_ptr<File>> files;
  for (int i = 0; i < kFiles; ++i) {
    const std::string path = std::string(name) + "/" + std::to_string(i);
    REQUIRE((*disk().create(path))->append(Bytes{static_cast<uint8_t>(i), 7}));
    auto file = disk().open(path);
    REQUIRE_MESSAGE(file, file.error().message);
    files.push_back(std::move(file).value());
  }
  for (int i = 0; i < kFiles; ++i) {
    Bytes data(2);
    REQUIRE_EQ(files[static_cast<size_t>(i)]->read(0, data).value(), 2);
    CHECK_EQ(data[0], static_cast<uint8_t>(i));
  }
  const std::string last = std::string(name) + "/" + std::to_string(kFiles - 1);
  Bytes data(2);
  REQUIRE((*disk().create(last + "x"))->append(data));
  REQUIRE(disk().rename(last + "x", last));
  const auto replaced = files.back()->read(0, data);
  REQUIRE_FALSE(replaced);
  CHECK_EQ(replaced.error().message, last + " was replaced meanwhile");
  REQUIRE(disk().remove(last));
  CHECK_FALSE(files.back()->read(0, data));
  REQUIRE_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  std::filesystem::remove_all(name);
}

TEST_CASE("a link to a trace is followed, whatever its name") {
  char name[] = "/tmp/redrive-named-XXXXXX";
  REQUIRE(::mkdtemp(name));
  const std::filesystem::path directory(name), trace = directory / "t";
  auto writer = TraceWriter::create(trace.string(), sample::settings(), disk());
  REQUIRE(writer);
  sample::fill(**writer);
  REQUIRE((*writer)->finish(sample::recording_end()));
  writer->reset();
  std::filesystem::create_directory(directory / "volumes");
  for (const char* const link : {"link", "files", "events", "images", "payloads", "volumes/7"}) {
    CAPTURE(std::string(link));
    std::filesystem::create_directory_symlink(trace, directory / link);
    const std::string named = directory / link;
    for (const std::string& given : {named, named + "/"}) {
      CHECK_EQ(find_trace(given).value(), given);
      const auto opened = Trace::open(given);
      REQUIRE_MESSAGE(opened, opened.error().message);
      CHECK(check_trace(**opened).empty());
      CHECK(catalog_path(**opened));
    }
  }
  // Within a trace, none is.
  std::filesystem::rename(trace / "events", directory / "elsewhere");
  std::filesystem::create_directory_symlink(directory / "elsewhere", trace / "events");
  CHECK_FALSE(check_trace(**Trace::open((directory / "files").string())).empty());
  std::filesystem::remove_all(directory);
}

TEST_CASE("a FIFO in a file's place does not hang a reader") {
  char name[] = "/tmp/redrive-fifo-XXXXXX";
  REQUIRE(::mkdtemp(name));
  const std::string journal = TraceFiles{name}.journal();
  REQUIRE_EQ(::mkfifo(journal.c_str(), 0600), 0);
  CHECK_EQ(Trace::open(name).error().message, "cannot open " + journal + ": not a regular file");
  std::filesystem::remove_all(name);
}

TEST_CASE("a copy of a file with holes has these holes, and is verified") {
  std::string name = (std::filesystem::temp_directory_path() / "rd-holes-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()));
  const std::filesystem::path directory = name;
  constexpr uint64_t kSize = (16 << 20) + 1000, kData = (8 << 20) + 5, kMostOnDisk = 4 << 20;
  const std::string source = directory / "source", dense = directory / "dense";
  const auto make = [](const std::string& path) {
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(file);
    return file;
  };
  const auto on_disk = [&](const std::string& path) {
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK_EQ(static_cast<uint64_t>(info.st_size), kSize);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  };
  {
    const Fd file = make(source);
    REQUIRE(ftruncate(file.get(), kSize) == 0);
    REQUIRE(pwrite(file.get(), "data", 4, kData) == 4);
    Bytes all(kSize);
    std::copy_n("data", 4, all.begin() + kData);
    REQUIRE(pwrite(make(dense).get(), all.data(), all.size(), 0) == static_cast<ssize_t>(kSize));
    if (lseek(file.get(), 0, SEEK_DATA) == 0) {
      MESSAGE("the file system has no holes");
      std::filesystem::remove_all(directory);
      return;
    }
  }
  FileStoreWriter copies(disk(), directory, nullptr);
  bool failed = false;
  const auto added = copies.add(source, source, false, failed);
  REQUIRE(added);
  CHECK_LT(added->written, kMostOnDisk);
  const std::string copy = directory / added->record.copy, snapshot = directory / "snapshot";
  CHECK_LT(on_disk(copy), kMostOnDisk);
  const auto sums = read_sums(disk(), copy);
  REQUIRE(sums);
  CHECK(verify_sums(disk(), copy, *sums));
  REQUIRE(copy_file(disk(), copy, snapshot));
  CHECK_LT(on_disk(snapshot), kMostOnDisk);
  CHECK(verify_sums(disk(), snapshot, *sums));
  // The same content in other blocks is the same content.
  CHECK(verify_sums(disk(), dense, *sums));
  const auto same = copies.add(dense, dense, false, failed);
  REQUIRE(same);
  CHECK_EQ(same->record.copy, added->record.copy);
  // What appears in a hole, or disappears into one, is damage.
  REQUIRE(pwrite(make(copy).get(), "x", 1, kSize - (2 << 20)) == 1);
  CHECK_FALSE(verify_sums(disk(), copy, *sums));
  REQUIRE(truncate(snapshot.c_str(), 0) == 0);
  REQUIRE(truncate(snapshot.c_str(), kSize) == 0);
  CHECK_FALSE(verify_sums(disk(), snapshot, *sums));
  std::filesystem::remove_all(directory);
}

}  // namespace redrive::logstore_storage_test
