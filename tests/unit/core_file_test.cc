// Core files, read back as elf(5) describes them; and what is found in the memory of a process for them, in this one.
#include "checkpoint/core_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "checkpoint/auxiliary_vector.h"
#include "checkpoint/loaded_objects.h"
#include "tests/unit/unit_test.h"

namespace redrive::core_file_test {

namespace {

constexpr Address kBase = 0x10000000;
constexpr uint64_t kTera = uint64_t{1} << 40;

struct Directory {
  Directory() {
    char name[] = "/tmp/redrive-core-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

template <typename T>
T value_of(const std::string& file, uint64_t offset) {
  T value{};
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(&value), sizeof value);
  REQUIRE(in);
  return value;
}

std::vector<Elf64_Phdr> segments_of(const std::string& file) {
  const auto header = value_of<Elf64_Ehdr>(file, 0);
  uint64_t count = header.e_phnum;
  if (count == PN_XNUM) count = value_of<Elf64_Shdr>(file, header.e_shoff).sh_info;
  std::vector<Elf64_Phdr> segments(count);
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(header.e_phoff));
  in.read(reinterpret_cast<char*>(segments.data()), static_cast<std::streamsize>(count * sizeof(Elf64_Phdr)));
  REQUIRE(in);
  return segments;
}

struct Note {
  uint32_t type;
  Bytes content;
};

std::vector<Note> notes_of(const std::string& file) {
  const Elf64_Phdr segment = segments_of(file).at(0);
  REQUIRE_EQ(segment.p_type, PT_NOTE);
  std::vector<Note> notes;
  const auto aligned = [](uint64_t size) { return (size + 3) / 4 * 4; };
  for (uint64_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;) {
    const auto header = value_of<Elf64_Nhdr>(file, at);
    Bytes content(header.n_descsz);
    at += sizeof header + aligned(header.n_namesz);
    std::ifstream in(file, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(at));
    in.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
    REQUIRE(in);
    notes.push_back({header.n_type, content});
    at += aligned(header.n_descsz);
  }
  return notes;
}

CoreProcess process_of(size_t threads) {
  CoreProcess process;
  process.pid = 1000;
  process.command = "program with arguments";
  for (size_t i = 0; i < threads; ++i) {
    CoreThread thread;
    thread.tid = static_cast<int32_t>(1000 + i);
    thread.regs.rip = kBase + i;
    thread.xstate = Bytes(832, static_cast<uint8_t>(i));
    process.threads.push_back(thread);
  }
  return process;
}

CoreMapping mapping_of(Address start, uint64_t length, std::vector<PageRun> held, std::string name = "") {
  CoreMapping each;
  each.mapping.start = start;
  each.mapping.end = start + length;
  each.mapping.protection = PROT_READ | PROT_WRITE;
  each.mapping.name = std::move(name);
  each.held = std::move(held);
  return each;
}

Bytes memory_at(const std::string& file, Address address, size_t size) {
  for (const Elf64_Phdr& segment : segments_of(file)) {
    const bool in =
        segment.p_type == PT_LOAD && segment.p_vaddr <= address && address < segment.p_vaddr + segment.p_memsz;
    if (!in || segment.p_filesz == 0) continue;
    Bytes bytes(size);
    std::ifstream from(file, std::ios::binary);
    from.seekg(static_cast<std::streamoff>(segment.p_offset + (address - segment.p_vaddr)));
    from.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
    REQUIRE(from);
    return bytes;
  }
  return {};
}

}  // namespace

TEST_CASE("a core file has the pages that it holds, and no space is taken by others") {
  const Directory directory;
  const std::string file = directory.path + "/core";
  const Address last = kBase + kTera - kPageSize;
  const std::vector<CoreMapping> mappings{
      mapping_of(kBase, kTera, {{kBase + kPageSize, 1000}, {last, 1}}),
      mapping_of(kBase + kTera, kPageSize, {}),
  };
  auto core = CoreFile::create(file, process_of(1), mappings);
  REQUIRE(core);
  CHECK_FALSE(CoreFile::create(file, process_of(1), mappings));  // it is there already
  // Pages that are not held are left out, zero pages not written.
  Bytes pages(5 * kPageSize, 7);
  std::fill(pages.begin() + 2 * kPageSize, pages.begin() + 3 * kPageSize, 0);
  REQUIRE(core->write(kBase, pages));
  REQUIRE(core->write(last, Bytes(kPageSize, 9)));
  REQUIRE(core->write(kBase + kTera, Bytes(kPageSize, 5)));
  CHECK_EQ(memory_at(file, kBase + kPageSize, kPageSize), Bytes(kPageSize, 7));
  CHECK_EQ(memory_at(file, kBase + 2 * kPageSize, kPageSize), Bytes(kPageSize, 0));
  CHECK_EQ(memory_at(file, kBase + 3 * kPageSize, kPageSize), Bytes(kPageSize, 7));
  CHECK_EQ(memory_at(file, last, kPageSize), Bytes(kPageSize, 9));
  CHECK(memory_at(file, kBase, kPageSize).empty());
  CHECK(memory_at(file, kBase + kTera, kPageSize).empty());
  CHECK_LT(core->size(), 2000 * kPageSize);
  CHECK_LT(*core->size_on_disk(), 100 * kPageSize);
  uint64_t mapped = 0;
  for (const Elf64_Phdr& segment : segments_of(file)) mapped += segment.p_memsz;
  CHECK_EQ(mapped, kTera + kPageSize);
  struct stat info {};
  REQUIRE_EQ(stat(file.c_str(), &info), 0);
  CHECK_EQ(static_cast<uint64_t>(info.st_size), core->size());
}

TEST_CASE("pages of a mapped file that have become zero are written over what the file has") {
  const Directory directory;
  const std::string file = directory.path + "/core";
  std::vector<CoreMapping> mappings{mapping_of(kBase, 2 * kPageSize, {{kBase, 2}}, "/a/file")};
  mappings[0].mapping.file = 1;
  auto core = CoreFile::create(file, process_of(1), mappings);
  REQUIRE(core);
  REQUIRE(core->write(kBase, Bytes(2 * kPageSize, 3)));
  REQUIRE(core->write(kBase, Bytes(kPageSize, 0)));
  CHECK_EQ(memory_at(file, kBase, kPageSize), Bytes(kPageSize, 0));
  CHECK_EQ(memory_at(file, kBase + kPageSize, kPageSize), Bytes(kPageSize, 3));
}

TEST_CASE("a core file has notes of its process, of each thread, and of mapped files") {
  const Directory directory;
  const std::string file = directory.path + "/core";
  CoreProcess process = process_of(3);
  process.auxiliary_vector = Bytes(48, 6);
  process.signal = SIGSEGV;
  process.signal_info.emplace();
  process.signal_info->si_signo = SIGSEGV;
  process.signal_info->si_code = SEGV_ACCERR;
  const std::vector<CoreMapping> mappings{mapping_of(kBase, kPageSize, {}, "/lib/a b.so"),
                                          mapping_of(kBase + kPageSize, kPageSize, {}, "[heap]"),
                                          mapping_of(kBase + 2 * kPageSize, kPageSize, {}, "/lib/c.so")};
  REQUIRE(CoreFile::create(file, process, mappings));
  const auto notes = notes_of(file);
  std::vector<uint32_t> types;
  for (const Note& note : notes) types.push_back(note.type);
  CHECK_EQ(types,
           std::vector<uint32_t>{NT_PRSTATUS, NT_PRPSINFO, NT_SIGINFO, NT_AUXV, NT_FILE, NT_FPREGSET, NT_X86_XSTATE,
                                 NT_PRSTATUS, NT_FPREGSET, NT_X86_XSTATE, NT_PRSTATUS, NT_FPREGSET, NT_X86_XSTATE});
  elf_prstatus status;
  REQUIRE_EQ(notes[0].content.size(), sizeof status);
  std::memcpy(&status, notes[0].content.data(), sizeof status);
  CHECK_EQ(status.pr_pid, 1000);
  CHECK_EQ(status.pr_cursig, SIGSEGV);
  user_regs_struct regs;
  std::memcpy(&regs, &status.pr_reg, sizeof regs);
  CHECK_EQ(regs.rip, kBase);
  std::memcpy(&status, notes[10].content.data(), sizeof status);
  CHECK_EQ(status.pr_pid, 1002);
  CHECK_EQ(status.pr_cursig, SIGSEGV);
  elf_prpsinfo info;
  std::memcpy(&info, notes[1].content.data(), sizeof info);
  CHECK_EQ(std::string(info.pr_fname), "program");
  CHECK_EQ(std::string(info.pr_psargs), "program with arguments");
  CHECK_EQ(notes[3].content, Bytes(48, 6));
  CHECK_EQ(notes[5].content, Bytes(512, 0));
  CHECK_EQ(notes[12].content, Bytes(832, 2));
  Decoder files(notes[4].content);
  CHECK_EQ(files.fixed64(), 2);
  CHECK_EQ(files.fixed64(), kPageSize);
  for (const uint64_t number : {kBase, kBase + kPageSize, Address{0}, kBase + 2 * kPageSize, kBase + 3 * kPageSize}) {
    CHECK_EQ(files.fixed64(), number);
  }
  files.fixed64();
  const auto names = files.take(files.left());
  CHECK_EQ(std::string(names.begin(), names.end()), std::string("/lib/a b.so\0/lib/c.so\0", 22));
}

TEST_CASE("more segments than a header can count are counted in a section") {
  const Directory directory;
  const std::string file = directory.path + "/core";
  std::vector<CoreMapping> mappings;
  constexpr uint64_t kMany = 70000;
  for (uint64_t i = 0; i < kMany; ++i) mappings.push_back(mapping_of(kBase + 2 * i * kPageSize, kPageSize, {}));
  mappings.back().held = {{mappings.back().mapping.start, 1}};
  auto core = CoreFile::create(file, process_of(1), mappings);
  REQUIRE(core);
  REQUIRE(core->write(mappings.back().mapping.start, Bytes(kPageSize, 4)));
  CHECK_EQ(value_of<Elf64_Ehdr>(file, 0).e_phnum, PN_XNUM);
  CHECK_EQ(segments_of(file).size(), kMany + 1);
  CHECK_EQ(memory_at(file, mappings.back().mapping.start, kPageSize), Bytes(kPageSize, 4));
}

TEST_CASE("runs with a small gap between them become one") {
  const auto joined = without_small_gaps({{kBase, 1}, {kBase + 3 * kPageSize, 2}, {kBase + kTera, 1}});
  REQUIRE_EQ(joined.size(), 2);
  CHECK_EQ(joined[0].start, kBase);
  CHECK_EQ(joined[0].pages, 5);
  CHECK_EQ(joined[1].start, kBase + kTera);
  CHECK(without_small_gaps({}).empty());
}

TEST_CASE("AVX-512 registers of AMD's layout are written where debuggers look for them") {
  const Directory directory;
  for (const bool keys : {false, true}) {
    const std::string file = directory.path + (keys ? "/with" : "/without");
    CoreProcess process = process_of(1);
    Bytes area(keys ? 2440 : 2432, 1);
    const uint64_t features = keys ? 0x2e7 : 0xe7;
    std::memcpy(area.data() + 464, &features, sizeof features);
    std::fill_n(area.begin() + 832, 64, 2);
    std::fill_n(area.begin() + 896, 512, 3);
    std::fill_n(area.begin() + 1408, 1024, 4);
    if (keys) std::fill_n(area.begin() + 2432, 8, 5);
    process.threads[0].xstate = area;
    REQUIRE(CoreFile::create(file, process, {}));
    const Bytes written = notes_of(file).back().content;
    REQUIRE_EQ(written.size(), keys ? 2696 : 2688);
    CHECK(std::equal(area.begin(), area.begin() + 832, written.begin()));
    CHECK_EQ(Bytes(written.begin() + 1088, written.begin() + 1152), Bytes(64, 2));
    CHECK_EQ(Bytes(written.begin() + 1152, written.begin() + 1664), Bytes(512, 3));
    CHECK_EQ(Bytes(written.begin() + 1664, written.begin() + 2688), Bytes(1024, 4));
    if (keys) CHECK_EQ(Bytes(written.begin() + 2688, written.end()), Bytes(8, 5));
  }
}

TEST_CASE("the auxiliary vector is found at the end of the stack") {
  const auto mappings = read_mappings(getpid());
  REQUIRE(mappings);
  const auto stack = std::find_if(mappings->begin(), mappings->end(), [](const Mapping& m) { return m.is_stack(); });
  REQUIRE(stack != mappings->end());
  Bytes memory(stack->length());
  REQUIRE(Memory::open(getpid()).value().read(stack->start, memory.data(), memory.size()));
  const Bytes found = find_auxiliary_vector(memory);
  std::ifstream kernels("/proc/self/auxv", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(kernels), {}};
  REQUIRE_GT(found.size(), 10 * sizeof(Elf64_auxv_t));
  CHECK_EQ(found, Bytes(all.begin(), all.begin() + static_cast<long>(std::min(all.size(), found.size()))));
  CHECK_EQ(auxiliary_value(found, AT_PAGESZ), kPageSize);
  CHECK_FALSE(auxiliary_value(found, 12345));
  CHECK(find_auxiliary_vector(Bytes(1 << 16)).empty());
  CHECK(find_auxiliary_vector({}).empty());
  CHECK(find_auxiliary_vector(Bytes(memory.begin(), memory.begin() + 40)).empty());
}

TEST_CASE("what the loader has loaded is found by its list") {
  const Memory memory = Memory::open(getpid()).value();
  const ReadMemory read = [&](Address from, std::span<uint8_t> to) { return memory.read(from, to.data(), to.size()); };
  std::ifstream kernels("/proc/self/auxv", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(kernels), {}};
  const Bytes vector(text.begin(), text.end());
  const auto objects = loaded_objects(read, vector);
  size_t compared = 0;
  for (const link_map* at = static_cast<const link_map*>(dlopen(nullptr, RTLD_LAZY)); at; at = at->l_next, ++compared) {
    REQUIRE_LT(compared, objects.size());
    CHECK_EQ(objects[compared].name, at->l_name);
    CHECK_EQ(objects[compared].dynamic, reinterpret_cast<Address>(at->l_ld));
  }
  CHECK_GT(compared, 3);
  CHECK_EQ(compared, objects.size());
  CHECK(loaded_objects(read, {}).empty());
  CHECK(loaded_objects([](Address, std::span<uint8_t>) { return false; }, vector).empty());
}

}  // namespace redrive::core_file_test
