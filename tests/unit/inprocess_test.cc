// What the in-process tier is made of: windows around syscall instructions, trampolines, cpuid in files, the table of
// calls, and memory as it was.
#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/remote.h"
#include "interceptors/cpuid_sites.h"
#include "interceptors/gate_calls.h"
#include "interceptors/patch_window.h"
#include "interceptors/syscall_table.h"
#include "supervisor/gate.h"
#include "tests/unit/unit_test.h"

namespace redrive {
namespace {

// Code at offset 512 of a segment of nops, with its syscall instruction at `site` of that.
struct Case {
  const char* name;
  Bytes code;
  uint64_t site;
  std::optional<PatchWindow> expected;
};

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
      {"ret behind, mov in front", {0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3}, 5, PatchWindow{5, 0}},
      {"mov of 7 bytes in front", {0x48, 0xc7, 0xc0, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3}, 7, PatchWindow{7, 0}},
      {"xor in front is too short", {0x31, 0xc0, 0x0f, 0x05, 0xc3}, 2, std::nullopt},
      {"a load may fault", {0x0f, 0x05, 0x48, 0x8b, 0x07, 0xc3}, 0, std::nullopt},
      {"a load relative to its place", {0x0f, 0x05, 0x8b, 0x05, 1, 2, 3, 4, 0xc3}, 0, std::nullopt},
      {"a landing pad", {0x0f, 0x05, 0xf3, 0x0f, 0x1e, 0xfa, 0xc3}, 0, std::nullopt},
      {"rdtsc", {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0}, 0, PatchWindow{0, 4}},
      {"rdtscp", {0x0f, 0x01, 0xf9, 0x89, 0x0c, 0x24, 0x48, 0xc1}, 0, std::nullopt},  // stores
      {"rdtscp that can move", {0x0f, 0x01, 0xf9, 0x48, 0xc1, 0xe2, 0x20}, 0, PatchWindow{0, 4}},
      {"rdtsc behind a mov", {0xb8, 0x27, 0, 0, 0, 0x0f, 0x31, 0xc3}, 5, std::nullopt},
      {"no syscall instruction", {0x0f, 0x0b, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 0, std::nullopt},
      // jmp to the cmp, over it: the first may not be patched, the second may.
      {"a short jump to behind the call", {0xeb, 0x02, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 2, std::nullopt},
      {"a short jump to the call", {0xeb, 0x00, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 2, PatchWindow{0, 6}},
      {"a short jump over it", {0xeb, 0x08, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, 2, PatchWindow{0, 6}},
  };
  for (const auto& [name, code, site, expected] : cases) {
    CAPTURE(name);
    const auto found = segment_of(code).window(512 + site);
    REQUIRE(found.has_value() == expected.has_value());
    if (found) CHECK(found->before == expected->before);
    if (found) CHECK(found->after == expected->after);
  }
  // A near jump from afar: from the end of the segment to behind the call, and to the call.
  const auto jump_to = [](uint64_t target) { return jump(1024 - kJumpSize, target, kJumpSize); };
  CHECK_FALSE(segment_of(compare, jump_to(514)).window(512));
  CHECK(segment_of(compare, jump_to(512)).window(512));
  CHECK_FALSE(segment_of(compare).window(1023));
}

TEST_CASE("a trampoline executes what was moved, and its calls return to what follows") {
  // mov $7, %eax; [syscall]; add $1, %eax; ret, with the trampoline's own syscall taken (no gate: its jump leads
  // there).
  auto* const page = static_cast<uint8_t*>(
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(page != MAP_FAILED);
  const auto base = reinterpret_cast<Address>(page);
  const Bytes before{0xb8, 0x27, 0, 0, 0};  // mov $39 (getpid), %eax
  const Bytes after{0x83, 0xc0, 0x01};      // add $1, %eax
  const Bytes rest{0xc3};                   // ret
  const Address site = base + before.size(), at = base + 512, pointer = base + 256;
  Address stop = 0;
  const Bytes code = trampoline(at, pointer, before, {0x0f, 0x05}, after, site, stop);
  std::memcpy(page + 512, code.data(), code.size());
  std::memcpy(page + 256, &stop, sizeof stop);
  const Bytes entry = jump(base, at, before.size() + kSyscallSize + after.size());
  std::memcpy(page, entry.data(), entry.size());
  std::memcpy(page + entry.size(), rest.data(), rest.size());
  CHECK(page[stop - base] == 0x0f);
  CHECK(page[stop - base + 1] == 0x05);
  int result = 0;
  uint64_t rcx = 0;
  asm volatile("call *%2" : "=a"(result), "=&c"(rcx) : "r"(page) : "r11", "memory", "cc");
  CHECK(result == getpid() + 1);
  CHECK(rcx == site + kSyscallSize);
  munmap(page, kPageSize);
}

TEST_CASE("cpuid is found where a file proves that it is an instruction") {
  const Bytes linker = file_contents("/lib64/ld-linux-x86-64.so.2");
  const auto sites = cpuid_sites(linker);
  CHECK(sites.size() > 5);
  for (const uint64_t site : sites) CHECK((linker[site] == 0x0f && linker[site + 1] == 0xa2));
  CHECK(cpuid_sites({}).empty());
  CHECK(cpuid_sites(Bytes(4096, 0xa2)).empty());
  // Damaged files: never out of bounds, never more than there is.
  uint64_t random = 1;
  for (int round = 0; round < 200; ++round) {
    Bytes damaged(linker.begin(), linker.begin() + static_cast<int64_t>(random % linker.size()));
    for (int flip = 0; flip < 20 && !damaged.empty(); ++flip) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      damaged[(random >> 20) % std::min<size_t>(damaged.size(), round % 2 ? 4096 : damaged.size())] ^=
          static_cast<uint8_t>(random >> 56);
    }
    for (const uint64_t site : cpuid_sites(damaged)) REQUIRE(site + 1 < damaged.size());
  }
}

// A binary without .eh_frame as Go's linker makes it: two functions in .text, the second of which holds cpuid and, in
// the constant of a mov, what looks like it.
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
  CHECK(cpuid_sites(binary(0xfffffff1, kText)) == std::vector<uint64_t>{kCodeAt + 9});
  CHECK(cpuid_sites(binary(0xfffffff0, kText)) == std::vector<uint64_t>{kCodeAt + 9});
  CHECK(cpuid_sites(binary(0xfffffffb, kText)).empty());  // another layout
  CHECK(cpuid_sites(binary(0xfffffff1, 0)).empty());      // position-independent
}

TEST_CASE("the table of calls follows the syscall table") {
  const auto table = gate_table();
  const auto follows = [](const gate::Call& call, const SyscallRow& row) {
    CAPTURE(row.name);
    CHECK((call.serve != gate::Serve::never) == row.in_process);
    if (call.serve == gate::Serve::never) return;
    CHECK((call.serve == gate::Serve::sleeps) == row.may_block);
    CHECK(call.send == (row.traffic == Traffic::send));
    CHECK((row.treat == Treat::emulate && row.selector < 0));
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
  const Memory memory = Memory::of({{0x1000, early}, {0x1002, late}});
  uint8_t bytes[8] = {};
  CHECK(memory.read_some(0x1000, bytes, sizeof bytes) == 6);
  const uint8_t expected[] = {1, 2, 9, 9, 5, 6};
  CHECK(std::memcmp(bytes, expected, sizeof expected) == 0);
  CHECK_FALSE(memory.read(0xfff, bytes, 2));
  CHECK_FALSE(memory.read(0x1005, bytes, 2));
  CHECK(Memory::of({}).read_some(0x1000, bytes, 1) == 0);
}

}  // namespace redrive
