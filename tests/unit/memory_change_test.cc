// Which memory a recorded call changed, and whether that is code.
#include "supervisor/replay/memory_change.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <algorithm>

#include "tests/unit/unit_test.h"

namespace redrive::memory_change_test {

namespace {

Event call(std::array<uint64_t, 6> args, int64_t result) {
  Event event;
  event.args = args;
  event.result = result;
  return event;
}

using Ranges = std::vector<std::pair<Address, Address>>;

Ranges changed(const Event& event, Special special, Address brk = 0) {
  Ranges ranges;
  for (const auto& range : changed_memory(event, special, brk)) ranges.push_back({range.start, range.end});
  return ranges;
}

Mapping mapping(Address start, Address end) {
  Mapping made;
  made.start = start;
  made.end = end;
  return made;
}

}  // namespace

TEST_CASE("memory change: whole pages, from where the call says or answers") {
  CHECK_EQ(changed(call({0, 100, PROT_READ}, 0x7000), Special::mmap), Ranges{{0x7000, 0x8000}});
  CHECK_EQ(changed(call({0x5000, 0x1001}, 0), Special::munmap), Ranges{{0x5000, 0x7000}});
  CHECK_EQ(changed(call({0x5000, 0x1000, 0x3000}, 0x9000), Special::mremap),
           Ranges{{0x5000, 0x6000}, {0x9000, 0xc000}});
}

TEST_CASE("memory change: what was mapped can be longer than what was asked for") {
  Event event = call({0, 0x1000, PROT_READ}, 0x7000);
  event.map.emplace().length = 0x3000;
  CHECK_EQ(changed(event, Special::mmap), Ranges{{0x7000, 0xa000}});
}

TEST_CASE("memory change: a break that grows or shrinks") {
  CHECK_EQ(changed(call({}, 0x7800), Special::brk, 0x5000), Ranges{{0x5000, 0x8000}});
  CHECK_EQ(changed(call({}, 0x5000), Special::brk, 0x7000), Ranges{{0x5000, 0x7000}});
}

TEST_CASE("memory change: calls that failed, and those that change no memory") {
  CHECK_EQ(changed(call({0x5000, 0x1000}, -22), Special::munmap), Ranges{});
  CHECK_EQ(changed(call({0x1002, 0x5000}, 0), Special::arch_prctl), Ranges{});
}

TEST_CASE("memory change: code is what is made executable, or lies where code was") {
  CHECK(makes_code(call({0, 0x1000, PROT_READ | PROT_EXEC}, 0x7000), Special::mmap));
  CHECK(makes_code(call({0x7000, 0x1000, PROT_EXEC}, 0), Special::mprotect));
  CHECK_FALSE(makes_code(call({0x7000, 0x1000, PROT_READ}, 0), Special::mprotect));
  CHECK_FALSE(makes_code(call({0x7000, 0x1000, 0x7}, 0), Special::munmap));
  CHECK(makes_code(call({3, 0, SHM_EXEC}, 0x7000), Special::shmat));
  CHECK_FALSE(makes_code(call({3, 0, SHM_RND}, 0x7000), Special::shmat));
  const std::vector<Mapping> code{mapping(0x4000, 0x5000), mapping(0x8000, 0x9000)};
  CHECK(overlap({{0x3000, 0x4001}}, code));
  CHECK(overlap({{0x1000, 0x2000}, {0x8fff, 0xa000}}, code));
  CHECK_FALSE(overlap({{0x3000, 0x4000}, {0x5000, 0x8000}}, code));
  CHECK_FALSE(overlap({}, code));
}

TEST_CASE("memory change: code is read again where it changed, with what is left of mappings and what was joined") {
  constexpr int kCode = PROT_READ | PROT_EXEC;
  constexpr size_t kPages = 8;
  auto* const area =
      static_cast<char*>(mmap(nullptr, kPages * kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(area != MAP_FAILED);
  const auto address = [&](size_t page) { return reinterpret_cast<Address>(area) + page * kPageSize; };
  std::vector<Mapping> code;
  const auto protect = [&](size_t first, size_t last, int protection) {
    REQUIRE_EQ(mprotect(area + first * kPageSize, (last - first) * kPageSize, protection), 0);
    REQUIRE(read_code_again(getpid(), {{address(first), address(last)}}, code));
    Ranges pages;
    for (const Mapping& each : code) {
      CHECK((each.protection & PROT_EXEC));
      pages.push_back({(each.start - address(0)) / kPageSize, (each.end - address(0)) / kPageSize});
    }
    std::sort(pages.begin(), pages.end());
    return pages;
  };
  CHECK_EQ(protect(1, 6, kCode), Ranges{{1, 6}});
  CHECK_EQ(protect(3, 4, PROT_READ | PROT_WRITE), Ranges{{1, 3}, {4, 6}});
  CHECK_EQ(protect(6, 7, kCode), Ranges{{1, 3}, {4, 7}});
  CHECK_EQ(protect(3, 4, kCode), Ranges{{1, 7}});
  CHECK_EQ(protect(0, 8, PROT_NONE), Ranges{});
  munmap(area, kPages * kPageSize);
}

}  // namespace redrive::memory_change_test
