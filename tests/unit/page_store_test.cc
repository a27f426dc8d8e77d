// A page store whose headers are read when pages are needed.
#include "logstore/page_store.h"

#include <fmt/format.h>

#include "base/page.h"
#include "logstore/memory_storage.h"
#include "tests/unit/unit_test.h"

namespace redrive::page_store_test {

namespace {

const std::string kPath = "/t/pages";
constexpr uint64_t kPages = 500, kEveryPages = 100;

Bytes page(uint64_t id) {
  Bytes bytes(kPageSize, 1);
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(id >> (8 * i));
  return bytes;
}

// Writes pages, as for five images, and returns where the file ended after each.
std::vector<RecordPlace> write(Storage& storage) {
  PageStoreWriter writer(storage, kPath);
  std::vector<RecordPlace> places{{}};
  for (uint64_t id = 0; id < kPages; ++id) {
    CHECK_EQ(writer.add(page(id).data()).value(), id);
    if ((id + 1) % kEveryPages != 0) continue;
    REQUIRE(writer.write());
    places.push_back({writer.bytes(), writer.pages()});
  }
  return places;
}

PageStore opened(Storage& storage, const std::vector<RecordPlace>& places) {
  return PageStore(
      std::make_unique<RecordParts>(RecordFile::open_unread(storage, kPath, FileKind::pages, 0, 0).value(), places));
}

Result<void> read(const PageStore& store, std::vector<uint64_t> ids) {
  std::vector<Image::Page> wanted;
  for (const uint64_t id : ids) wanted.push_back({1, id * kPageSize, id});
  size_t found = 0;
  TRY(store.read(wanted, [&](std::span<const PageRef> pages) -> Result<void> {
    for (const PageRef& each : pages) {
      CHECK(Bytes(each.data, each.data + kPageSize) == page(each.address / kPageSize));
      ++found;
    }
    return {};
  }));
  CHECK_EQ(found, ids.size());
  return {};
}

}  // namespace

TEST_CASE("pages of all images are found, with as many places as are known") {
  MemoryStorage storage;
  const auto places = write(storage);
  for (const auto& known : {places, {places.front(), places[3], places.back()}, {places.front(), places.back()}}) {
    PageStore store = opened(storage, known);
    CHECK(read(store, {0}));
    CHECK(read(store, {499, 63, 64, 99, 100, 101, 300, 299}));
    CHECK_EQ(read(store, {500}).error().status, Status::damaged);
  }
}

TEST_CASE("a damaged header costs the pages up to the next place") {
  MemoryStorage storage;
  const auto places = write(storage);
  storage.bytes(kPath)[places[2].offset] ^= 1;
  PageStore store = opened(storage, places);
  CHECK(read(store, {0, 150, 199, 300, 499}));
  for (int times = 0; times < 2; ++times) {
    const auto found = read(store, {250});
    REQUIRE_FALSE(found);
    CHECK_EQ(found.error().message,
             fmt::format("/t/pages: offset {}: record header does not match its checksum", places[2].offset));
  }
}

TEST_CASE("a file that was cut has the pages before that") {
  MemoryStorage storage;
  const auto places = write(storage);
  storage.bytes(kPath).resize(places[4].offset + 100);
  PageStore store = opened(storage, places);
  CHECK(read(store, {0, 399}));
  CHECK_EQ(read(store, {400}).error().message,
           fmt::format("/t/pages: offset {}: file ends inside a record", places[4].offset));
}

TEST_CASE("places where no record begins are damage") {
  MemoryStorage storage;
  auto places = write(storage);
  SUBCASE("another offset") { ++places[2].offset; }
  SUBCASE("another page") { ++places[2].item; }
  PageStore store = opened(storage, places);
  CHECK(read(store, {50, 350}));
  CHECK_EQ(read(store, {150}).error().status, Status::damaged);
  CHECK_EQ(read(store, {250}).error().status, Status::damaged);
}

}  // namespace redrive::page_store_test
