// Which memory a recorded call changed, and whether that is code.
#include "supervisor/replay/memory_change.h"

#include <sys/mman.h>

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
  const std::vector<Mapping> code{mapping(0x4000, 0x5000), mapping(0x8000, 0x9000)};
  CHECK(overlap({{0x3000, 0x4001}}, code));
  CHECK(overlap({{0x1000, 0x2000}, {0x8fff, 0xa000}}, code));
  CHECK_FALSE(overlap({{0x3000, 0x4000}, {0x5000, 0x8000}}, code));
  CHECK_FALSE(overlap({}, code));
}

}  // namespace redrive::memory_change_test
