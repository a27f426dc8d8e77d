// Records that the code inside tracees writes, in a ring of this process's, and what a program could write there.
#include "supervisor/record/code/ring_reader.h"

#include <cstring>
#include <string>

#include "supervisor/tier/gate.h"
#include "tests/unit/unit_test.h"

namespace redrive::ring_reader_test {

namespace {

using Next = RingStretch::Next;

struct Ring {
  // A record at the ring's head, with these pieces of memory, of which `read` come first.
  gate::Record& write(uint64_t stamp, const std::vector<std::string>& pieces = {}, uint32_t read = 0) {
    auto* const at = ring(slot) + slot.head;
    auto& record = *new (at) gate::Record{};
    uint64_t size = sizeof record;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const gate::Piece piece{0x1000 * (i + 1), pieces[i].size()};
      std::memcpy(at + size, &piece, sizeof piece);
      std::memcpy(at + size + sizeof piece, pieces[i].data(), pieces[i].size());
      size += sizeof piece + gate::padded(pieces[i].size());
    }
    record.size = static_cast<uint32_t>(size);
    record.repeat = 1;
    record.stamp = stamp;
    record.thread = 7;
    record.before = read;
    record.after = static_cast<uint32_t>(pieces.size()) - read;
    return record;
  }
  // The call of the record at the head has ended.
  void complete() {
    slot.last = slot.head;
    slot.head += reinterpret_cast<const gate::Record*>(ring(slot) + slot.head)->size;
    slot.pending = 0;
  }
  gate::Record& add(uint64_t stamp, const std::vector<std::string>& pieces = {}, uint32_t read = 0) {
    gate::Record& record = write(stamp, pieces, read);
    complete();
    return record;
  }
  RingReader::Taken take(uint64_t now) { return reader.take(slot, now); }
  // The stamps of what was taken; of records without a result negative.
  std::vector<int64_t> stamps(uint64_t now) {
    auto taken = take(now);
    auto* const stretch = std::get_if<RingStretch>(&taken);
    std::vector<int64_t> stamps;
    while (stretch && stretch->next() == Next::record) {
      const auto stamp = static_cast<int64_t>(stretch->stamp());
      stamps.push_back(stretch->complete() ? stamp : -stamp);
    }
    return stamps;
  }

  std::vector<uint64_t> memory = std::vector<uint64_t>(gate::kSlotSize / sizeof(uint64_t));
  gate::Slot& slot = *reinterpret_cast<gate::Slot*>(memory.data());
  RingReader reader;
};

bool is_broken(const RingReader::Taken& taken) { return std::holds_alternative<RingReader::Broken>(taken); }
std::string text(const Memory::Piece& piece) { return {piece.data.begin(), piece.data.end()}; }
using Stamps = std::vector<int64_t>;

}  // namespace

TEST_CASE("each record is taken once, and not before its time") {
  Ring ring;
  CHECK(ring.stamps(10).empty());
  ring.add(1);
  ring.add(2, {"abc"});
  ring.add(5);
  CHECK_EQ(ring.stamps(4), Stamps{1, 2});
  CHECK(ring.stamps(4).empty());
  ring.add(6);
  CHECK_EQ(ring.stamps(9), Stamps{5, 6});
  CHECK(ring.stamps(9).empty());
}

TEST_CASE("a record has the memory that its call read and wrote") {
  Ring ring;
  ring.add(1, {"read", "also read", "written"}, 2);
  auto taken = ring.take(1);
  auto& stretch = std::get<RingStretch>(taken);
  CHECK(stretch.at_end());
  REQUIRE_EQ(stretch.next(), Next::record);
  CHECK_FALSE(stretch.at_end());
  CHECK_EQ(stretch.thread(), 7);
  REQUIRE_EQ(stretch.read().size(), 2);
  REQUIRE_EQ(stretch.pieces().size(), 3);
  CHECK_EQ(text(stretch.pieces()[1]), "also read");
  CHECK_EQ(text(stretch.pieces()[2]), "written");
  CHECK_EQ(stretch.pieces()[2].address, 0x3000);
  CHECK_EQ(stretch.next(), Next::end);
  CHECK(stretch.at_end());
}

TEST_CASE("a series that continues after what was taken is counted in a record of its own") {
  Ring ring;
  ring.add(1).repeat = 3;
  gate::Record& last = ring.add(2);
  last.repeat = 4;
  auto taken = ring.take(2);
  const auto& stretch = std::get<RingStretch>(taken);
  const uint64_t half = stretch.complete_bytes() / 2, all = stretch.complete_bytes();
  const std::vector<uint64_t> places{0, half - 1, half, half, all};
  CHECK_EQ(stretch.calls_before(places), std::vector<uint64_t>{0, 0, 3, 3, 7});
  CHECK_EQ(last.repeat, 4 | gate::kTaken);
}

TEST_CASE("a send can be received before its call has ended: its entry is taken first") {
  Ring ring;
  ring.add(1);
  ring.write(2, {"sent"}, 1);
  ring.slot.pending = ring.slot.head + 1;
  auto taken = ring.take(2);
  auto& stretch = std::get<RingStretch>(taken);
  REQUIRE_EQ(stretch.next(), Next::record);
  CHECK(stretch.complete());
  REQUIRE_EQ(stretch.next(), Next::record);
  CHECK_FALSE(stretch.complete());
  CHECK_FALSE(stretch.take_begun());
  REQUIRE_EQ(stretch.pieces().size(), 1);
  CHECK_EQ(text(stretch.pieces()[0]), "sent");
  CHECK_EQ(stretch.next(), Next::end);
  CHECK(ring.stamps(2).empty());

  ring.complete();
  ring.add(3);
  taken = ring.take(3);
  auto& rest = std::get<RingStretch>(taken);
  REQUIRE_EQ(rest.next(), Next::record);
  CHECK_EQ(rest.stamp(), 2);
  CHECK(rest.complete());
  CHECK(rest.take_begun());
  CHECK_FALSE(rest.take_begun());
  REQUIRE_EQ(rest.next(), Next::record);
  CHECK_EQ(rest.next(), Next::end);
}

TEST_CASE("a send that is announced and has no record yet is not taken") {
  Ring ring;
  ring.add(4);
  ring.write(3);  // an older one that lies there
  ring.slot.pending = ring.slot.head + 1;
  CHECK_EQ(ring.stamps(9), Stamps{4});
  ring.write(12);
  CHECK(ring.stamps(9).empty());
}

TEST_CASE("a call that is left to a stop") {
  Ring ring;
  ring.add(1);
  CHECK_EQ(ring.stamps(1), Stamps{1});
  ring.write(2, {"sent"}, 1);
  SUBCASE("its entry was not taken") {
    CHECK_FALSE(ring.reader.cancel_entry());
    auto entry = ring.reader.take_entry(ring.slot);
    REQUIRE(entry);
    REQUIRE_EQ(entry->next(), Next::record);
    CHECK_EQ(entry->stamp(), 2);
    CHECK_FALSE(entry->complete());
    CHECK_EQ(entry->next(), Next::end);
  }
  SUBCASE("its entry was taken") {
    ring.slot.pending = ring.slot.head + 1;
    CHECK_EQ(ring.stamps(2), Stamps{-2});
    CHECK_FALSE(ring.reader.take_entry(ring.slot));
  }
  SUBCASE("it is not made after all") {
    ring.slot.pending = ring.slot.head + 1;
    CHECK_EQ(ring.stamps(2), Stamps{-2});
    CHECK(ring.reader.cancel_entry());
    CHECK_FALSE(ring.reader.cancel_entry());
  }
}

TEST_CASE("what a call that is being made has read, which may be written over") {
  Ring ring;
  ring.add(1);
  ring.write(2, {"before"}, 1);
  auto current = RingReader::current(ring.slot);
  REQUIRE(current);
  REQUIRE_EQ(current->next(), Next::record);
  REQUIRE_EQ(current->pieces().size(), 1);
  CHECK_EQ(text(current->pieces()[0]), "before");
  CHECK_EQ(ring.stamps(9), Stamps{1});
  ring.slot.head = gate::kRingSize;
  CHECK_FALSE(RingReader::current(ring.slot));
}

TEST_CASE("a ring is emptied when all is taken and no thread writes") {
  Ring ring;
  ring.add(1);
  ring.slot.phase = gate::Phase::outside;
  ring.reader.empty(ring.slot);
  CHECK_NE(ring.slot.head, 0);
  CHECK_EQ(ring.stamps(1), Stamps{1});
  ring.slot.phase = gate::Phase::kernel;
  ring.reader.empty(ring.slot);
  CHECK_NE(ring.slot.head, 0);
  ring.slot.phase = gate::Phase::outside;
  ring.reader.empty(ring.slot);
  CHECK_EQ(ring.slot.head, 0);
  ring.add(2);
  CHECK_EQ(ring.stamps(2), Stamps{2});
}

TEST_CASE("what the program writes into the ring is found out") {
  Ring ring;
  gate::Record& record = ring.add(1, {"piece"}, 1);
  const auto first = [&] {
    RingStretch stretch(redrive::ring(ring.slot), ring.slot.head, 0);
    return stretch.next();
  };
  CHECK_EQ(first(), Next::record);
  SUBCASE("the head") {
    ring.slot.head = gate::kRingSize + 8;
    CHECK(is_broken(ring.take(9)));
  }
  SUBCASE("the head, backwards") {
    CHECK_EQ(ring.stamps(1), Stamps{1});
    ring.slot.head = 0;
    CHECK(is_broken(ring.take(9)));
  }
  SUBCASE("a size that is too large") {
    record.size += 8;
    CHECK(is_broken(ring.take(9)));
    CHECK_EQ(first(), Next::broken);
  }
  SUBCASE("a size that is too small") {
    record.size = 8;
    CHECK(is_broken(ring.take(9)));
    CHECK_EQ(first(), Next::broken);
  }
  SUBCASE("more pieces than there are") {
    record.after = ~0u;
    CHECK_EQ(first(), Next::broken);
  }
  SUBCASE("a piece that is too long") {
    reinterpret_cast<gate::Piece*>(&record + 1)->length = ~0ull;
    CHECK_EQ(first(), Next::broken);
  }
}

TEST_CASE("nothing is read after a broken record") {
  Ring ring;
  ring.add(1).before = 9;
  ring.add(2);
  auto taken = ring.take(2);
  auto& stretch = std::get<RingStretch>(taken);
  CHECK_EQ(stretch.next(), Next::broken);
  CHECK(stretch.at_end());
  CHECK_EQ(stretch.next(), Next::end);
}

TEST_CASE("stretches are read where they were copied to, two batches at a time") {
  Ring ring;
  StretchCopies copies;
  const auto take = [&](uint64_t stamp, const std::string& text) {
    ring.add(stamp, {text});
    auto taken = ring.take(stamp);
    copies.begin_batch();
    copies.add(std::get<RingStretch>(taken));
    ring.slot.phase = gate::Phase::outside;
    ring.reader.empty(ring.slot);
    return std::get<RingStretch>(taken);
  };
  RingStretch one = take(1, "first"), other = take(2, "second");
  std::fill(ring.memory.begin(), ring.memory.end(), ~0ull);
  REQUIRE_EQ(one.next(), Next::record);
  CHECK_EQ(text(one.pieces()[0]), "first");
  REQUIRE_EQ(other.next(), Next::record);
  CHECK_EQ(text(other.pieces()[0]), "second");
}

}  // namespace redrive::ring_reader_test
