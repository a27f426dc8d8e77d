// Payloads that are added to receives after their events were written.
#include "logstore/payload_file.h"

#include <malloc.h>

#include <algorithm>

#include "logstore/memory_storage.h"
#include "tests/unit/unit_test.h"

namespace redrive::payload_file_test {

namespace {

constexpr UnitId kUnit = 3;
const std::string kPath = "/t/payloads/3.seg";

Bytes text(std::string_view from) { return {from.begin(), from.end()}; }

// A receive of two parts that was not logged.
Event receive(uint64_t first, uint64_t second) {
  Event event;
  event.receive.emplace();
  for (const uint64_t length : {first, second})
    event.writes.push_back({0x1000, length, MemoryWrite::Kind::message, {}});
  return event;
}

std::unique_ptr<PayloadFile> opened(Storage& storage) {
  const uint64_t size = storage.open(kPath).value()->size();
  auto file = PayloadFile::open(storage, kPath, kUnit, size);
  REQUIRE_MESSAGE(file, file.error().message);
  return std::move(*file);
}

void check_filled(const PayloadFile& file, EventIndex index, std::string_view first, std::string_view second) {
  Event event = receive(first.size(), second.size());
  const auto filled = file.fill(index, event);
  REQUIRE_MESSAGE(filled, filled.error().message);
  CHECK(*filled);
  CHECK(event.receive->logged);
  CHECK(event.writes[0].data == text(first));
  CHECK(event.writes[1].data == text(second));
}

void check_not_there(const PayloadFile& file, EventIndex index) {
  Event event = receive(1, 1);
  CHECK_FALSE(file.fill(index, event).value());
  CHECK_FALSE(event.receive->logged);
}

void write(Storage& storage, std::initializer_list<std::pair<EventIndex, std::string_view>> payloads) {
  PayloadFileWriter writer(storage, kPath, kUnit);
  if (storage.exists(kPath)) {
    const auto file = opened(storage);
    REQUIRE(writer.resume(file->file().readable_size(), file->file().items()));
  }
  for (const auto& [event, payload] : payloads) writer.add(event, text(payload));
  Compressor compressor(1);
  REQUIRE(writer.write(compressor));
}

}  // namespace

TEST_CASE("payloads are found by the events that received them, in any order") {
  MemoryStorage storage;
  write(storage, {{70, "abcdef"}, {4, ""}, {12, std::string(5000, 'x')}});
  write(storage, {{5, "gh"}, {70, "ABCDEF"}});
  const auto file = opened(storage);
  check_filled(*file, 12, std::string(4999, 'x'), "x");
  check_filled(*file, 70, "ABC", "DEF");  // the last counts
  check_filled(*file, 5, "g", "h");
  check_filled(*file, 4, "", "");
  for (const EventIndex other : {0, 6, 71}) check_not_there(*file, other);
  Event no_receive;
  CHECK_FALSE(file->fill(70, no_receive).value());
}

TEST_CASE("payloads of formats up to 12 are found") {
  MemoryStorage storage;
  RecordWriter writer(storage, kPath, FileKind::payloads, kUnit);
  Encoder items;
  items.u(7), items.bytes(text("abc"));
  items.u(2), items.bytes(text("defg"));
  Compressor compressor(1);
  writer.add(RecordType::payloads, items.data(), 2, &compressor);
  REQUIRE(writer.write());
  check_filled(*opened(storage), 7, "ab", "c");
  write(storage, {{2, "DE"}});
  check_filled(*opened(storage), 7, "a", "bc");
  check_filled(*opened(storage), 2, "D", "E");
}

TEST_CASE("only payloads that are needed are read, and what does not fit is damage") {
  MemoryStorage storage;
  write(storage, {{1, "abc"}});
  write(storage, {{2, "defg"}});
  storage.bytes(kPath).back() ^= 1;
  const auto file = opened(storage);
  check_filled(*file, 1, "a", "bc");
  Event event = receive(2, 2);
  CHECK_EQ(file->fill(2, event).error().status, Status::damaged);
  Event longer = receive(2, 2);
  CHECK_EQ(file->fill(1, longer).error().status, Status::damaged);
}

TEST_CASE("records that receives need in turn are read once") {
  MemoryStorage storage;
  write(storage, {{1, "ab"}, {3, "cd"}});
  write(storage, {{2, "ef"}, {4, "gh"}});
  const auto file = opened(storage);
  check_filled(*file, 1, "a", "b");
  check_filled(*file, 2, "e", "f");
  std::ranges::fill(storage.bytes(kPath), uint8_t{0});  // whoever reads them again finds damage
  check_filled(*file, 3, "c", "d");
  check_filled(*file, 4, "g", "h");
}

TEST_CASE("an event that is named again and again takes no memory for each time") {
  constexpr uint32_t kTimes = 1 << 20;
  constexpr size_t kRecords = 16, kPlace = 2;
  MemoryStorage storage;
  RecordWriter writer(storage, kPath, FileKind::payloads, kUnit);
  Compressor compressor(1);
  for (size_t i = 0; i < kRecords; ++i) {
    writer.add(RecordType::payload_places, Bytes(kTimes * kPlace, 0), kTimes, &compressor);
    writer.add(RecordType::payload_bytes, {}, kTimes);
  }
  REQUIRE(writer.write());
  write(storage, {{0, "abc"}, {1, "de"}});
  const auto used = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t before = used();
  const auto file = opened(storage);
  CHECK_LT(used() - before, size_t{128} << 20);
  check_filled(*file, 0, "ab", "c");
  check_filled(*file, 1, "d", "e");
}

TEST_CASE("places without their payloads are damage") {
  MemoryStorage storage;
  RecordWriter writer(storage, kPath, FileKind::payloads, kUnit);
  Encoder places;
  places.u(1), places.u(3);
  places.u(2), places.u(4);
  writer.add(RecordType::payload_places, places.data(), 2);
  SUBCASE("none") {}
  SUBCASE("too few") { writer.add(RecordType::payload_bytes, text("abcdef"), 2); }
  SUBCASE("of other receives") { writer.add(RecordType::payload_bytes, text("abcdefg"), 1); }
  SUBCASE("something else") { writer.add(RecordType::payloads, text("abcdefg"), 2); }
  REQUIRE(writer.write());
  const auto file = PayloadFile::open(storage, kPath, kUnit, storage.bytes(kPath).size());
  REQUIRE_FALSE(file);
  CHECK_EQ(file.error().status, Status::damaged);
}

}  // namespace redrive::payload_file_test
