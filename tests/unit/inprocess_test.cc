// The parts of the in-process tier: windows around syscall instructions, trampolines, cpuid in files, the table of
// calls, and restored memory.
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "base/fd.h"
#include "base/page.h"
#include "base/remote.h"
#include "checkpoint/address_space.h"
#include "interceptors/gate_calls.h"
#include "interceptors/patch_window.h"
#include "interceptors/syscall_table.h"
#include "interceptors/trap_sites.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/code/patch_plans.h"
#include "supervisor/tier/gate.h"
#include "supervisor/tier/mapped_code.h"
#include "supervisor/tier/trampoline.h"
#include "tests/unit/unit_test.h"

namespace redrive::inprocess_test {
namespace {

// Code at offset 512 of a segment of nops; its syscall instruction is at offset `site` of the code.
struct Case {
  const char* name;
  Bytes code;
  uint64_t site;
  std::optional<PatchWindow> expected;
};

// A segment around which nothing can be read.
const CodeSegment::Mapped kAlone{0, [](int64_t, std::span<uint8_t>) { return size_t{0}; }};

CodeSegment segment_of(const Bytes& code, const Bytes& end = {}) {
  Bytes segment(1024, 0x90);
  std::copy(code.begin(), code.end(), segment.begin() + 512);
  std::copy(end.begin(), end.end(), segment.end() - static_cast<int64_t>(end.size()));
  return CodeSegment(segment);
}

Bytes file_contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes((std::istreambuf_iterator<char>(file)), {});
}

}  // namespace

TEST_CASE("a window holds instructions that can move, and nothing jumps into it") {
  const Bytes compare{0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x02, 0xc3};  // cmp $-4096, %rax; ja; ret
  const Case cases[] = {
      {"cmp behind", compare, 0, PatchWindow{0, 6}},
      {"a call behind, mov in front", {0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xff, 0xd0}, 5, PatchWindow{5, 0}},
      {"mov of 7 bytes in front", {0x48, 0xc7, 0xc0, 0x27, 0, 0, 0, 0x0f, 0x05, 0xff, 0xd0}, 7, PatchWindow{7, 0}},
      {"xor in front is too short", {0x31, 0xc0, 0x0f, 0x05, 0xff, 0xd0}, 2, std::nullopt},
      {"a load behind", {0x0f, 0x05, 0x48, 0x8b, 0x07, 0xc3}, 0, PatchWindow{0, 3}},
      {"a load relative to its place", {0x0f, 0x05, 0x8b, 0x05, 1, 2, 3, 4, 0xc3}, 0, PatchWindow{0, 6, 1 << 2}},
      {"a lea behind another", {0x0f, 0x05, 0x89, 0xc2, 0x48, 0x8d, 0x15, 1, 2, 3, 4}, 0, PatchWindow{0, 9, 1 << 5}},
      {"pushes behind", {0x0f, 0x05, 0x50, 0x50, 0x50, 0xc3}, 0, PatchWindow{0, 3}},
      {"a call behind", {0x0f, 0x05, 0xe8, 0, 0, 0, 0}, 0, std::nullopt},
      {"an x87 instruction behind", {0x0f, 0x05, 0xd9, 0xe8, 0xd9, 0xe8}, 0, std::nullopt},
      {"a test and a short jump behind", {0x0f, 0x05, 0x85, 0xc0, 0x75, 0x1e, 0xc3}, 0, PatchWindow{0, 4, 0, true}},
      {"a test and a near jump behind", {0x0f, 0x05, 0x85, 0xc0, 0x0f, 0x84, 1, 2, 3, 4}, 0, PatchWindow{0, 8, 1 << 4}},
      {"an exchange of registers behind", {0x0f, 0x05, 0x48, 0x87, 0xf3, 0xc3}, 0, PatchWindow{0, 3}},
      {"a short jump to itself", {0x0f, 0x05, 0x85, 0xc0, 0x75, 0xfe, 0xc3}, 0, std::nullopt},
      {"a short jump that begins too early", {0x0f, 0x05, 0x75, 0x1e, 0x90, 0xc3}, 0, std::nullopt},
      {"a landing pad", {0x0f, 0x05, 0xf3, 0x0f, 0x1e, 0xfa, 0xc3}, 0, std::nullopt},
      {"rdtsc", {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0}, 0, PatchWindow{0, 4}},
      {"rdtsc between fences", {0x0f, 0xae, 0xe8, 0x0f, 0x31, 0x0f, 0xae, 0xe8}, 3, PatchWindow{0, 3}},
      {"rdtsc and SSE", {0x0f, 0x31, 0x66, 0x0f, 0xef, 0xc0, 0xc3}, 0, PatchWindow{0, 4}},
      {"rdtsc, ret and padding", {0x0f, 0x31, 0xc3, 0x66, 0x90, 0xc3}, 0, PatchWindow{0, 3}},
      {"rdtsc, ret and int3", {0x0f, 0x31, 0xc3, 0xcc, 0xcc, 0xc3}, 0, PatchWindow{0, 3}},
      {"rdtsc, ret and code", {0x0f, 0x31, 0xc3, 0x31, 0xc0}, 0, std::nullopt},
      {"rdtsc and a jump", {0x0f, 0x31, 0xe9, 1, 2, 3, 0}, 0, PatchWindow{0, 5, 1 << 1}},
      {"rdtscp and a short jump", {0x0f, 0x01, 0xf9, 0xeb, 0x1e}, 0, PatchWindow{0, 2, 0, true}},
      {"rdtscp and a jump to a register", {0x0f, 0x01, 0xf9, 0xff, 0xe0}, 0, PatchWindow{0, 2}},
      {"rdtscp and a call of a register", {0x0f, 0x01, 0xf9, 0xff, 0xd0}, 0, std::nullopt},
      {"rdtscp", {0x0f, 0x01, 0xf9, 0x89, 0x0c, 0x24, 0x48, 0xc1}, 0, PatchWindow{0, 3}},  // stores
      {"rdtscp that can move", {0x0f, 0x01, 0xf9, 0x48, 0xc1, 0xe2, 0x20}, 0, PatchWindow{0, 4}},
      {"rdtsc behind a mov", {0xb8, 0x27, 0, 0, 0, 0x0f, 0x31, 0xff, 0xd0}, 5, std::nullopt},
      {"no syscall instruction", {0x0f, 0x0b, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 0, std::nullopt},
      // jmp to the cmp, over the syscall: the first window may not be patched, the second may.
      {"a short jump to behind the call", {0xeb, 0x02, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 2, std::nullopt},
      {"a short jump to the call", {0xeb, 0x00, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 2, PatchWindow{0, 6}},
      {"wrpkru in front, which the disassembler does not know",
       {0x0f, 0x01, 0xef, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff},
       3,
       PatchWindow{0, 6}},
      {"a short jump to behind the call, after wrpkru",
       {0x0f, 0x01, 0xef, 0xeb, 0x02, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff},
       5,
       std::nullopt},
      {"a short jump over it", {0xeb, 0x08, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 2, PatchWindow{0, 6}},
  };
  for (const auto& [name, code, site, expected] : cases) {
    CAPTURE(name);
    const auto found = segment_of(code).window(512 + site, kAlone);
    REQUIRE(found.has_value() == expected.has_value());
    if (found) CHECK(found->before == expected->before);
    if (found) CHECK(found->after == expected->after);
    if (found) CHECK(found->displacements == expected->displacements);
    if (found) CHECK(found->ends_in_jump == expected->ends_in_jump);
  }
  // A near jump from far away, at the end of the segment, to after the call and to the call.
  const auto jump_to = [](uint64_t target) { return jump(1024 - kJumpSize, target, kJumpSize); };
  CHECK_FALSE(segment_of(compare, jump_to(514)).window(512, kAlone));
  CHECK(segment_of(compare, jump_to(512)).window(512, kAlone));
  CHECK_FALSE(segment_of(compare).window(1023, kAlone));
}

TEST_CASE("near jumps are found wherever they lie in a long segment") {
  constexpr uint64_t kSite = 512, kSize = 200000;
  const Bytes call{0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x02, 0xc3};
  const auto segment_with = [&](const Bytes& code, uint64_t place) {
    Bytes segment(kSize, 0x90);
    std::copy(call.begin(), call.end(), segment.begin() + kSite);
    std::copy(code.begin(), code.end(), segment.begin() + static_cast<ptrdiff_t>(place));
    return CodeSegment(std::move(segment));
  };
  // Code is read in pieces of 64 KiB.
  for (const uint64_t near : {uint64_t{0x10000}, uint64_t{0x20000}, kSize - 8}) {
    for (uint64_t place = near - 8; place < near + 3; ++place) {
      CAPTURE(place);
      CHECK_FALSE(segment_with(jump(place, kSite + 2, kJumpSize), place).window(kSite, kAlone));
      CHECK(segment_with(jump(place, kSite, kJumpSize), place).window(kSite, kAlone));
      Bytes conditional{0x0f, 0x84, 0, 0, 0, 0};
      const auto distance = static_cast<int32_t>(kSite + 2 - (place + conditional.size()));
      std::memcpy(&conditional[2], &distance, sizeof distance);
      if (place + conditional.size() <= kSize) CHECK_FALSE(segment_with(conditional, place).window(kSite, kAlone));
    }
  }
  // Code that cannot be read may do anything.
  Bytes readable(1024, 0x90);
  std::copy(call.begin(), call.end(), readable.begin() + kSite);
  const auto read = [&](uint64_t offset, std::span<uint8_t> to) {
    const size_t size = std::min<uint64_t>(to.size(), readable.size() - std::min<uint64_t>(offset, readable.size()));
    std::copy_n(readable.begin() + static_cast<ptrdiff_t>(offset), size, to.begin());
    return size;
  };
  CHECK(CodeSegment(readable.size(), read).window(kSite, kAlone));
  CHECK_FALSE(CodeSegment(readable.size() + 1, read).window(kSite, kAlone));
}

TEST_CASE("mapped code is what the file holds and the process has changed, as it was before it is patched") {
  constexpr uint64_t kSite = 512, kPages = 40;
  const Bytes call{0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x02, 0xc3};
  Bytes contents(kPages * kPageSize - 100, 0x90);
  for (uint64_t page = 0; page + 1 < kPages; ++page) {
    std::copy(call.begin(), call.end(), contents.begin() + static_cast<ptrdiff_t>(page * kPageSize + kSite));
  }
  char path[] = "/tmp/redrive-code-XXXXXX";
  const Fd file(mkostemp(path, O_CLOEXEC));
  REQUIRE_EQ(write(file.get(), contents.data(), contents.size()), static_cast<ssize_t>(contents.size()));
  const uint64_t length = (kPages + 3) * kPageSize;  // longer than the file
  void* const mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
  REQUIRE_NE(mapped, MAP_FAILED);
  auto* const code = static_cast<uint8_t*>(mapped);
  // The program has changed two pages: in one, a jump leads into the window of page 2; the other has no call.
  const uint64_t into = 2 * kPageSize + kSite + 2, from = 20 * kPageSize;
  const Bytes jumping = jump(from, into, kJumpSize);
  std::copy(jumping.begin(), jumping.end(), code + from);
  std::fill_n(code + 5 * kPageSize + kSite, call.size(), 0x90);

  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto mappings = read_mappings(getpid());
  REQUIRE(mappings);
  const Mapping* const found = mapping_at(*mappings, reinterpret_cast<Address>(mapped));
  REQUIRE(found);
  Mapping mapping = *found;
  SUBCASE("from the file") {}
  SUBCASE("from memory, if the file is not found") { ++mapping.inode; }
  const CodeSegment segment = mapped_code(*memory, mapping);
  std::fill_n(code + kPageSize, kPageSize, 0xcc);  // what is written later is not seen
  const auto has_window = [&](uint64_t page) { return segment.window(page * kPageSize + kSite, kAlone).has_value(); };
  CHECK(has_window(0));
  CHECK(has_window(1));
  CHECK_FALSE(has_window(2));
  CHECK(has_window(3));
  CHECK_FALSE(has_window(5));
  CHECK_FALSE(has_window(kPages - 1));
  CHECK_FALSE(has_window(kPages + 1));
  munmap(mapped, length);
  unlink(path);
}

TEST_CASE("a place's window may end in any short jump, to its own start too") {
  const std::pair<Bytes, bool> cases[] = {{{0x48, 0xff, 0xc0, 0xeb, 0xfb}, true},   // inc %rax; jmp to it
                                          {{0x48, 0xff, 0xc0, 0xe2, 0xfb}, true},   // loop
                                          {{0x48, 0xff, 0xc0, 0x75, 0xfb}, true},   // jne
                                          {{0x48, 0xff, 0xc0, 0xeb, 0xfe}, false},  // jmp to itself, within the window
                                          {{0xeb, 0xfe, 0x90, 0x90, 0x90}, false},
                                          {{0xe2, 0xfe, 0x90, 0x90, 0x90}, false}};
  for (const auto& [code, expected] : cases) {
    const auto found = segment_of(code).window_at(512, kAlone);
    REQUIRE(found.has_value() == expected);
    if (found) CHECK(found->after == code.size());
    if (found) CHECK(found->ends_in_jump);
  }
}

TEST_CASE("a window holds no instruction to which a table leads") {
  constexpr uint64_t kStart = 0x400000;
  const Bytes two{0x4c, 0x03, 0x4b, 0x10, 0x48, 0x8b, 0x85, 0x70, 0xff, 0xff, 0xff};  // add; mov
  constexpr uint64_t kSecond = 4;
  // Whether there is a window right after the jump, which comes after the code. The jump's table, at 2048, leads to
  // that place, to after it, and to the start of the segment; the table's end is not a place in the code.
  const auto mapped = [&](uint64_t place, bool distances, uint64_t entry) {
    return CodeSegment::Mapped{
        kStart, [=](int64_t offset, std::span<uint8_t> to) -> size_t {
          if (offset != 2048) return 0;
          const int64_t targets[] = {0, static_cast<int64_t>(place), static_cast<int64_t>(place + entry), -1};
          size_t size = 0;
          for (const int64_t target : targets) {
            const int64_t value = distances ? target - 2048 : target + static_cast<int64_t>(kStart);
            const size_t length = distances ? sizeof(int32_t) : sizeof value;
            std::memcpy(&to[size], &value, length);
            size += length;
          }
          return size;
        }};
  };
  const auto behind = [&](Bytes code, const Bytes& jump, bool distances, uint64_t entry) {
    code.insert(code.end(), jump.begin(), jump.end());
    const uint64_t place = 512 + code.size();
    code.insert(code.end(), two.begin(), two.end());
    return segment_of(code).window_at(place, mapped(place, distances, entry)).has_value();
  };
  const auto lea = [](uint8_t rex, uint8_t reg, int32_t place = 512) {  // of the table
    Bytes code{rex, 0x8d, static_cast<uint8_t>(reg << 3 | 5), 0, 0, 0, 0};
    const int32_t distance = 2048 - (place + 7);
    std::memcpy(&code[3], &distance, sizeof distance);
    return code;
  };
  const int32_t absolute = kStart + 2048;
  Bytes by_absolute{0x42, 0xff, 0x24, 0xed, 0, 0, 0, 0};  // jmp *table(,%r13,8)
  std::memcpy(&by_absolute[4], &absolute, sizeof absolute);
  struct Case {
    Bytes before, jump;
    bool distances;
  };
  const Case cases[] = {
      {lea(0x48, 6), {0x4a, 0x63, 0x04, 0xae, 0x48, 0x01, 0xf0, 0xff, 0xe0}, true},  // movslq (%rsi,%r13,4); add; jmp
      {lea(0x48, 6), {0x4a, 0x63, 0x04, 0xae, 0x48, 0x01, 0xf0, 0x3e, 0xff, 0xe0}, true},  // notrack jmp
      {lea(0x4c, 5), {0x49, 0x63, 0x44, 0x85, 0, 0x4c, 0x01, 0xe8, 0xff, 0xe0}, true},     // movslq 0(%r13,%rax,4)
      {lea(0x48, 5), {0x48, 0x63, 0x84, 0x85, 0, 0, 0, 0, 0x48, 0x01, 0xe8, 0xff, 0xe0}, true},
      {lea(0x4c, 4), {0x49, 0x8b, 0x04, 0xc4, 0xff, 0xe0}, false},  // mov (%r12,%rax,8); jmp
      {lea(0x4c, 4), {0x41, 0xff, 0x24, 0xc4}, false},              // jmp *(%r12,%rax,8)
      {{}, by_absolute, false},
  };
  for (const auto& [before, jump, distances] : cases) {
    CAPTURE(jump.size());
    CHECK(behind(before, jump, distances, two.size()));
    CHECK_FALSE(behind(before, jump, distances, kSecond));
    if (!before.empty()) CHECK_FALSE(behind({}, jump, distances, two.size()));  // the table is not known
  }
  // movslq 4(%r13,%rax,4)
  CHECK_FALSE(behind(lea(0x4c, 5), {0x49, 0x63, 0x44, 0x85, 4, 0x4c, 0x01, 0xe8, 0xff, 0xe0}, true, two.size()));
  CHECK(behind({}, {0xff, 0xe0}, true, kSecond));              // jmp *%rax, without a table
  CHECK(behind({}, {0xff, 0x25, 1, 2, 3, 4}, true, kSecond));  // jmp *there(%rip)
  // call; movl $0, %fs:-32: ff 64 c7 04 would be jmp *4(%rdi,%rax,8)
  CHECK(behind({0xe8, 0x24, 0xda, 0xff, 0xff}, {0x64, 0xc7, 0x04, 0x25, 0xe0, 0xff, 0xff, 0xff, 0, 0, 0, 0}, true,
               kSecond));

  // Instructions that make events; the jump is at the segment's end.
  Bytes jump = lea(0x48, 6, 1024 - 16);
  jump.insert(jump.end(), {0x4a, 0x63, 0x04, 0xae, 0x48, 0x01, 0xf0, 0xff, 0xe0});
  const Bytes call{0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff};  // syscall; cmp
  CHECK(segment_of(call, jump).window(512, mapped(512, true, 0)));
  CHECK_FALSE(segment_of(call, jump).window(512, mapped(512, true, 2)));
  const Bytes numbered{0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff};  // mov; syscall; cmp
  const auto in_front = segment_of(numbered, jump).window(512 + 5, mapped(512, true, 7));
  REQUIRE(in_front);
  CHECK(in_front->before == 5);
  const Bytes counter{0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20};  // rdtsc; shl
  CHECK(segment_of(counter, jump).counter_window(512, 2, mapped(512, true, 0)));
  CHECK_FALSE(segment_of(counter, jump).counter_window(512, 2, mapped(512, true, 2)));
  // With a prefix it ends elsewhere.
  CHECK_FALSE(segment_of({0x48, 0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20}).counter_window(512, 2, kAlone));
  const Bytes cpuid{0xb8, 0x0d, 0, 0, 0, 0x31, 0xc9, 0x0f, 0x0b, 0xff, 0xd0};  // mov; xor; ud2; call *%rax
  CHECK(segment_of(cpuid, jump).window(512 + 7, {2, 5}, mapped(512, true, 7)));
  CHECK_FALSE(segment_of(cpuid, jump).window(512 + 7, {2, 5}, mapped(512, true, 5)));
}

TEST_CASE("a window in front of cpuid holds whole instructions that can move") {
  // mov; mov $13, %eax; xor; ud2; call *%rax
  const Bytes code{0x89, 0xc6, 0xb8, 0x0d, 0, 0, 0, 0x31, 0xc9, 0x0f, 0x0b, 0xff, 0xd0};
  const auto segment = segment_of(code);
  const auto in_front = [&](std::vector<uint8_t> front) { return segment.window(512 + 9, front, kAlone); };
  REQUIRE(in_front({2, 5, 2}));
  CHECK(in_front({2, 5, 2})->before == 7);
  CHECK(in_front({2, 5, 2})->after == 0);
  CHECK_FALSE(in_front({2}));     // too short
  CHECK_FALSE(in_front({}));      // not known
  CHECK_FALSE(in_front({2, 4}));  // not where instructions begin
  CHECK_FALSE(segment_of({0x89, 0x06, 0xb8, 0x0d, 0, 0x0f, 0x0b, 0xff, 0xd0}).window(512 + 5, {5, 2}, kAlone));
  // Jumps: to the xor, and to cpuid itself.
  const auto jump_to = [](uint64_t target) { return jump(1024 - kJumpSize, target, kJumpSize); };
  CHECK_FALSE(segment_of(code, jump_to(512 + 7)).window(512 + 9, {2, 5, 2}, kAlone));
  CHECK(segment_of(code, jump_to(512 + 9)).window(512 + 9, {2, 5, 2}, kAlone));
  // Behind it: mov $1, %edi.
  const auto behind = segment_of({0x0f, 0x0b, 0xbf, 1, 0, 0, 0, 0xc3}).window(512, {}, kAlone);
  REQUIRE(behind);
  CHECK(behind->after == 5);
}

TEST_CASE("sites are patched if they hold what is expected, and give their trampolines back") {
  auto arena = GateArena::make();
  if (!arena) return;
  constexpr uint64_t kSize = kPageSize + kTrampolinesSize;
  auto* const code = static_cast<uint8_t*>(
      mmap(nullptr, kSize, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(code != MAP_FAILED);
  const auto start = reinterpret_cast<Address>(code);
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const Bytes window{0x0f, 0x05, 0x90, 0x90, 0x90};
  const auto write = [&](uint64_t at, const Bytes& bytes) { std::memcpy(code + at, bytes.data(), bytes.size()); };
  for (const uint64_t at : {0, 64, 2048}) write(at, window);
  write(128, {0x0f, 0x05, 0x83, 0xc0, 0x01});
  Gate gate(**arena);
  gate.patch(*memory, {{start, {0, 3}, window}});
  CHECK(gate.sites.empty());  // no trampolines
  gate.add_trampolines(*memory, start + kPageSize);
  gate.patch(*memory, {{start, {0, 3}, window},
                       {start + 64, {0, 3}, {}},
                       {start + 66, {0, 3}, {}},       // overlaps
                       {start + 128, {0, 3}, window},  // another version of the file
                       {start + 2048, {0, 3}, window}});
  CHECK(gate.sites.size() == 3);
  for (const uint64_t at : {0, 64, 2048}) {
    const PatchedSite* site = gate.patched(start + at);
    REQUIRE(site);
    CHECK(site->original == window);
    CHECK(code[at] == 0xe9);
    CHECK(gate.canonical(site->stop) == start + at);
    CHECK(gate.physical(start + at + kSyscallSize) == site->stop + kSyscallSize);
    CHECK(gate.canonical(site->moved + 1) == start + at + kSyscallSize + 1);
    CHECK(gate.physical(start + at + kSyscallSize + 1) == site->moved + 1);
    CHECK(gate.canonical(site->moved + 3) == site->moved + 3);  // the jump back
    user_regs_struct regs{};
    regs.rip = regs.rcx = site->stop + kSyscallSize;
    gate.make_canonical(regs);
    CHECK(regs.rip == start + at + kSyscallSize);
    CHECK(regs.rcx == regs.rip);
    regs.rip = site->stop + kSyscallSize;
    regs.rcx = 17;
    gate.make_canonical(regs);
    CHECK(regs.rcx == 17);
  }
  CHECK(code[128 + 2] == 0x83);
  CHECK(code[200] == 0);
  gate.patch(*memory, {{start + 3, {0, 3}, {}}});  // overlaps what is patched already
  CHECK(gate.sites.size() == 3);
  const auto used = gate.trampolines.front().used.count();
  gate.forget(start, start + 128);
  CHECK(gate.sites.size() == 1);
  CHECK(gate.trampolines.front().used.count() == used - 2);
  munmap(code, kSize);
}

TEST_CASE("what was learnt of a file's sites is of that version and that segment") {
  PatchPlans plans;
  const MappedFile file{"/lib/x", {1, 2, 3, 4, 5}};
  MappedFile later = file;
  later.version.changed_ns = 6;
  Bytes code(kPageSize, 0x90);
  const Bytes site{0x0f, 0x05, 0x90, 0x90, 0x90, 0xc3};
  std::copy(site.begin(), site.end(), code.begin() + 64);
  Mapping mapping;
  mapping.start = reinterpret_cast<Address>(code.data());
  mapping.end = mapping.start + code.size();
  mapping.offset = 0x3000;
  mapping.inode = 2;
  mapping.protection = PROT_READ | PROT_EXEC;
  mapping.name = "/lib/x";
  CodePlan& plan = plans.of(file, mapping);
  CodeSite& known = plan.site(64);
  CHECK(known.offset == 0x3040);
  CHECK_FALSE(known.stopped());
  CHECK(known.stopped());
  for (const SiteKind kind : {SiteKind::cpuid, SiteKind::rdtsc, SiteKind::rdtscp}) {
    CodeSite first;
    first.kind = kind;
    CHECK(first.stopped());
    first.examined = true;
    CHECK_FALSE(first.stopped());
  }
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  REQUIRE(plan.examine(known, *memory, mapping));
  CHECK(plan.ready(mapping.start, nullptr).empty());  // not patched anywhere
  known.original.assign(site.begin(), site.begin() + 5);
  CHECK_FALSE(plan.examine(plan.site(128), *memory, mapping));
  const auto ready = plans.of(file, mapping).ready(0x10000, nullptr);
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].patch.site == 0x10040);
  CHECK(ready[0].patch.original == known.original);
  CHECK(plans.of(later, mapping).ready(0x10000, nullptr).empty());
  mapping.offset = 0x4000;
  CHECK(plans.of(file, mapping).ready(0x10000, nullptr).empty());
  plan.site(256).stops = 7;
  const auto worst = plans.worst(1);
  REQUIRE(worst.size() == 1);
  CHECK(worst[0].site->stops == 7);
  CHECK(plans.worst(9).size() == 2);
  mapping.shared = true;
  CHECK_FALSE(PatchPlans::is_code(mapping));
}

TEST_CASE("memory is written in pieces, and read as it was at a moment") {
  auto* const pages =
      static_cast<uint8_t*>(mmap(nullptr, 4 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  std::memset(pages, 7, 3 * kPageSize);
  munmap(pages + 3 * kPageSize, kPageSize);
  mprotect(pages, kPageSize, PROT_READ);
  const auto start = reinterpret_cast<Address>(pages);
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  Bytes one{1, 1}, two{2, 2};
  const MemoryPiece pieces[] = {
      {start + 1, one.data(), 2}, {start + 4000, two.data(), 2}, {start + 8192, one.data(), 2}};
  CHECK(memory->patch(pieces));
  CHECK(pages[0] == 7);
  CHECK(pages[1] == 1);
  CHECK(pages[3] == 7);
  CHECK(pages[4001] == 2);
  CHECK(pages[4002] == 7);
  CHECK(pages[8193] == 1);
  const MemoryPiece beyond[] = {{start + 3 * kPageSize, one.data(), 2}};
  CHECK_FALSE(memory->patch(beyond));

  const Memory then = Memory::snapshot(*memory);
  uint8_t found[2 * kPageSize] = {};
  REQUIRE(then.read(start + 1, found, 2));
  CHECK(found[0] == 1);
  pages[kPageSize] = 3;
  memory->write(start + 2, two.data(), 1);
  REQUIRE(then.read(start + 1, found, 2));
  CHECK(found[1] == 1);  // as it was
  REQUIRE(then.read(start + kPageSize - 1, found, 2));
  CHECK(found[1] == 3);
  REQUIRE(then.read(start + kPageSize / 2, found, 2 * kPageSize));
  CHECK(then.read_some(start + 3 * kPageSize - 10, found, 20) == 10);
  CHECK_FALSE(then.read(start + 3 * kPageSize, found, 1));
  munmap(pages, 3 * kPageSize);
}

TEST_CASE("places that lie close together are read and written in one stretch") {
  auto* const pages =
      static_cast<uint8_t*>(mmap(nullptr, 4 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  std::memset(pages, 7, 4 * kPageSize);
  const auto start = reinterpret_cast<Address>(pages);
  REQUIRE(munmap(pages + 2 * kPageSize, kPageSize) == 0);
  const auto opened = Memory::open(getpid());
  REQUIRE(opened);
  const Memory memory = Memory::shared(getpid(), *opened);
  uint8_t ones[] = {1, 1};
  const std::vector<MemoryPiece> pieces{{start + 10, ones, 2},
                                        {start + 100, ones, 2},
                                        {start + kPageSize + 100, ones, 2},
                                        {start + 2 * kPageSize + 200, ones, 2},  // not mapped
                                        {start + 3 * kPageSize + 300, ones, 2}};
  const auto found = memory.stretches(pieces);
  REQUIRE(found.size() == 3);
  CHECK(found[0].start == start + 10);
  CHECK(found[0].bytes == Bytes(92, 7));
  CHECK(found[2].start == start + 3 * kPageSize + 300);
  CHECK_FALSE(memory.patch(pieces));
  CHECK((pages[10] == 1 && pages[11] == 1 && pages[12] == 7 && pages[101] == 1));
  CHECK((pages[kPageSize + 100] == 1 && pages[3 * kPageSize + 301] == 1));
  CHECK(memory.patch(std::span(pieces).first(3)));
  CHECK(memory.stretches({}).empty());
  munmap(pages, 2 * kPageSize);
  munmap(pages + 3 * kPageSize, kPageSize);
}

TEST_CASE("a trampoline executes what was moved, and its calls return to what follows") {
  // mov $39, %eax; [syscall]; add one(%rip), %eax; ret. The trampoline's own syscall is executed (without a gate: its
  // jump leads there).
  auto* const page = static_cast<uint8_t*>(
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(page != MAP_FAILED);
  const auto base = reinterpret_cast<Address>(page);
  const uint8_t before = 5, after = 6;
  const Bytes original{0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0x03, 0x05, 128 - 13, 0, 0, 0};
  const Bytes rest{0xc3};  // ret
  const Address at = base + 512, pointer = base + 256;
  const uint32_t one = 1;
  std::memcpy(page + 128, &one, sizeof one);
  PatchedSite site{base + before, base, original, 0, 0};
  const Bytes code = trampoline(at, pointer, {before, after, 1 << 2}, site);
  REQUIRE(!code.empty());
  std::memcpy(page + 512, code.data(), code.size());
  std::memcpy(page + 256, &site.stop, sizeof site.stop);
  const Bytes entry = jump(base, at, original.size());
  std::memcpy(page, entry.data(), entry.size());
  std::memcpy(page + entry.size(), rest.data(), rest.size());
  CHECK(page[site.stop - base] == 0x0f);
  CHECK(page[site.stop - base + 1] == 0x05);
  CHECK(page[site.moved - base] == 0x03);
  CHECK(site.moved_size() == after);
  int result = 0;
  uint64_t rcx = 0;
  asm volatile("call *%2" : "=a"(result), "=&c"(rcx) : "r"(page) : "r11", "memory", "cc");
  CHECK(result == getpid() + 1);
  CHECK(rcx == site.behind());
  munmap(page, kPageSize);
  PatchedSite far{base, base, {0x0f, 0x05, 0x03, 0x05, 0, 0, 0, 0x80}, 0, 0};
  CHECK(trampoline(at, pointer, {0, 6, 1 << 2}, far).empty());  // 2 GiB below the page, from behind it
}

TEST_CASE("an instruction of a loop is preceded by the jump to the tier, and moved whole") {
  // again: [add one(%rip), %eax]; pause; cmp $3, %eax; jne again; ret
  auto* const page = static_cast<uint8_t*>(
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(page != MAP_FAILED);
  const auto base = reinterpret_cast<Address>(page);
  const Bytes program{0x03, 0x05, 128 - 6, 0, 0, 0, 0xf3, 0x90, 0x83, 0xf8, 3, 0x75, 0xf3, 0xc3};
  std::memcpy(page, program.data(), program.size());
  const uint32_t one = 1;
  std::memcpy(page + 128, &one, sizeof one);
  const Address at = base + 512, pointer = base + 256;
  PatchedSite site{base, base, Bytes(program.begin(), program.begin() + 6), 0, 0, SiteKind::pausing};
  const Bytes code = trampoline(at, pointer, {0, 6, 1 << 2}, site);
  REQUIRE(!code.empty());
  CHECK_EQ(site.stop, site.moved);
  CHECK_EQ(site.moved_size(), 6);
  // Here the tier counts, takes rcx from its slot, as it has to, and goes on at the moved instruction.
  const Address saved = gate::kSlot + offsetof(gate::Slot, regs.rcx);
  const uint8_t* const saves = code.data();  // mov %rcx, saved
  CHECK(std::equal(saves, saves + 4, std::begin({0x48, 0x89, 0x0c, 0x25})));
  uint32_t where = 0;
  std::memcpy(&where, saves + 4, sizeof where);
  CHECK_EQ(where, saved);
  constexpr size_t kSaves = 8;
  std::memcpy(page + 512, code.data(), code.size());
  std::memset(page + 512, 0x90, kSaves);                    // nothing is mapped there
  const Bytes tier{0xff, 0x05, 0x7a, 0, 0, 0, 0xff, 0xe1};  // incl 128(%rip); jmp *%rcx
  std::memcpy(page + 1024, tier.data(), tier.size());
  const Address entry = base + 1024;
  std::memcpy(page + 256, &entry, sizeof entry);
  const Bytes leads = jump(base, at, site.original.size());
  std::memcpy(page, leads.data(), leads.size());
  int result = 0;
  asm volatile("call *%1" : "+a"(result) : "r"(page) : "rcx", "memory", "cc");
  CHECK_EQ(result, 3);
  uint32_t times = 0;
  std::memcpy(&times, page + 1024 + 128, sizeof times);
  CHECK_EQ(times, 3);
  munmap(page, kPageSize);
}

TEST_CASE("a short jump that was moved leads where it led") {
  // mov $39, %eax; [syscall]; test %edi, %edi; jne over; mov $1, %eax; ret; over: mov $2, %eax; ret
  auto* const page = static_cast<uint8_t*>(
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(page != MAP_FAILED);
  const auto base = reinterpret_cast<Address>(page);
  const Bytes program{0xb8, 0x27, 0, 0, 0,    0x0f, 0x05, 0x85, 0xff, 0x75, 0x06, 0xb8,
                      1,    0,    0, 0, 0xc3, 0xb8, 2,    0,    0,    0,    0xc3};
  std::memcpy(page, program.data(), program.size());
  const Address at = base + 512, pointer = base + 256;
  PatchedSite site{base + 5, base + 5, Bytes(program.begin() + 5, program.begin() + 11), 0, 0};
  const Bytes code = trampoline(at, pointer, {0, 4, 0, true}, site);
  REQUIRE(!code.empty());
  std::memcpy(page + 512, code.data(), code.size());
  std::memcpy(page + 256, &site.stop, sizeof site.stop);
  const Bytes entry = jump(site.start, at, site.original.size());
  std::memcpy(page + 5, entry.data(), entry.size());
  for (const int taken : {0, 1}) {
    int result = 0;
    asm volatile("call *%1" : "=a"(result) : "r"(page), "D"(taken) : "rcx", "r11", "memory", "cc");
    CHECK(result == 1 + taken);
  }
  munmap(page, kPageSize);
}

TEST_CASE("cpuid is asked by leaf, and by subleaf where there are any") {
  CpuidAnswers answers;
  const auto ask = [&](uint32_t leaf, uint32_t subleaf) {
    user_regs_struct regs{};
    regs.rax = leaf;
    regs.rcx = subleaf;
    const auto question = cpuid_question(regs);
    const bool known = answers.has(question);
    answer(cpuid_instruction(), regs, answers);
    CHECK(answers.has(question));
    return known;
  };
  for (const uint32_t leaf : {0u, 1u, 2u, 0x80000000u, 0x80000008u}) {
    CAPTURE(leaf);
    CHECK_FALSE(ask(leaf, 0));
    CHECK(ask(leaf, 0xffffe4e0));
  }
  for (const uint32_t leaf : {4u, 7u, 0xdu, 0x14u, 0x8000001du, 0x40000000u}) {
    CAPTURE(leaf);
    CHECK_FALSE(ask(leaf, 0));
    CHECK_FALSE(ask(leaf, 1));
    CHECK(ask(leaf, 1));
  }
}

TEST_CASE("cpuid, rdtsc and rdtscp are found where a file proves that they are instructions") {
  const Bytes linker = file_contents("/lib64/ld-linux-x86-64.so.2");
  constexpr ProcessorTraps kNone{.counter = false, .cpuid = false};
  const auto sites = trap_sites(linker, kNone);
  CHECK(sites.size() > 5);
  std::set<int32_t> found;
  for (const auto& site : sites) {
    uint8_t code[3];
    std::copy_n(&linker[site.offset], sizeof code, code);
    const auto instruction = decode_trapped(code);
    REQUIRE(instruction);
    CHECK_EQ(instruction->instruction, site.instruction);
    found.insert(site.instruction);
  }
  CHECK(found.contains(0));  // rdtsc
  CHECK(found.contains(2));  // cpuid
  // Only those that do not trap.
  const auto only = [&](ProcessorTraps traps) {
    std::set<int32_t> instructions;
    for (const auto& site : trap_sites(linker, traps)) instructions.insert(site.instruction);
    return instructions;
  };
  CHECK(only({.counter = true, .cpuid = false}) == std::set<int32_t>{2});
  CHECK(only({.counter = false, .cpuid = true}) == std::set<int32_t>{0});
  CHECK(only({.counter = true, .cpuid = true}).empty());
  CHECK(trap_sites({}, kNone).empty());
  CHECK(trap_sites(Bytes(4096, 0xa2), kNone).empty());
  // Damaged files: nothing out of bounds, and no more than there is.
  uint64_t random = 1;
  for (int round = 0; round < 200; ++round) {
    Bytes damaged(linker.begin(), linker.begin() + static_cast<int64_t>(random % linker.size()));
    for (int flip = 0; flip < 20 && !damaged.empty(); ++flip) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      damaged[(random >> 20) % std::min<size_t>(damaged.size(), round % 2 ? 4096 : damaged.size())] ^=
          static_cast<uint8_t>(random >> 56);
    }
    for (const auto& site : trap_sites(damaged, kNone)) REQUIRE(site.offset + 1 < damaged.size());
  }
}

// A binary without .eh_frame as Go's linker makes it: two functions in .text; the second one contains cpuid, and bytes
// in the constant of a mov that look like cpuid.
TEST_CASE("cpuid instructions of Go binaries") {
  constexpr uint64_t kText = 0x401000;
  const Bytes code = {0x90, 0x90, 0x90, 0xc3,                           // nop, nop, nop, ret
                      0xb8, 0x0f, 0xa2, 0x0f, 0xa2, 0x0f, 0xa2, 0xc3};  // mov eax, 0xa20fa20f; cpuid; ret
  const char names[] = "\0.text\0.gopclntab\0.shstrtab";
  constexpr size_t kCodeAt = 512, kTableAt = 1024, kNamesAt = 2048, kSectionsAt = 3072;
  const auto binary = [&](uint32_t magic, uint64_t text) {
    Bytes file(4096, 0);
    const auto put = [&](size_t at, const auto& value) { std::memcpy(file.data() + at, &value, sizeof value); };
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = EM_X86_64;
    header.e_phoff = sizeof header, header.e_phnum = 1;
    header.e_shoff = kSectionsAt, header.e_shnum = 3, header.e_shstrndx = 2;
    put(0, header);
    put(sizeof header, Elf64_Phdr{PT_LOAD, PF_X, kCodeAt, kText, kText, code.size(), code.size(), 4096});
    put(kSectionsAt, Elf64_Shdr{1, SHT_PROGBITS, SHF_EXECINSTR, kText, kCodeAt, code.size(), 0, 0, 1, 0});
    put(kSectionsAt + sizeof(Elf64_Shdr), Elf64_Shdr{7, SHT_PROGBITS, 0, 0, kTableAt, 256, 0, 0, 1, 0});
    put(kSectionsAt + 2 * sizeof(Elf64_Shdr), Elf64_Shdr{18, SHT_STRTAB, 0, 0, kNamesAt, sizeof names, 0, 0, 1, 0});
    put(kNamesAt, names);
    std::copy(code.begin(), code.end(), file.begin() + kCodeAt);
    put(kTableAt, magic);
    file[kTableAt + 6] = 1, file[kTableAt + 7] = 8;
    const uint64_t words[] = {2, 0, text, 0, 0, 0, 0, 72};  // functions, ... where the first is, ... where the table is
    put(kTableAt + 8, words);
    const uint32_t table[] = {0, 0, 4, 0, 12, 0};
    put(kTableAt + 72, table);
    return file;
  };
  for (const uint32_t magic : {0xfffffff1, 0xfffffff0}) {
    const auto sites = trap_sites(binary(magic, kText), {.counter = false, .cpuid = false});
    REQUIRE(sites.size() == 1);
    CHECK(sites[0].offset == kCodeAt + 9);
  }
  CHECK(trap_sites(binary(0xfffffffb, kText), {.counter = false, .cpuid = false}).empty());  // another layout
  CHECK(trap_sites(binary(0xfffffff1, 0), {.counter = false, .cpuid = false}).empty());      // position-independent
}

TEST_CASE("files whose mappings are served, up to as many as there are places") {
  auto made = GateArena::make();
  if (!made) return;  // not available on this processor
  GateArena& arena = **made;
  FileVersion file{1, 2, 3, 4, 5};
  const auto place = arena.add_file(file, gate::MappedCode::unknown);
  REQUIRE(place);
  CHECK(arena.add_file(file, gate::MappedCode::plain) == place);
  FileVersion newer = file;
  newer.changed_ns = 6;
  CHECK(arena.add_file(newer, gate::MappedCode::unknown) != place);
  std::set<uint32_t> places;
  for (uint64_t inode = 100; inode < 100 + 2 * gate::kKnownFiles; ++inode) {
    file.inode = inode;
    if (const auto next = arena.add_file(file, gate::MappedCode::unknown)) places.insert(*next);
  }
  CHECK(places.size() > gate::kKnownFiles / 2);
  CHECK(places.size() < gate::kKnownFiles - 2);
  CHECK(arena.add_file(newer, gate::MappedCode::unknown));
}

TEST_CASE("the table of calls follows the syscall table") {
  const auto table = std::make_unique<gate::Table>();
  fill_gate_table(*table);
  const auto follows = [](const gate::Call& call, const SyscallRow& row) {
    CAPTURE(row.name);
    CHECK((call.serve != gate::Serve::never) == row.in_process);
    if (call.serve == gate::Serve::never) return;
    CHECK((call.serve == gate::Serve::sleeps) == row.may_block);
    CHECK(call.send == (row.traffic == Traffic::send));
    CHECK(call.memory == row.memory);
    CHECK(call.refusal == (row.treat == Treat::refuse ? row.refusal : 0));
    CHECK(row.selector < 0);
  };
  for (const SyscallRow& row : all_rows()) follows(table->calls[row.number], row);
  for (const SyscallRow* row : all_commands()) {
    const gate::Call& multiplexer = table->calls[row->number];
    const auto* first = table->command_numbers + multiplexer.first_command;
    const auto* found = std::find(first, first + multiplexer.commands, static_cast<uint32_t>(row->command));
    REQUIRE((found != first + multiplexer.commands) == row->in_process);
    if (row->in_process) follows(table->commands[found - table->command_numbers], *row);
    CHECK(std::is_sorted(first, first + multiplexer.commands));
  }
}

TEST_CASE("memory as it was: later pieces first, nothing else") {
  const uint8_t early[] = {1, 2, 3, 4, 5, 6}, late[] = {9, 9};
  const std::vector<Memory::Piece> pieces{{0x1000, early}, {0x1002, late}};
  const Memory memory = Memory::of(pieces);
  uint8_t bytes[8] = {};
  CHECK(memory.read_some(0x1000, bytes, sizeof bytes) == 6);
  const uint8_t expected[] = {1, 2, 9, 9, 5, 6};
  CHECK(std::memcmp(bytes, expected, sizeof expected) == 0);
  CHECK_FALSE(memory.read(0xfff, bytes, 2));
  CHECK_FALSE(memory.read(0x1005, bytes, 2));
  CHECK(Memory::of({}).read_some(0x1000, bytes, 1) == 0);
}

}  // namespace redrive::inprocess_test
