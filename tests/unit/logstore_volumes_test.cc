// Traces of several volumes, of which the oldest are removed while they are written.
#include "logstore/memory_storage.h"
#include "logstore/trace.h"
#include "logstore/trace_additions.h"
#include "logstore/trace_files.h"
#include "logstore/trace_snapshot.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::logstore_volumes_test {

namespace {

constexpr UnitId kSender = 1, kReceiver = 2;
constexpr uint64_t kEvents = 10;  // of an interval

// Two units that take checkpoints in turn. All events of one unit are sends, and each of the other's receives the send
// with its number.
class Recording {
 public:
  explicit Recording(Storage& storage) {
    auto made = TraceWriter::create("/t", sample::settings(), storage, nullptr, true);
    REQUIRE(made);
    writer = std::move(made).value();
    writer->add(UnitRecord{kSender, 100, {}, {}});
    writer->add(UnitRecord{kReceiver, 101, {}, {}});
    for (const UnitId unit : {kSender, kReceiver}) begin_interval(unit);
  }

  void begin_interval(UnitId unit) {
    auto& [events, interval] = at[unit];
    if (interval > 0) writer->add(IntervalEnd{unit, interval - 1, 1000, events, {}, 0, 0});
    IntervalRecord record;
    record.unit = unit;
    record.interval = interval;
    record.kind = interval ? CheckpointKind::image : CheckpointKind::exec;
    record.first_event = events;
    record.command = "program";
    writer->add(record);
    const auto page = static_cast<uint8_t>(16 * unit + interval + 1);
    const auto written = writer->write_image(unit, interval, [&](const AddPages& add) -> Result<Bytes> {
      const Bytes own(kPageSize, page), common(kPageSize, 255);
      TRY(add(0, kPageSize, own));
      TRY(add(0, 2 * kPageSize, common));
      return Bytes{page};
    });
    REQUIRE(written);
    ++interval;
  }

  void send() {
    Event event;
    event.send = Send{7, 3, 0};
    event.args[0] = at[kSender].first;
    at[kSender].first = writer->append(kSender, event) + 1;
  }
  // `logged` as the recorder decides, unless the volumes do not allow it.
  void receive(bool logged = false) {
    const EventRef sender{kSender, at[kReceiver].first};
    Event event;
    event.receive = Receive{7, 0, 0, logged || !writer->in_one_volume(kReceiver, sender), {{sender, 0, 3, 9}}};
    event.args[0] = at[kReceiver].first;
    at[kReceiver].first = writer->append(kReceiver, event) + 1;
  }
  void run(uint64_t events = kEvents) {
    for (uint64_t i = 0; i < events; ++i) send(), receive();
  }
  void go_on_in_new_volume() {
    REQUIRE(writer->begin_volume());
    begin_interval(kSender);
    begin_interval(kReceiver);
  }
  void finish_left() {
    for (const auto& volume : writer->volumes()) {
      if (!volume.left || volume.closed) continue;
      writer->close_volume(volume.number);
      REQUIRE(writer->finish_volume(volume.number, {}));
    }
  }

  std::unique_ptr<TraceWriter> writer;
  std::map<UnitId, std::pair<EventIndex, IntervalIndex>> at;  // the next ones
};

std::shared_ptr<Trace> opened(Storage& storage) {
  auto trace = Trace::open("/t", storage);
  REQUIRE_MESSAGE(trace, trace.error().message);
  return std::move(trace).value();
}

// The trace shows these events of both units, which were `first` and those after it, and says whose messages they are.
void check_shown(const Trace& trace, EventIndex first, EventIndex count) {
  for (const UnitId unit : {kSender, kReceiver}) {
    CHECK_EQ(trace.event_count(unit), count);
    EventIndex next = 0;
    const auto read = trace.for_each_event(unit, 0, count, [&](EventIndex index, const Event& event) {
      CHECK_EQ(index, next++);
      CHECK_EQ(event.args[0], first + index);
      if (event.receive) CHECK_EQ(event.receive->parts.front().sender, EventRef{kSender, index});
      return true;
    });
    REQUIRE_MESSAGE(read, read.error().message);
    CHECK_EQ(next, count);
  }
}

void check_images(const Trace& trace, IntervalIndex first) {
  for (const UnitId unit : {kSender, kReceiver}) {
    for (const auto& interval : trace.intervals(unit)) {
      CHECK(interval.has_image);
      const auto image = trace.image(unit, interval.interval);
      REQUIRE_MESSAGE(image, image.error().message);
      const auto page = static_cast<uint8_t>(16 * unit + first + interval.interval + 1);
      CHECK_EQ(image->header, Bytes{page});
      std::map<Address, uint8_t> found;
      const auto read = trace.read_pages(image->pages, [&](std::span<const PageRef> pages) -> Result<void> {
        for (const auto& each : pages) found[each.address] = *each.data;
        return {};
      });
      REQUIRE(read);
      CHECK_EQ(found, std::map<Address, uint8_t>{{kPageSize, page}, {2 * kPageSize, 255}});
    }
  }
}

}  // namespace

TEST_CASE("volumes: they are read as one trace, and one that lacks the oldest begins anew") {
  for (const uint64_t removed : {0, 1, 3}) {
    MemoryStorage storage;
    Recording recording(storage);
    for (int volume = 1; volume < 6; ++volume) {
      recording.run();
      recording.begin_interval(kSender);
      recording.begin_interval(kReceiver);
      recording.run();
      recording.go_on_in_new_volume();
      recording.finish_left();
    }
    recording.run();
    for (uint64_t number = 1; number <= removed; ++number) REQUIRE(recording.writer->remove_volume(number));
    REQUIRE(recording.writer->finish(sample::recording_end()));

    const auto trace = opened(storage);
    CHECK(trace->finished());
    check_shown(*trace, removed * 2 * kEvents, (11 - 2 * removed) * kEvents);
    CHECK_EQ(trace->intervals(kSender).size(), 11 - 2 * removed);
    CHECK_EQ(trace->intervals(kSender).front().first_event, 0);
    CHECK_EQ(trace->interval_end(kSender, 0)->end_event, kEvents);
    check_images(*trace, static_cast<IntervalIndex>(2 * removed));
    CHECK(check_trace(*trace).empty());
  }
}

TEST_CASE("volumes: a message from one into another must be kept, and says nothing of a sender that was removed") {
  MemoryStorage storage;
  Recording recording(storage);
  for (int i = 0; i < 5; ++i) recording.send();
  recording.receive();
  recording.go_on_in_new_volume();
  recording.finish_left();
  CHECK_FALSE(recording.writer->in_one_volume(kReceiver, {kSender, 4}));
  for (int i = 0; i < 4; ++i) recording.receive();  // of the first volume's sends
  recording.run(3);
  REQUIRE(recording.writer->remove_volume(1));
  REQUIRE(recording.writer->finish(sample::recording_end()));

  const auto trace = opened(storage);
  std::vector<std::pair<EventRef, bool>> found;
  REQUIRE(trace->for_each_event(kReceiver, 0, trace->event_count(kReceiver), [&](EventIndex, const Event& event) {
    found.emplace_back(event.receive->parts.front().sender, event.receive->logged);
    return true;
  }));
  const std::vector<std::pair<EventRef, bool>> expected{
      {{}, true},           {{}, true}, {{}, true}, {{}, true}, {{kSender, 0}, false}, {{kSender, 1}, false},
      {{kSender, 2}, false}};
  CHECK_EQ(found, expected);
}

TEST_CASE("volumes: an unlogged message from a removed one is damage, not another message") {
  MemoryStorage storage;
  Recording recording(storage);
  recording.send();
  recording.go_on_in_new_volume();
  recording.finish_left();
  Event event;
  event.receive = Receive{7, 0, 0, false, {{{kSender, 0}, 0, 3, 9}}};
  recording.writer->append(kReceiver, event);
  REQUIRE(recording.writer->remove_volume(1));
  REQUIRE(recording.writer->finish(sample::recording_end()));
  const auto read = opened(storage)->for_each_event(kReceiver, 0, 1, [](EventIndex, const Event&) { return true; });
  REQUIRE_FALSE(read);
  CHECK_EQ(read.error().status, Status::damaged);
}

TEST_CASE("volumes: what is before a removed one is not shown") {
  MemoryStorage storage;
  Recording recording(storage);
  recording.run();
  REQUIRE(recording.writer->begin_volume());
  recording.begin_interval(kSender);  // the receiver sleeps, and stays in the first volume
  for (uint64_t i = 0; i < kEvents; ++i) recording.send();
  REQUIRE(recording.writer->begin_volume());
  recording.begin_interval(kSender);
  recording.finish_left();
  const auto volumes = recording.writer->volumes();
  CHECK_FALSE(volumes[0].left);
  CHECK(volumes[1].finished);
  REQUIRE(recording.writer->remove_volume(2));
  recording.begin_interval(kReceiver);
  for (uint64_t i = 0; i < kEvents; ++i) recording.receive();
  recording.run();
  REQUIRE(recording.writer->finish(sample::recording_end()));

  const auto trace = opened(storage);
  CHECK_EQ(trace->event_count(kSender), kEvents);
  CHECK_EQ(trace->event_count(kReceiver), 2 * kEvents);
  CHECK_EQ(trace->intervals(kReceiver).size(), 1);
  CHECK(check_trace(*trace).empty());
}

TEST_CASE("volumes: a killed recorder leaves all that it has written") {
  MemoryStorage storage;
  {
    Recording recording(storage);
    recording.run();
    recording.go_on_in_new_volume();
    recording.run();
    REQUIRE(recording.writer->begin_volume());
    recording.begin_interval(kSender);
    for (uint64_t i = 0; i < kEvents; ++i) recording.send(), recording.receive();
    REQUIRE(recording.writer->flush());
    // Nothing more is written. It is no leak as long as somebody knows it.
    static TraceWriter* volatile left = recording.writer.release();
    static_cast<void>(left);
  }
  const auto trace = opened(storage);
  CHECK_FALSE(trace->finished());
  check_shown(*trace, 0, 3 * kEvents);
}

TEST_CASE("volumes: what is added later is shown with the rest") {
  MemoryStorage storage;
  Recording recording(storage);
  recording.run();
  recording.go_on_in_new_volume();
  recording.finish_left();
  recording.run();
  recording.go_on_in_new_volume();
  recording.finish_left();
  recording.run();
  REQUIRE(recording.writer->remove_volume(1));
  REQUIRE(recording.writer->finish(sample::recording_end()));

  const Bytes payload{1, 2, 3};
  {
    const auto trace = opened(storage);
    auto additions = TraceAdditions::begin(*trace);
    REQUIRE_MESSAGE(additions, additions.error().message);
    REQUIRE((*additions)->add_image(kSender, 0, [](const AddPages& add) -> Result<Bytes> {
      const Bytes page(kPageSize, 77);
      TRY(add(0, kPageSize, page));
      return Bytes{77};
    }));
    for (const EventIndex event : {EventIndex{2}, kEvents + 2})
      REQUIRE((*additions)->add_payload({kReceiver, event}, payload));
    REQUIRE((*additions)->finish(sample::settings()));
  }
  const auto trace = opened(storage);
  const auto image = trace->image(kSender, 0);
  REQUIRE_MESSAGE(image, image.error().message);
  CHECK_EQ(image->header, Bytes{77});
  uint64_t logged = 0;
  const auto read = trace->for_each_event(kReceiver, 0, 2 * kEvents, [&](EventIndex index, const Event& event) {
    if (event.receive->logged) {
      ++logged;
      CHECK_EQ(index % kEvents, 2);
    }
    return true;
  });
  REQUIRE_MESSAGE(read, read.error().message);
  CHECK_EQ(logged, 2);
}

TEST_CASE("volumes: copies of files go with the last volume that names them") {
  MemoryStorage storage;
  Recording recording(storage);
  const auto first = recording.writer->add_file("/proc/self/exe", "/bin/first", true);
  const auto pinned = recording.writer->add_file("/proc/self/status", "/bin/pinned", false);
  REQUIRE(first);
  if (pinned) recording.writer->pin_file(*pinned);
  const std::string copy = "/t/files";
  REQUIRE_FALSE(storage.list(copy)->empty());
  recording.go_on_in_new_volume();
  recording.writer->mention_file(kSender, *first);
  recording.finish_left();
  REQUIRE(recording.writer->remove_volume(1));
  CHECK(recording.writer->has_file(*first));
  recording.go_on_in_new_volume();
  recording.finish_left();
  REQUIRE(recording.writer->remove_volume(2));
  CHECK_FALSE(recording.writer->has_file(*first));
  if (pinned) CHECK(recording.writer->has_file(*pinned));
  const auto again = recording.writer->add_file("/proc/self/exe", "/bin/first", true);
  REQUIRE(again);
  CHECK_NE(*again, *first);
  REQUIRE(recording.writer->finish(sample::recording_end()));
  CHECK(check_trace(*opened(storage)).empty());
}

namespace {

// Its recorder does something after each of the first listings of the volumes.
class GoingOn : public MemoryStorage {
 public:
  using MemoryStorage::MemoryStorage;

  Result<std::vector<std::string>> list_directories(const std::string& directory) override {
    auto listed = MemoryStorage::list_directories(directory);
    if (directory == TraceFiles{"/t"}.volumes() && times > 0) --times, go_on();
    return listed;
  }

  int times = 0;
  std::function<void()> go_on;
};

}  // namespace

TEST_CASE("volumes: a snapshot is of those that are there when the ones that were listed have been removed") {
  for (const int times : {0, 1, 3, 1000}) {
    GoingOn storage;
    Recording recording(storage);
    uint64_t newest = 1;
    const auto go_on = [&] {
      recording.run();
      recording.go_on_in_new_volume();
      recording.finish_left();
      ++newest;
    };
    go_on();
    storage.go_on = [&] {
      for (int volume = 0; volume < 2; ++volume) {
        go_on();
        REQUIRE(recording.writer->remove_volume(newest - 2));
      }
    };
    storage.times = times;
    const auto copied = copy_window("/t", "/s", true, storage);
    storage.times = 0;
    CHECK_EQ(static_cast<bool>(copied), times < 1000);
    CHECK_EQ(storage.exists("/s"), times < 1000);
    if (times == 1000) continue;
    const auto trace = Trace::open("/s", storage);
    REQUIRE_MESSAGE(trace, trace.error().message);
    check_shown(**trace, 2 * static_cast<EventIndex>(times) * kEvents, kEvents);
    CHECK(check_trace(**trace).empty());
  }
}

}  // namespace redrive::logstore_volumes_test
