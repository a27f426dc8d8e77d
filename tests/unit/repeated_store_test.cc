#include "supervisor/replay/repeated_store.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <numeric>
#include <optional>
#include <vector>

namespace redrive {
namespace {

// The instruction `code` with the direction flag clear, in this process.
struct Begun {
  explicit Begun(std::vector<uint8_t> bytes) : code(std::move(bytes)) {
    code.resize(kLongest);
    regs.rip = reinterpret_cast<Address>(code.data());
    regs.cs = kCodeSegment;
  }
  std::optional<RepeatedStore> store() const { return RepeatedStore::at(memory, regs); }

  static constexpr size_t kLongest = 15;
  std::vector<uint8_t> code;
  const Memory memory = Memory::open(getpid()).value();
  user_regs_struct regs{};
};

// What the processor does.
void copy_words(uint64_t* from, uint64_t* to, uint64_t count) {
  asm volatile("rep movsq" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
}

TEST_CASE("a repeated store is recognized, and its size") {
  const std::vector<std::pair<std::vector<uint8_t>, uint64_t>> sizes = {
      {{0xf3, 0xaa}, 1},       {{0xf3, 0xa4}, 1},       {{0xf3, 0xab}, 4},      {{0x66, 0xf3, 0xab}, 2},
      {{0xf3, 0x66, 0xa5}, 2}, {{0xf3, 0x48, 0xab}, 8}, {{0xf3, 0x48, 0xa5}, 8}};
  for (const auto& [code, size] : sizes) {
    Begun begun(code);
    const auto store = begun.store();
    REQUIRE(store);
    const bool copies = (code.back() & 0xfe) == 0xa4;
    user_regs_struct interrupted = begun.regs;
    begun.regs.rcx = 5;
    interrupted.rcx = 2;
    interrupted.rdi += 3 * size;
    if (copies) interrupted.rsi += 3 * size;
    CHECK(store->rounds(begun.regs, interrupted) == std::optional<uint64_t>(3));
    CHECK(!store->rounds(interrupted, begun.regs));
    interrupted.rdi += size;
    CHECK(!store->rounds(begun.regs, interrupted));
  }
}

TEST_CASE("other instructions are no repeated stores") {
  for (const auto& code :
       std::vector<std::vector<uint8_t>>{{0xaa}, {0xf2, 0xae}, {0xf3, 0xa6}, {0xf3, 0x90}, {0x0f, 0x05}}) {
    CHECK(!Begun(code).store());
  }
  Begun down({0xf3, 0xa4});
  down.regs.eflags = 0x400;
  CHECK(!down.store());
}

TEST_CASE("rounds of a repeated store do what the processor does, also where target and source overlap") {
  for (const int64_t distance : {1, 3, 50, -1, -3, -50}) {
    std::vector<uint64_t> expected(200);
    std::iota(expected.begin(), expected.end(), 1);
    std::vector<uint64_t> found = expected;
    copy_words(&expected[60], &expected[60 + distance], 70);
    Begun begun({0xf3, 0x48, 0xa5});
    begun.regs.rsi = reinterpret_cast<Address>(&found[60]);
    begun.regs.rdi = reinterpret_cast<Address>(&found[60 + distance]);
    begun.regs.rcx = 100;
    REQUIRE(begun.store()->advance(begun.memory, begun.regs, 70));
    CHECK(found == expected);
    CHECK(begun.regs.rcx == 30);
    CHECK(begun.regs.rsi == reinterpret_cast<Address>(&found[130]));
    CHECK(begun.regs.rdi == reinterpret_cast<Address>(&found[130 + distance]));
  }
}

TEST_CASE("a repeated store fills memory, more than is written at once") {
  std::vector<uint16_t> filled((3 << 20) / sizeof(uint16_t));
  Begun begun({0x66, 0xf3, 0xab});
  begun.regs.rdi = reinterpret_cast<Address>(filled.data());
  begun.regs.rcx = filled.size();
  begun.regs.rax = 0xffff1234;
  REQUIRE(begun.store()->advance(begun.memory, begun.regs, filled.size() - 1));
  CHECK(filled == [&] {
    std::vector<uint16_t> expected(filled.size(), 0x1234);
    expected.back() = 0;
    return expected;
  }());
  CHECK(begun.regs.rcx == 1);
}

TEST_CASE("a repeated store into memory that is not there changes no registers") {
  Begun begun({0xf3, 0xaa});
  begun.regs.rdi = 16;
  begun.regs.rcx = 4;
  CHECK(!begun.store()->advance(begun.memory, begun.regs, 4));
  CHECK(begun.regs.rcx == 4);
  CHECK(begun.regs.rdi == 16);
}

}  // namespace
}  // namespace redrive
