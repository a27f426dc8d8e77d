// The catalog: its documented schema, its contents, and when it is made again; and names of traces. On the real disk.
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "logstore/home.h"
#include "logstore/record_file.h"
#include "logstore/trace.h"
#include "logstore/trace_additions.h"
#include "logstore/trace_files.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::logstore_catalog_test {

namespace {

class Directory {
 public:
  Directory() { REQUIRE(::mkdtemp(path_)); }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + ("/" + name); }
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/redrive-catalog-XXXXXX";
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path << ": run the tests in the source directory");
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// The rows of a query, columns separated by |, rows by newlines.
std::string query(const std::string& database, const std::string& sql) {
  sqlite3* handle = nullptr;
  REQUIRE_EQ(sqlite3_open_v2(database.c_str(), &handle, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  std::string out;
  const auto row = [](void* to, int columns, char** values, char**) {
    auto& text = *static_cast<std::string*>(to);
    if (!text.empty()) text += "\n";
    for (int i = 0; i < columns; i++) text += (i ? "|" : "") + std::string(values[i] ? values[i] : "NULL");
    return 0;
  };
  CHECK_EQ(sqlite3_exec(handle, sql.c_str(), row, &out, nullptr), SQLITE_OK);
  sqlite3_close(handle);
  return out;
}

std::shared_ptr<Trace> make_trace(const std::string& path, const std::function<void(TraceWriter&)>& fill) {
  auto writer = TraceWriter::create(path, sample::settings());
  REQUIRE_MESSAGE(writer, writer.error().message);
  fill(**writer);
  const auto finished = (*writer)->finish(sample::recording_end());
  REQUIRE_MESSAGE(finished, finished.error().message);
  auto trace = Trace::open(path);
  REQUIRE(trace);
  return std::move(trace).value();
}

// Unit 1 sends 10 bytes twice, unit 2 receives 15 of them at once, logged, and 5 unlogged.
void fill_messages(TraceWriter& writer) {
  writer.add(WallClockRecord{1000, 1000, 999'900'500, 20});
  writer.add(ChannelRecord{4, "pipe", "pipe:[7]"});
  for (const UnitId unit : {1u, 2u}) {
    writer.add(UnitRecord{unit, static_cast<int32_t>(unit), {}, {}});
    writer.add(IntervalRecord{unit, 0, CheckpointKind::exec, 0, false, 1, "prog x", 9});
  }
  Event send;
  send.send = Send{4, 10, 1000};
  writer.append(1, send);
  send.send->at_ns = 2000;
  send.repeat = 3;
  writer.append(1, send);
  Event input;
  input.writes.push_back({0x1000, 6, MemoryWrite::Kind::data, Bytes(6)});
  writer.append(2, input);
  Event receive;
  receive.time = {100'000, 100'000, 0};
  receive.receive = Receive{4, 1, 500, true, {{{1, 0}, 0, 10, 11}, {{1, 1}, 0, 5, UINT64_MAX}}};
  writer.append(2, receive);
  writer.add(IntervalRecord{2, 1, CheckpointKind::image, 2, false, 1, "prog x", 10, 100'200});
  receive.time = {};
  receive.receive = Receive{4, 2, 600, false, {{{1, 1}, 5, 5, 13}}};
  writer.append(2, receive);
  writer.add(IntervalEnd{2, 0, 1'500'000'000, 2, {}, 0, 100'200});
  writer.add(Refusal{1, "bpf", "EPERM", 2});
  writer.add(Interception{1, 7, 3});
  writer.add(StoppingSite{"/lib/x", 16, "cpuid", 4, true});
}

// A trace written again must be the same; otherwise this is another format, which needs another number and another
// golden trace. Not compared are the packed bytes, which depend on the version of zstd, and the file sizes that follow
// from them.
void check_same_records(const std::string& golden, const std::string& fresh, const std::string& name, FileKind kind,
                        uint32_t id, uint32_t sub_id) {
  CAPTURE(name);
  const auto then = RecordFile::open(disk(), golden + "/" + name, kind, id, sub_id, Tail::whole);
  const auto now = RecordFile::open(disk(), fresh + "/" + name, kind, id, sub_id, Tail::whole);
  REQUIRE(then);
  REQUIRE(now);
  REQUIRE_EQ(then.value()->records().size(), now.value()->records().size());
  for (size_t i = 0; i < then.value()->records().size(); i++) {
    const RecordHeader& old_record = then.value()->records()[i];
    const RecordHeader& new_record = now.value()->records()[i];
    CHECK(old_record.type == new_record.type);
    CHECK_EQ(old_record.packed, new_record.packed);
    CHECK_EQ(old_record.first_item, new_record.first_item);
    CHECK_EQ(old_record.items, new_record.items);
    if (old_record.type == RecordType::image_written || old_record.type == RecordType::image_published ||
        old_record.type == RecordType::recording_end)
      continue;
    CHECK(then.value()->payload(old_record).value() == now.value()->payload(new_record).value());
  }
}

}  // namespace

TEST_CASE("the documented schema is the catalog's") {
  const std::string schema = catalog_schema();
  CHECK(contents("logstore/FORMAT.md").find("```sql\n" + schema + "```") != std::string::npos);
  CHECK(contents("man/redrive-trace.5").find(".Bd -literal\n" + schema + ".Ed") != std::string::npos);
  Directory directory;
  const std::string db = catalog_path(*make_trace(directory / "t", fill_messages)).value();
  // SQLite keeps each statement as it was written.
  const std::string kept = query(db, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name");
  for (size_t at = schema.find("CREATE"); at < schema.size();) {
    const size_t end = schema.find(";\n", at);
    CHECK(kept.find(schema.substr(at, end - at)) != std::string::npos);
    at = end + 2;
  }
  CHECK_EQ(query(db, "PRAGMA user_version"), "6");
}

TEST_CASE("the catalog says what the segments say") {
  Directory directory;
  const auto trace = make_trace(directory / "t", fill_messages);
  const std::string db = catalog_path(*trace).value();
  CHECK_EQ(query(db, "SELECT * FROM messages"),
           "2|1|0|0|1|0|0|10|11|1|1|4|500|1000|1000000500|20\n2|1|1|0|1|1|0|5|-1|1|1|4|500|2000|1000000500|20\n"
           "2|2|0|1|1|1|5|5|13|0|2|4|600|2000|NULL|NULL");
  CHECK_EQ(query(db, "SELECT * FROM channels"), "4|pipe|pipe:[7]|2|20|2|1|20|15");
  CHECK_EQ(query(db, "SELECT * FROM units"), "1|prog.1|1|prog x|0|0|NULL||2|4\n2|prog.2|2|prog x|0|0|NULL||3|3");
  CHECK_EQ(query(db, "SELECT * FROM intervals"),
           "1|0|exec|0|1|prog x|0|2|4|NULL|9|0|0|0|0|0|0|NULL|NULL\n"
           "2|0|exec|0|1|prog x|0|2|2|1.5|9|1|1|15|15|6|0|NULL|1000000700\n"
           "2|1|image|0|1|prog x|2|1|1|NULL|10|1|0|5|0|0|0|1000000700|NULL");
  CHECK_EQ(query(db, "SELECT value FROM settings WHERE key = 'command'"), "jacobi --size 100");
  CHECK_EQ(query(db, "SELECT value FROM settings WHERE key = 'exit_status'"), "7");
  CHECK_EQ(query(db, "SELECT * FROM refused"), "1|bpf|EPERM|2");
  CHECK_EQ(query(db, "SELECT * FROM interceptions"), "1|7|3");
  CHECK_EQ(query(db, "SELECT * FROM stopping_sites"), "/lib/x|16|cpuid|4|1");
}

TEST_CASE("the catalog knows what was kept later, and births") {
  const Directory directory;
  const auto trace = make_trace(directory / "t", [](TraceWriter& writer) {
    writer.add(UnitRecord{1, 100, {}, {}});
    writer.add(UnitRecord{2, 200, {1, 5}, {}});
    for (EventIndex i = 0; i < 20; ++i) {
      if (i % 10 == 0) {
        const auto kind = i == 0 ? CheckpointKind::exec : CheckpointKind::image;
        writer.add(IntervalRecord{1, static_cast<IntervalIndex>(i / 10), kind, i, false, 100, "a", 0});
      }
      Event event;
      if (i == 5) {
        event.child_unit = 2;
        event.send = Send{0, 0, 77};
      } else {
        event.writes = {{0x1000, 3, MemoryWrite::Kind::message, {}}};
        event.receive = Receive{i % 2 + 1, i + 1, i, false, {{{2, i}, 0, 2, 9}, {{2, i + 1}, 0, 1, 9}}};
      }
      writer.append(1, event);
    }
    for (const EventIndex i : {4, 8, 13, 18}) writer.add_payload({1, i}, {1, 2, 3});
  });
  const std::string db = catalog_path(*trace).value();
  CHECK_EQ(query(db, "SELECT parent_at_ns FROM units"), "NULL\n77");
  CHECK_EQ(query(db, "SELECT channel, messages, logged_messages, message_bytes, logged_bytes, sends FROM channels"),
           "1|10|3|30|9|0\n2|9|1|27|3|0");
  CHECK_EQ(query(db, "SELECT DISTINCT event FROM messages WHERE logged ORDER BY event"), "4\n8\n13\n18");
  CHECK_EQ(query(db, "SELECT logged_messages FROM intervals WHERE unit = 1"), "2\n2");
}

TEST_CASE("many messages are listed in order") {
  constexpr EventIndex kReceives = 3000;
  const Directory directory;
  const auto trace = make_trace(directory / "t", [](TraceWriter& writer) {
    writer.add(UnitRecord{1, 100, {}, {}});
    for (EventIndex i = 0; i < kReceives; ++i) {
      Event event;
      event.receive = Receive{1, i + 1, i, false, {{{2, i}, 0, 2, 9}}};
      writer.append(1, event);
    }
  });
  const std::string db = catalog_path(*trace).value();
  CHECK_EQ(query(db, "SELECT count(*), max(event), sum(event = rowid - 1) FROM messages"), "3000|2999|3000");
}

TEST_CASE("a catalog that is absent, stale or changed is made again") {
  Directory directory;
  const auto trace = make_trace(directory / "t", fill_messages);
  const std::string db = directory / "t/catalog.sqlite";
  CHECK_FALSE(std::filesystem::exists(db));
  CHECK_EQ(catalog_path(*trace).value(), db);
  std::filesystem::remove(db);
  CHECK_EQ(catalog_path(*trace).value(), db);
  CHECK(query(db, "SELECT count(*) FROM messages") == "3");
  std::filesystem::remove(db + ".sum");
  CHECK(catalog_path(*trace));
  CHECK(std::filesystem::exists(db + ".sum"));
  std::fstream(db).seekp(5000).put('X');
  CHECK(*is_catalog_changed(*trace));
  CHECK(check_trace(*trace).empty());
  CHECK(catalog_path(*trace));
  CHECK_FALSE(*is_catalog_changed(*trace));
  CHECK(query(db, "SELECT count(*) FROM messages") == "3");
  REQUIRE(catalog_path(*make_trace(directory / "other", [](TraceWriter& writer) { sample::fill(writer); })));
  std::filesystem::copy_file(directory / "other/catalog.sqlite", db, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(directory / "other/catalog.sqlite.sum", db + ".sum",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(catalog_path(*trace));
  CHECK(query(db, "SELECT count(*) FROM messages") == "3");
}

TEST_CASE("files that SQLite opens with a database are not left beside the catalog") {
  const Directory directory;
  const auto trace = make_trace(directory / "t", fill_messages);
  const std::string db = directory / "t/catalog.sqlite", other = directory / "other";
  for (const bool exists : {false, true}) {
    for (const char* suffix : {"-journal", "-wal", "-shm"}) {
      CAPTURE(suffix);
      if (!exists) std::filesystem::remove(db);
      std::ofstream(other) << "precious";
      std::filesystem::create_symlink(other, db + suffix);
      CHECK_EQ(*is_catalog_changed(*trace), exists);
      CHECK_EQ(catalog_path(*trace).value(), db);
      CHECK_FALSE(std::filesystem::is_symlink(db + suffix));
      CHECK(std::filesystem::exists(other));
      CHECK_FALSE(*is_catalog_changed(*trace));
    }
  }
  // One that cannot be removed: no path is given.
  std::filesystem::create_directories(db + "-journal/below");
  CHECK_FALSE(catalog_path(*trace));
}

TEST_CASE("golden traces of all formats read as when they were made") {
  const std::string newest = "tests/unit/golden/format-" + std::to_string(kFormatVersion);
  Directory directory;
  const auto fresh = make_trace(directory / "fresh", [](TraceWriter& writer) { sample::fill(writer); });
  if (std::getenv("REDRIVE_MAKE_GOLDEN")) {
    std::filesystem::create_directories("tests/unit/golden");
    std::filesystem::copy(directory / "fresh", newest, std::filesystem::copy_options::recursive);
  }
  for (uint32_t format = 1; format <= kFormatVersion; ++format) {
    const auto trace = Trace::open("tests/unit/golden/format-" + std::to_string(format));
    REQUIRE_MESSAGE(trace, trace.error().message);
    CHECK(check_trace(*trace.value()).empty());
    CHECK(trace.value()->finished());
    CHECK(trace.value()->interceptions().size() == (format < 2 ? 0 : 1));
    for (UnitId unit = 1; unit <= sample::kUnits; unit++) {
      std::vector<Event> events;
      REQUIRE(trace.value()->for_each_event(unit, 0, UINT64_MAX, [&](EventIndex, const Event& event) {
        events.push_back(event);
        return true;
      }));
      // The golden trace holds the values that were generated then: the same seed generates them again.
      auto values = sample::event_values(unit, format);
      REQUIRE_EQ(events.size(), 2 * sample::kEventsPerInterval);
      for (const auto& event : events) CHECK(event == sample::event(values));
      const auto image = trace.value()->image(unit, 1);
      REQUIRE(image);
      size_t pages = 0;
      CHECK(trace.value()->read_pages(image->pages, [&](std::span<const PageRef> some) -> Result<void> {
        pages += some.size();
        return {};
      }));
      CHECK_EQ(pages, image->pages.size());
    }
    CHECK(trace.value()->file_path(1));
    CHECK(used_copies_are_good(*trace.value()));
    CHECK(trace.value()->event_count(sample::kShortUnit) == (format < 4 ? 0 : sample::kShortEvents));
    auto values = sample::event_values(sample::kShortUnit, format);
    CHECK(trace.value()->for_each_event(sample::kShortUnit, 0, UINT64_MAX, [&](EventIndex, const Event& event) {
      CHECK(event == sample::event(values));
      return true;
    }));
  }
  check_same_records(newest, directory / "fresh", "journal", FileKind::journal, 0, 0);
  for (UnitId unit = 1; unit <= sample::kUnits; unit++) {
    check_same_records(newest, directory / "fresh", fmt::format("events/{}.seg", unit), FileKind::events, unit, 0);
  }
  check_same_records(newest, directory / "fresh", "pages", FileKind::pages, 0, 0);
  check_same_records(newest, directory / "fresh", "events/0.seg", FileKind::events, 0, 0);
  check_same_records(newest, directory / "fresh", "images.seg", FileKind::image, 0, 0);
}

TEST_CASE("images can be added to traces of all formats") {
  Directory directory;
  for (uint32_t format = 1; format <= kFormatVersion; ++format) {
    CAPTURE(format);
    const std::string name = "format-" + std::to_string(format);
    std::filesystem::copy("tests/unit/golden/" + name, directory / name, std::filesystem::copy_options::recursive);
    {
      const auto additions = TraceAdditions::begin(*Trace::open(directory / name).value());
      REQUIRE_MESSAGE(additions, additions.error().message);
      REQUIRE((*additions)->add_image(1, 0, [](const AddPages& add) -> Result<Bytes> {
        TRY(add(1, sample::page_address(1), sample::page(9, 9, 1)));
        return Bytes(50);
      }));
      REQUIRE((*additions)->finish(sample::settings()));
    }
    const auto trace = Trace::open(directory / name);
    REQUIRE(trace);
    CHECK(check_trace(*trace.value()).empty());
    const auto added = trace.value()->image(1, 0);
    REQUIRE(added);
    CHECK_EQ(added->pages.size(), 1);
    CHECK(trace.value()->image(1, 1));
  }
}

TEST_CASE("traces are numbered, listed and found by name") {
  Directory home;
  const char* before = std::getenv("REDRIVE_TRACE_DIR");
  const std::string kept = before ? before : "";
  ::setenv("REDRIVE_TRACE_DIR", home.path(), 1);
  CHECK_EQ(trace_home(), home.path());
  CHECK_FALSE(find_trace(""));
  CHECK_EQ(new_trace_directory("/usr/bin/prog").value(), home / "prog-1");
  make_trace(home / "prog-2", fill_messages);
  make_trace(home / "prog-9", fill_messages);
  std::filesystem::create_directory(home / "prog-x");
  std::filesystem::create_directory(home / "other-77");
  CHECK_EQ(new_trace_directory("prog").value(), home / "prog-10");
  CHECK_EQ(new_trace_directory("..").value(), home / "trace-1");
  CHECK_EQ(list_traces().value(), std::vector<std::string>{"prog-2", "prog-9"});
  for (const char* target : {"prog-2", "prog-9"}) {
    REQUIRE(set_latest(home / target));
    CHECK_EQ(std::filesystem::read_symlink(home / "latest"), target);
    CHECK(std::filesystem::equivalent(find_trace("").value(), home / target));
  }
  CHECK_EQ(find_trace("prog-2").value(), home / "prog-2");
  CHECK_EQ(find_trace(home / "prog-2").value(), home / "prog-2");
  CHECK_EQ(find_trace(home / "prog-x").error().message,
           (home / "prog-x") + " is not a redrive trace (it has no 'journal')");
  CHECK_FALSE(find_trace("prog-3"));
  if (before) {
    ::setenv("REDRIVE_TRACE_DIR", kept.c_str(), 1);
  } else {
    ::unsetenv("REDRIVE_TRACE_DIR");
  }
}

TEST_CASE("traces and caches have a home without HOME") {
  std::map<std::string, std::string> before;
  for (const char* name : {"REDRIVE_TRACE_DIR", "XDG_DATA_HOME", "HOME", "STATE_DIRECTORY"}) {
    if (const char* value = std::getenv(name)) before[name] = value;
    ::unsetenv(name);
  }
  const std::string own = home_for(kTraceHome);
  if (geteuid() == 0) CHECK_EQ(own, "/var/lib/redrive");
  CHECK_FALSE(own.starts_with("/."));
  ::setenv("STATE_DIRECTORY", "/srv/state:/other", 1);
  CHECK_EQ(home_for(kTraceHome), "/srv/state/redrive");
  ::setenv("HOME", "/home/user", 1);
  CHECK_EQ(home_for(kTraceHome), "/home/user/.local/share/redrive");
  ::setenv("XDG_DATA_HOME", "/data", 1);
  CHECK_EQ(home_for(kTraceHome), "/data/redrive");
  ::setenv("REDRIVE_TRACE_DIR", "/traces", 1);
  CHECK_EQ(home_for(kTraceHome), "/traces");
  for (const char* name : {"REDRIVE_TRACE_DIR", "XDG_DATA_HOME", "HOME", "STATE_DIRECTORY"}) {
    ::unsetenv(name);
    if (before.contains(name)) ::setenv(name, before[name].c_str(), 1);
  }
}

}  // namespace redrive::logstore_catalog_test
