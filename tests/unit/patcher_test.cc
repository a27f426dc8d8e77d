// Which instructions are replaced, in code that this process has mapped, and does not run.
#include "supervisor/record/code/patcher.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/address_space.h"
#include "tests/unit/unit_test.h"

namespace redrive::patcher_test {

// In the program's own file, and never executed.
extern "C" const uint8_t redrive_test_own_call[];
asm(".pushsection .text\n"
    ".balign 64\n"
    "redrive_test_own_call:\n"
    "syscall\n"
    "cmp $-4096, %rax\n"
    "ret\n"
    ".popsection\n");

namespace {

constexpr uint64_t kSite = 0x200;

// A file of code, which has one syscall instruction.
struct CodeOnDisk {
  CodeOnDisk() {
    file = Fd(mkstemp(path));
    REQUIRE(file);
    Bytes code(kPageSize, 0x90);
    const Bytes call{0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0xc3};  // cmp $-4096, %rax; ret
    std::copy(call.begin(), call.end(), code.begin() + kSite);
    REQUIRE_EQ(write(file.get(), code.data(), code.size()), static_cast<ssize_t>(code.size()));
  }
  ~CodeOnDisk() { unlink(path); }

  char path[32] = "/tmp/redrive-patcher-XXXXXX";
  Fd file;
};

// An address space that has it mapped, as far as the patcher sees.
struct Space {
  explicit Space(const CodeOnDisk& code)
      : start(reinterpret_cast<Address>(
            mmap(nullptr, kPageSize, PROT_READ | PROT_EXEC, MAP_PRIVATE, code.file.get(), 0))) {
    auto opened = Memory::open(getpid());
    REQUIRE(opened);
    memory = std::move(*opened);
    const auto mappings = read_mappings(getpid());
    const auto gap = Gate::gap_near(ranges_of(*mappings), start);
    REQUIRE(gap);
    trampolines = mmap(reinterpret_cast<void*>(*gap), kTrampolinesSize, PROT_READ | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(trampolines != MAP_FAILED);
    gate.add_trampolines(memory, *gap);
  }
  ~Space() {
    munmap(reinterpret_cast<void*>(start), kPageSize);
    munmap(trampolines, kTrampolinesSize);
  }
  Patcher::Space space() { return {getpid(), memory, gate}; }
  Mapping mapping() const { return *mapping_of(getpid(), start); }
  uint8_t first_byte() const { return *reinterpret_cast<const uint8_t*>(start + kSite); }

  Address start;
  void* trampolines;
  Memory memory;
  std::unique_ptr<GateArena> arena = GateArena::make().value();
  RecordedGate gate{*arena, nullptr};
};

struct Plans {
  PatchPlans plans;
  TrapReplacement traps{nullptr, {false, false}};
  Patcher patcher{plans, traps};
};

constexpr uint8_t kJump = 0xe9;

}  // namespace

TEST_CASE("trampolines lie in the nearest gap below; as far below as is wanted, if the gap and a jump reach so far") {
  constexpr uint64_t kMega = 1 << 20, kGiga = 1 << 30;
  constexpr Address kCode = 100 * kGiga;
  const std::vector<AddressRange> two{{kCode - 10 * kMega, kCode - 9 * kMega}, {kCode, kCode + kMega}};
  const auto nearest = Gate::gap_near(two, kCode + 4);
  REQUIRE(nearest);
  CHECK_LT(*nearest + kTrampolinesSize, kCode);
  CHECK_GT(*nearest, kCode - kMega);
  CHECK_EQ(Gate::gap_near(two, kCode + 4, 5 * kMega), *nearest - 5 * kMega);
  const auto lowest = Gate::gap_near(two, kCode + 4, kGiga);
  REQUIRE(lowest);
  CHECK_GT(*lowest, kCode - 9 * kMega);
  CHECK_LT(*lowest, kCode - 8 * kMega);
  const auto farthest = Gate::gap_near({{kCode, kCode + kMega}}, kCode + 4, 50 * kGiga);
  REQUIRE(farthest);
  CHECK_GT(*farthest, kCode - 2 * kGiga);
  CHECK_EQ(*farthest % kPageSize, 0);
  const std::vector<AddressRange> no_gap{{0, kCode + kMega}};
  CHECK_FALSE(Gate::gap_near(no_gap, kCode));
  CHECK_EQ(Gate::gap_near(two, kCode - 9 * kMega - 1, kGiga),
           Gate::gap_near({two.front()}, kCode - 9 * kMega - 1, kGiga));
}

TEST_CASE("an instruction that stops again is replaced, and at once where the file is mapped next") {
  const CodeOnDisk code;
  Plans its;
  Space first(code);
  const Address at = first.start + kSite;
  CHECK_FALSE(its.patcher.stopped(first.space(), at, SiteKind::syscall));
  const auto found = its.patcher.stopped(first.space(), at, SiteKind::syscall);
  REQUIRE(found);
  CHECK_EQ(found->window.start, at);
  CHECK_EQ(found->window.end, at + 8);
  CHECK_EQ(first.first_byte(), 0x0f);
  first.gate.replace(first.memory, at, *found->site);
  CHECK_EQ(first.first_byte(), kJump);
  CHECK(first.gate.patched(at));
  CHECK_FALSE(its.patcher.stopped(first.space(), at, SiteKind::syscall));

  Space second(code);
  MappedFiles files(getpid());
  const Mapping mapping = second.mapping();
  its.patcher.apply_plan(second.space(), mapping, *files.of(mapping));
  CHECK_EQ(second.first_byte(), kJump);
}

TEST_CASE("what could not be replaced in an address space is not tried there again") {
  const CodeOnDisk code;
  Plans its;
  Space space(code);
  const Address at = space.start + kSite;
  its.patcher.stopped(space.space(), at, SiteKind::syscall);
  const auto found = its.patcher.stopped(space.space(), at, SiteKind::syscall);
  REQUIRE(found);
  found->site->original = Bytes(8, 0xcc);  // as it is in another version of the file
  space.gate.replace(space.memory, at, *found->site);
  CHECK_FALSE(space.gate.patched(at));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(its.patcher.stopped(space.space(), at, SiteKind::syscall));
}

TEST_CASE("code that is in no file, or can be written, stays as it is") {
  const CodeOnDisk code;
  Plans its;
  Space space(code);
  const Address at = space.start + kSite;
  SUBCASE("in no file") {
    mmap(reinterpret_cast<void*>(space.start), kPageSize, PROT_READ | PROT_EXEC,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  SUBCASE("can be written") {
    REQUIRE_EQ(mprotect(reinterpret_cast<void*>(space.start), kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  }
  for (int i = 0; i < 3; ++i) CHECK_FALSE(its.patcher.stopped(space.space(), at, SiteKind::syscall));
}

TEST_CASE("a program's own code is replaced only if it stops often") {
  const CodeOnDisk code;
  Plans its;
  Space space(code);
  const auto at = reinterpret_cast<Address>(redrive_test_own_call);
  for (uint64_t i = 0; i < kOwnCodeWorthPatching; ++i) {
    CHECK_FALSE(its.patcher.stopped(space.space(), at, SiteKind::syscall));
  }
  CHECK(its.patcher.stopped(space.space(), at, SiteKind::syscall));
}

TEST_CASE("a loop is preceded by a jump at once, in a program's own code too, and its place is where the jump is") {
  const CodeOnDisk code;
  Plans its;
  Space space(code);
  CHECK(its.patcher.stopped(space.space(), reinterpret_cast<Address>(redrive_test_own_call) + 2, SiteKind::pausing));
  const Address at = space.start + 0x100;  // nops
  const auto found = its.patcher.stopped(space.space(), at, SiteKind::pausing);
  REQUIRE(found);
  CHECK_EQ(found->window.start, at);
  CHECK_EQ(found->window.end, at + kJumpSize);
  space.gate.replace(space.memory, at, *found->site);
  const PatchedSite* const patched = space.gate.patched(at);
  REQUIRE(patched);
  CHECK_EQ(space.gate.physical(at), at);  // whoever continues there is counted
  CHECK_EQ(space.gate.physical(at + 1), patched->moved + 1);
  CHECK_EQ(space.gate.canonical(patched->moved), at);
  CHECK_EQ(space.gate.canonical(patched->moved + 1), at + 1);
}

using Arguments = std::array<uint64_t, 6>;

// Has the call of the space replaced, and returns where it is.
Address replace_call(Plans& its, Space& space) {
  const Address at = space.start + kSite;
  its.patcher.stopped(space.space(), at, SiteKind::syscall);
  space.gate.replace(space.memory, at, *its.patcher.stopped(space.space(), at, SiteKind::syscall)->site);
  return at;
}

TEST_CASE("calls that change the tier's mappings, and those that take patched code away") {
  const CodeOnDisk code;
  Plans its;
  Space space(code);
  const Address at = replace_call(its, space);
  const auto tier = reinterpret_cast<Address>(space.trampolines);
  CHECK(space.gate.is_changed_by(Special::munmap, Arguments{tier, kPageSize}));
  CHECK_FALSE(space.gate.is_changed_by(Special::munmap, Arguments{space.start, kPageSize}));
  CHECK(space.gate.is_changed_by(Special::mmap, Arguments{tier, kPageSize, 0, MAP_FIXED}));
  CHECK_FALSE(space.gate.is_changed_by(Special::mmap, Arguments{tier, kPageSize}));
  CHECK(space.gate.is_changed_by(Special::mremap, Arguments{0, 0, kPageSize, MREMAP_FIXED, tier}));
  CHECK_FALSE(space.gate.is_changed_by(Special::brk, Arguments{tier}));

  space.gate.forget_changed(Special::munmap, Arguments{space.start, kPageSize}, -EINVAL);
  CHECK(space.gate.patched(at));
  SUBCASE("munmap") { space.gate.forget_changed(Special::munmap, Arguments{space.start, kPageSize}, 0); }
  SUBCASE("mmap") {
    space.gate.forget_changed(Special::mmap, Arguments{0, kPageSize}, static_cast<int64_t>(space.start));
  }
  SUBCASE("mremap") {
    space.gate.forget_changed(Special::mremap, Arguments{space.start, kPageSize, kPageSize}, 0x10000);
  }
  CHECK_FALSE(space.gate.patched(at));
}

TEST_CASE("code that is about to be moved gets its instructions back, and no other does") {
  const CodeOnDisk code;
  Plans its;
  Space space(code);
  const Address at = replace_call(its, space);
  space.gate.put_back_moved(space.memory, Arguments{space.start + kPageSize, kPageSize, kPageSize});
  CHECK(space.gate.patched(at));
  CHECK_EQ(space.first_byte(), kJump);
  space.gate.put_back_moved(space.memory, Arguments{space.start, 1, kPageSize});  // its whole page moves
  CHECK_FALSE(space.gate.patched(at));
  CHECK_EQ(space.first_byte(), 0x0f);
}

TEST_CASE("where code is executed step by step, all instructions are put back, and none is replaced any more") {
  const CodeOnDisk code;
  Plans its;
  Space space(code);
  const Address at = space.start + kSite;
  its.patcher.stopped(space.space(), at, SiteKind::syscall);
  CodeSite& site = *its.patcher.stopped(space.space(), at, SiteKind::syscall)->site;
  space.gate.replace(space.memory, at, site);
  REQUIRE(space.gate.patched(at));
  const Address trampoline = space.gate.patched(at)->trampoline();
  CHECK(space.gate.begins_trampoline(trampoline));
  CHECK_FALSE(space.gate.begins_trampoline(trampoline + 1));
  CHECK_EQ(space.gate.canonical(trampoline), at);
  space.gate.put_back_all(space.memory);
  CHECK_EQ(space.first_byte(), 0x0f);
  CHECK_FALSE(space.gate.begins_trampoline(trampoline));
  space.gate.replace(space.memory, at, site);
  CHECK_EQ(space.first_byte(), 0x0f);
}

TEST_CASE("instructions that do not trap are replaced where a file holds them") {
  constexpr char kLinker[] = "/lib64/ld-linux-x86-64.so.2";
  const Fd file(open(kLinker, O_RDONLY | O_CLOEXEC));
  struct stat info {};
  REQUIRE(file);
  REQUIRE_EQ(fstat(file.get(), &info), 0);
  const MappedFile linker{kLinker, version_of(info)};
  for (const ProcessorTraps traps : {ProcessorTraps{false, false}, ProcessorTraps{true, false}}) {
    TrapReplacement replacement(nullptr, traps);
    const auto* const sites = replacement.sites_of(linker);
    REQUIRE(sites);
    REQUIRE_FALSE(sites->empty());
    const bool counters = std::any_of(sites->begin(), sites->end(), [](const TrapSite& site) {
      return reads_counter(*trapped_instruction(site.instruction));
    });
    CHECK_EQ(counters, !traps.counter);
    CHECK_EQ(replacement.sites_of(linker), sites);
    CHECK(replacement.front(linker.version, sites->front().offset) == sites->front().front);
    CHECK(replacement.front(linker.version, sites->front().offset + 1).empty());

    const auto size = static_cast<size_t>(info.st_size);
    auto* const code = static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(), 0));
    REQUIRE(code != MAP_FAILED);
    const auto memory = Memory::open(getpid());
    REQUIRE(memory);
    Mapping mapping;
    mapping.start = reinterpret_cast<Address>(code);
    mapping.end = mapping.start + size;
    const auto replaced = replacement.replace(*memory, mapping, &linker);
    REQUIRE(replaced);
    CHECK_FALSE(replaced->failed);
    REQUIRE_EQ(replaced->sites.size(), sites->size());
    for (const TrapSite& site : *sites) {
      const auto found = replaced->sites.find(mapping.start + site.offset);
      REQUIRE(found != replaced->sites.end());
      CHECK_EQ(found->second.instruction, site.instruction);
      const Bytes expected = stand_in(found->second.length);
      CHECK(std::equal(expected.begin(), expected.end(), code + site.offset));
    }
    munmap(code, size);
    CHECK_FALSE(replacement.replace(*memory, mapping, nullptr));
    CHECK_FALSE(replacement.sites_of({"/nonexistent", {}}));
  }
  TrapReplacement nothing(nullptr, {true, true});
  CHECK(nothing.sites_of(linker)->empty());
}

}  // namespace redrive::patcher_test
