// What is read of a dump of CRIU's; and when CRIU is chosen for a checkpoint.
#include "supervisor/record/checkpoints/criu_dump.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/criu_files.h"
#include "checkpoint/criu_images.pb.h"
#include "supervisor/record/settings/checkpoint_engine.h"
#include "tests/unit/unit_test.h"

namespace redrive::criu_dump_test {

namespace {

namespace fs = std::filesystem;

// A directory with a dump of a process with three areas: private at 0x10000 and 0x14000, shared at 0x20000. Pages are
// full of their numbers.
class Dump {
 public:
  Dump() {
    char name[] = "/tmp/redrive-dump-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
    add_area(0x10000, 0x14000, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    add_area(0x14000, 0x16000, PROT_READ, MAP_PRIVATE);
    add_area(0x20000, 0x21000, PROT_READ | PROT_WRITE, MAP_SHARED);
    add_pages(0x11000, 1);
    add_pages(0x13000, 2);
    add_pages(0x20000, 1);
    write("inventory.img", "inventory");
    write("pages-4.img", "of a shared object");
    write("dump.log", "lines");
  }
  ~Dump() { fs::remove_all(path_); }

  Result<CriuDump> read() const {
    CriuFileWriter memory(CriuFile::mm);
    memory.add(memory_);
    write("mm-9.img", memory.content());
    CriuFileWriter pagemap(CriuFile::pagemap);
    criu::pagemap_head head;
    head.set_pages_id(1);
    pagemap.add(head);
    for (const auto& entry : entries_) pagemap.add(entry);
    write("pagemap-9.img", pagemap.content());
    write("pages-1.img", pages_);
    const Fd directory(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return CriuDump::read(directory);
  }
  void add_pages(Address start, uint32_t count, uint32_t flags = 4) {
    auto& entry = entries_.emplace_back();
    entry.set_vaddr(start);
    entry.set_nr_pages(count);
    entry.set_flags(flags);
    for (uint32_t i = 0; i < count; ++i) pages_ += std::string(kPageSize, static_cast<char>(pages_.size() / kPageSize));
  }
  void cut_pages() { pages_.resize(pages_.size() - 1); }

 private:
  void add_area(Address start, Address end, int protection, int flags) {
    auto& vma = *memory_.add_vmas();
    vma.set_start(start);
    vma.set_end(end);
    vma.set_pgoff(0);
    vma.set_shmid(0);
    vma.set_prot(static_cast<uint32_t>(protection));
    vma.set_flags(static_cast<uint32_t>(flags));
    vma.set_status(1);
    vma.set_fd(-1);
    for (auto set :
         {&criu::mm_entry::set_mm_start_code, &criu::mm_entry::set_mm_end_code, &criu::mm_entry::set_mm_start_data,
          &criu::mm_entry::set_mm_end_data, &criu::mm_entry::set_mm_start_stack, &criu::mm_entry::set_mm_start_brk,
          &criu::mm_entry::set_mm_brk, &criu::mm_entry::set_mm_arg_start, &criu::mm_entry::set_mm_arg_end,
          &criu::mm_entry::set_mm_env_start, &criu::mm_entry::set_mm_env_end}) {
      (memory_.*set)(0);
    }
    memory_.set_exe_file_id(0);
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name) << content;
  }

  std::string path_, pages_;
  criu::mm_entry memory_;
  std::vector<criu::pagemap_entry> entries_;
};

Mapping mapping(Address start, Address end, int protection) {
  Mapping mapping;
  mapping.start = start;
  mapping.end = end;
  mapping.protection = protection;
  return mapping;
}

std::vector<Mapping> recorded() {
  std::vector<Mapping> mappings{mapping(0x10000, 0x14000, PROT_READ | PROT_WRITE), mapping(0x14000, 0x16000, PROT_READ),
                                mapping(0x20000, 0x21000, PROT_READ | PROT_WRITE)};
  mappings.back().shared = true;
  mappings.back().shared_object = 7;
  return mappings;
}

}  // namespace

TEST_CASE("of a dump of CRIU's, the pages in private memory are visited with their mappings") {
  const auto dump = Dump().read();
  REQUIRE(dump);
  const auto mappings = recorded();
  std::vector<std::tuple<Address, Address, size_t, int>> visited;  // mapping, page, size, content
  const auto visit = [&](const Mapping& in, Address address, std::span<const uint8_t> pages) -> Result<void> {
    visited.push_back({in.start, address, pages.size(), pages.front()});
    return {};
  };
  REQUIRE(dump->visit_pages(mappings, visit));
  CHECK(visited == decltype(visited){{0x10000, 0x11000, kPageSize, 0},
                                     {0x10000, 0x13000, kPageSize, 1},
                                     {0x14000, 0x14000, kPageSize, 2}});
}

TEST_CASE("of a dump of CRIU's, pages that the program does not know are left out, and errors of the visitor end it") {
  const auto dump = Dump().read();
  REQUIRE(dump);
  const std::vector<Mapping> mappings{mapping(0x13000, 0x14000, PROT_READ | PROT_WRITE)};
  std::vector<Address> visited;
  const auto visit = [&](const Mapping&, Address address, std::span<const uint8_t>) -> Result<void> {
    visited.push_back(address);
    return {};
  };
  REQUIRE(dump->visit_pages(mappings, visit));
  CHECK(visited == std::vector<Address>{0x13000});
  const auto refuse = [](const Mapping&, Address, std::span<const uint8_t>) -> Result<void> { return Error{"full"}; };
  CHECK_EQ(dump->visit_pages(mappings, refuse).error().message, "full");
}

TEST_CASE("a dump of CRIU's must have the memory that was captured") {
  const auto dump = Dump().read();
  REQUIRE(dump);
  CHECK(dump->expect_memory(recorded()));
  CHECK(dump->expect_memory({mapping(0x11000, 0x12000, PROT_READ | PROT_WRITE)}));
  for (const Mapping& wrong :
       {mapping(0x10000, 0x16000, PROT_READ | PROT_WRITE), mapping(0x15000, 0x17000, PROT_READ),
        mapping(0x14000, 0x15000, PROT_READ | PROT_EXEC), mapping(0x20000, 0x21000, PROT_READ | PROT_WRITE)}) {
    CHECK_FALSE(dump->expect_memory({wrong}));
  }
}

TEST_CASE("all other images of a dump are kept, without the log") {
  auto dump = Dump().read();
  REQUIRE(dump);
  std::vector<std::string> names;
  for (const auto& file : dump->take_files()) names.push_back(file.name);
  CHECK(names == std::vector<std::string>{"inventory.img", "mm-9.img"});
}

TEST_CASE("a dump of CRIU's that lacks pages is refused") {
  Dump cut;
  cut.cut_pages();
  CHECK_FALSE(cut.read());
  Dump lazy;
  lazy.add_pages(0x30000, 1, 2);
  CHECK_FALSE(lazy.read());
  const Fd empty(open("/proc/self/fdinfo", O_PATH | O_DIRECTORY | O_CLOEXEC));
  CHECK_FALSE(CriuDump::read(empty));
}

TEST_CASE("CRIU is chosen by itself where it costs at most 2 % of the recorded CPU time") {
  using enum CheckpointEngine::Kind;
  constexpr uint64_t kSecond_ns = 1'000'000'000, kMegabyte = 1'000'000;
  const CheckpointEngine engine{automatic, CriuCost{0.01, 0.001}};
  CHECK(engine.chooses_criu(10 * kMegabyte, kSecond_ns));
  CHECK_FALSE(engine.chooses_criu(11 * kMegabyte, kSecond_ns));
  CHECK_FALSE(engine.chooses_criu(0, kSecond_ns / 3));
  CHECK_FALSE(CheckpointEngine{automatic, {}}.chooses_criu(0, 1000 * kSecond_ns));
  CHECK(CheckpointEngine{criu, {}}.chooses_criu(1000 * kMegabyte, 0));
  CHECK_FALSE(CheckpointEngine{own, CriuCost{}}.chooses_criu(0, kSecond_ns));
}

}  // namespace redrive::criu_dump_test
