// Adding to a finished trace: what was added is there, what was there stays, and an interrupted addition leaves an
// intact trace.
#include "logstore/trace_additions.h"

#include "logstore/memory_storage.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::trace_additions_test {

namespace {

constexpr EventIndex kEvents = 12;
const EventRef kReceives[] = {{1, 3}, {1, 9}};
const Bytes kPayload{1, 2, 3, 4, 5};

Event receive_event() {
  Event event;
  event.writes = {{0x1000, 3, MemoryWrite::Kind::message, {}},
                  {0x2000, 4, MemoryWrite::Kind::data, Bytes(4)},
                  {0x3000, 2, MemoryWrite::Kind::message, {}}};
  event.receive = Receive{1, 7, 8, false, {{{2, 1}, 0, 5, 99}}};
  return event;
}

// Unit 1 has a virtual checkpoint at event 6, and an image at event 10.
void make_virtual(Storage& storage) {
  auto made = TraceWriter::create("/t", sample::settings(), storage);
  REQUIRE(made);
  TraceWriter& writer = **made;
  writer.add(UnitRecord{1, 100, {}, {}});
  for (EventIndex i = 0; i < kEvents; ++i) {
    const IntervalIndex interval = i < 6 ? 0 : i < 10 ? 1 : 2;
    if (i == 0 || i == 6 || i == 10) {
      const auto kind = i == 0 ? CheckpointKind::exec : CheckpointKind::image;
      writer.add(IntervalRecord{1, interval, kind, i, false, 100, "a", 0});
    }
    const bool receives = std::any_of(std::begin(kReceives), std::end(kReceives),
                                      [&](const EventRef& receive) { return receive.event == i; });
    writer.append(1, receives ? receive_event() : Event{});
  }
  REQUIRE(writer.flush());
  REQUIRE(sample::publish(writer, 1, 2));
  REQUIRE(writer.finish(sample::recording_end()));
}

std::shared_ptr<Trace> opened(Storage& storage) {
  auto trace = Trace::open("/t", storage);
  REQUIRE_MESSAGE(trace, trace.error().message);
  return std::move(trace).value();
}

Result<void> add_image(TraceAdditions& additions, IntervalIndex interval) {
  return additions.add_image(1, interval, [&](const AddPages& add) -> Result<Bytes> {
    for (size_t i = 0; i < sample::kPages; i++) TRY(add(1, sample::page_address(i), sample::page(1, interval, i)));
    return Bytes{7, 8};
  });
}

Result<void> add_all(Storage& storage) {
  ASSIGN_OR_RETURN(const auto trace, Trace::open("/t", storage));
  ASSIGN_OR_RETURN(const auto additions, TraceAdditions::begin(*trace));
  TRY(additions->add_payload(kReceives[0], kPayload));
  TRY(add_image(*additions, 1));
  TRY(additions->add_payload(kReceives[1], kPayload));
  Settings settings = sample::settings();
  settings.bound_s = 3;
  return additions->finish(settings);
}

// Which receives are logged; their payloads must be right, and still valid at the next event.
int logged(const Trace& trace) {
  int count = 0;
  const Event* before = nullptr;
  Event was;
  REQUIRE(trace.for_each_event(1, 0, kEvents, [&](EventIndex, const Event& event) {
    if (before) CHECK(*before == was);
    before = &event;
    was = event;
    if (!event.receive || !event.receive->logged) return true;
    ++count;
    CHECK(event.writes[0].data == Bytes{1, 2, 3});
    CHECK(event.writes[1].data == Bytes(4));
    CHECK(event.writes[2].data == Bytes{4, 5});
    for (const auto& write : event.writes) CHECK_FALSE(write.from_message());
    return true;
  }));
  return count;
}

void check_image(const Trace& trace, IntervalIndex interval) {
  const auto image = trace.image(1, interval);
  REQUIRE_MESSAGE(image, image.error().message);
  CHECK_EQ(image->pages.size(), sample::kPages * 9 / 10);
  size_t right = 0;
  REQUIRE(trace.read_pages(image->pages, [&](std::span<const PageRef> pages) -> Result<void> {
    for (const auto& page : pages) {
      for (size_t i = 0; i < sample::kPages; i++) {
        const Bytes expected = sample::page(1, interval, i);
        right += sample::page_address(i) == page.address && std::equal(expected.begin(), expected.end(), page.data);
      }
    }
    return {};
  }));
  CHECK_EQ(right, image->pages.size());
}

}  // namespace

TEST_CASE("what is added to a trace is there, and what was there stays") {
  MemoryStorage storage;
  make_virtual(storage);
  CHECK_EQ(logged(*opened(storage)), 0);
  const auto added = add_all(storage);
  REQUIRE_MESSAGE(added, added.error().message);
  const auto trace = opened(storage);
  CHECK_EQ(logged(*trace), 2);
  CHECK_EQ(trace->settings().bound_s, 3);
  CHECK(trace->finished());
  CHECK(trace->intervals(1)[1].has_image);
  for (const IntervalIndex interval : {1, 2}) check_image(*trace, interval);
  CHECK(check_trace(*trace).empty());
  // Once more: later additions come after earlier ones.
  REQUIRE(add_all(storage));
  CHECK_EQ(logged(*opened(storage)), 2);
  for (const IntervalIndex interval : {1, 2}) check_image(*opened(storage), interval);
  CHECK(check_trace(*opened(storage)).empty());
}

// A policy that decides later: the payload comes after its event, or before it.
TEST_CASE("what a recording keeps later is there at the end, and at the next image of one that was killed") {
  for (const bool killed : {false, true}) {
    CAPTURE(killed);
    MemoryStorage storage;
    const auto receive = [](TraceWriter& writer, EventIndex event) {
      CHECK_EQ(writer.append(1, receive_event()), event);
    };
    {
      auto made = TraceWriter::create("/t", sample::settings(), storage);
      REQUIRE(made);
      TraceWriter& writer = **made;
      writer.add(UnitRecord{1, 100, {}, {}});
      writer.add(IntervalRecord{1, 0, CheckpointKind::exec, 0, false, 100, "a", 0});
      receive(writer, 0);
      writer.add(IntervalRecord{1, 1, CheckpointKind::image, 1, false, 100, "a", 0});
      receive(writer, 1);
      writer.add_payload({1, 0}, kPayload);
      for (EventIndex i = 2; i < 70'000; ++i) receive(writer, i);
      for (EventIndex i = 2; i < 60'000; ++i) writer.add_payload({1, i}, kPayload);
      REQUIRE(writer.flush());
      REQUIRE(sample::publish(writer, 1, 1));
      writer.add_payload({1, 65'000}, kPayload);
      REQUIRE(writer.flush());
      if (!killed) REQUIRE(writer.finish(sample::recording_end()));
    }
    const auto trace = opened(storage);
    CHECK_EQ(trace->finished(), !killed);
    CHECK(check_trace(*trace).empty());
    uint64_t logged = 0;
    REQUIRE(trace->for_each_event(1, 0, 70'000, [&](EventIndex index, const Event& event) {
      const bool expected = index == 0 || (index >= 2 && index < 60'000) || (index == 65'000 && !killed);
      logged += event.receive->logged;
      if (!killed) CHECK_EQ(event.receive->logged, expected);
      if (event.receive->logged) CHECK(expected);
      return true;
    }));
    CHECK_GT(logged, 30'000);
  }
}

TEST_CASE("adding that is interrupted leaves a good trace, to which the rest can be added") {
  MemoryStorage counted;
  make_virtual(counted);
  const uint64_t first = counted.changes();
  REQUIRE(add_all(counted));
  const uint64_t last = counted.changes();
  REQUIRE(last > first + 10);
  for (uint64_t change = first; change < last; ++change) {
    for (const bool power_lost : {false, true}) {
      CAPTURE(change);
      CAPTURE(power_lost);
      MemoryStorage storage;
      make_virtual(storage);
      storage.fail_from(change);
      CHECK_FALSE(add_all(storage));
      storage.fail_from(UINT64_MAX);
      if (power_lost) storage.lose_unsynced(false);
      const auto left = opened(storage);
      CHECK(logged(*left) <= 2);
      check_image(*left, 2);
      if (left->intervals(1)[1].has_image) check_image(*left, 1);
      const auto added = add_all(storage);
      REQUIRE_MESSAGE(added, added.error().message);
      const auto trace = opened(storage);
      CHECK_EQ(logged(*trace), 2);
      for (const IntervalIndex interval : {1, 2}) check_image(*trace, interval);
      CHECK(check_trace(*trace).empty());
    }
  }
}

TEST_CASE("nothing is added to a trace whose recorder was killed") {
  MemoryStorage storage;
  {
    auto writer = TraceWriter::create("/t", sample::settings(), storage);
    REQUIRE(writer);
    (*writer)->add(UnitRecord{1, 100, {}, {}});
  }
  const auto refused = TraceAdditions::begin(*opened(storage));
  REQUIRE_FALSE(refused);
  CHECK_EQ(refused.error().message, "/t is not finished: nothing can be added to it");
}

TEST_CASE("payloads that do not fit their receive are damage") {
  MemoryStorage storage;
  make_virtual(storage);
  const auto additions = TraceAdditions::begin(*opened(storage));
  REQUIRE(additions);
  REQUIRE((*additions)->add_payload(kReceives[0], Bytes{1, 2}));
  REQUIRE((*additions)->publish());
  const auto read = opened(storage)->for_each_event(1, 0, kEvents, [](EventIndex, const Event&) { return true; });
  REQUIRE_FALSE(read);
  CHECK_EQ(read.error().message, "/t/payloads/1.seg: offset 66: a payload is too short");
}

}  // namespace redrive::trace_additions_test
