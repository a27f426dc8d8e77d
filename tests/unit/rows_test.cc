// Rows: what is read is what was written, whatever the models; what changes little takes little space; and bad bytes
// are found.
#include "logstore/rows.h"

#include <random>

#include "tests/unit/unit_test.h"

namespace redrive::rows_test {

namespace {

// A value, and the function by which it is written.
struct Value {
  enum Kind { number, signed_number, near, since, hash8, hash32, hash64, bytes, kKinds } kind = number;
  uint64_t value = 0;
  uint64_t base = 0;  // of near; the series of since; the length of bytes
};
struct Row {
  uint64_t place = 0, likeness = 0;
  std::vector<Value> values;
};

Bytes bytes_of(const Value& value) { return Bytes(value.base, static_cast<uint8_t>(value.value)); }

void write(const Row& row, RowWriter& out) {
  out.begin(row.place, row.likeness);
  for (const auto& [kind, value, base] : row.values) {
    if (kind == Value::number) out.u(value);
    if (kind == Value::signed_number) out.s(static_cast<int64_t>(value));
    if (kind == Value::near) out.near(value, base);
    if (kind == Value::since) out.since(base, value);
    if (kind == Value::hash8) out.fixed8(static_cast<uint8_t>(value));
    if (kind == Value::hash32) out.fixed32(static_cast<uint32_t>(value));
    if (kind == Value::hash64) out.fixed64(value);
    if (kind == Value::bytes) out.bytes(bytes_of({kind, value, base}));
  }
  out.end();
}

bool reads(const Row& row, RowReader& in) {
  in.begin();
  bool same = true;
  for (const auto& [kind, value, base] : row.values) {
    if (kind == Value::number) same &= in.u() == value;
    if (kind == Value::signed_number) same &= in.s() == static_cast<int64_t>(value);
    if (kind == Value::near) same &= in.near(base) == value;
    if (kind == Value::since) same &= in.since(base) == value;
    if (kind == Value::hash8) same &= in.fixed8() == static_cast<uint8_t>(value);
    if (kind == Value::hash32) same &= in.fixed32() == static_cast<uint32_t>(value);
    if (kind == Value::hash64) same &= in.fixed64() == value;
    if (kind == Value::bytes) {
      const auto found = in.bytes();
      const Bytes wanted = bytes_of({kind, value, base});
      same &= std::equal(found.begin(), found.end(), wanted.begin(), wanted.end());
    }
  }
  return same && in.ok();
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t limit) { return engine_() % limit; }
  uint64_t any() { return below(3) ? below(300) : engine_() >> below(64); }

  Value value() {
    Value made{static_cast<Value::Kind>(below(Value::kKinds)), any(), any()};
    if (made.kind == Value::since) made.base %= rows::kSeries;
    if (made.kind == Value::bytes) made.base %= 50;
    return made;
  }
  std::vector<Row> rows(size_t count, size_t places, size_t longest) {
    std::vector<Row> of_places(places);
    for (size_t i = 0; i < places; ++i) {
      of_places[i] = {engine_(), i % 7, {}};
      for (size_t n = below(longest + 1); n > 0; --n) of_places[i].values.push_back(value());
    }
    std::vector<Row> made;
    for (size_t i = 0; i < count; ++i) {
      Row& row = of_places[below(places)];
      for (uint64_t n = below(4); n > 0 && !row.values.empty(); --n) row.values[below(row.values.size())] = value();
      made.push_back(row);
    }
    return made;
  }

 private:
  std::mt19937_64 engine_;
};

Bytes written(const std::vector<Row>& rows) {
  RowWriter out;
  for (const Row& row : rows) write(row, out);
  return out.block();
}

}  // namespace

TEST_CASE("rows are read as they were written") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const size_t places = seed % 3 == 0 ? 1000 : 1 + random.below(20);
    const auto rows = random.rows(3000, places, seed % 5 == 0 ? 200 : 20);
    const Bytes block = written(rows);
    RowReader in(block);
    size_t same = 0;
    while (same < rows.size() && reads(rows[same], in)) ++same;
    REQUIRE_EQ(same, rows.size());
    CHECK(in.at_end());
  }
}

TEST_CASE("a writer that is used again makes the same block") {
  Random random(5);
  const auto rows = random.rows(500, 300, 60), others = random.rows(500, 20, 10);
  RowWriter out;
  for (const auto* block : {&others, &rows, &others}) {
    out.clear();
    CHECK_EQ(out.size(), 0);
    for (const Row& row : *block) write(row, out);
    CHECK(out.block() == written(*block));
  }
}

TEST_CASE("a reader that is used again reads the next block") {
  Random random(6);
  const auto rows = random.rows(500, 300, 60);
  const Bytes block = written(rows);
  RowReader in;
  CHECK_FALSE(in.ok());
  for (int times = 0; times < 3; ++times) {
    in.read(block);
    for (const Row& row : rows) REQUIRE(reads(row, in));
  }
}

TEST_CASE("a row whose values are as predicted takes a byte, in a fixed order of places") {
  std::vector<Row> rows;
  for (uint64_t i = 0; i < 3000; ++i) {
    rows.push_back({i % 3, 1, {{Value::number, 1000 * (i % 3), 0}, {Value::near, i + 5, i}, {Value::since, 9 * i, 1}}});
  }
  CHECK(written(rows).size() <= rows.size() + 100);
}

TEST_CASE("a value that differs takes what the difference takes") {
  const auto size = [](uint64_t difference) {
    std::vector<Row> rows;
    for (uint64_t i = 0; i < 1000; ++i)
      rows.push_back({1, 1, {{Value::number, uint64_t{1} << 40, 0}, {Value::number, i * difference, 0}}});
    return written(rows).size();
  };
  CHECK(size(1) <= 2000 + 50);
  CHECK(size(-uint64_t{1}) <= 2000 + 50);
  CHECK(size(1000) <= 3000 + 50);
}

TEST_CASE("damaged blocks are refused, or read as something else") {
  Random random(7);
  const auto rows = random.rows(50, 5, 60);
  const Bytes block = written(rows);
  for (size_t size = 0; size < block.size(); ++size) {
    const Bytes cut(block.begin(), block.begin() + static_cast<ptrdiff_t>(size));
    CHECK_FALSE(RowReader(cut).ok());
  }
  for (int i = 0; i < 20'000; ++i) {
    Bytes damaged = block;
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      damaged[random.below(damaged.size())] = static_cast<uint8_t>(random.below(256));
    }
    RowReader in(damaged);
    for (const Row& row : rows) {
      if (!reads(row, in)) break;
    }
  }
}

TEST_CASE("a count that cannot be is refused") {
  RowWriter out;
  out.begin(1, 1);
  out.u(1000);
  for (int i = 0; i < 1000; ++i) out.u(7);
  out.end();
  const Bytes block = out.block();
  RowReader in(block);
  in.begin();
  CHECK_EQ(in.count(), 1000);
  for (const size_t numbers : {2, 100}) {
    in.read(block);
    in.begin();
    CHECK_EQ(in.count(numbers), 0);
    CHECK_FALSE(in.ok());
  }
}

TEST_CASE("models and their use that are not known are refused") {
  for (const uint64_t choice : {uint64_t{6}, uint64_t{5}, uint64_t{2} + 4 * 256, UINT64_MAX}) {
    Encoder models;
    models.u(choice);
    Encoder block;
    for (const size_t size : {models.size(), size_t{1}, size_t{0}, size_t{0}, size_t{0}, size_t{0}}) block.u(size);
    block.raw(models.data().data(), models.size());
    block.u(0);
    RowReader in(block.data());
    CHECK(in.ok());
    in.begin();
    CHECK_FALSE(in.ok());
  }
}

}  // namespace redrive::rows_test
