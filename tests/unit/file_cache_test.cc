// What is kept of files between recordings: it is found again if, and only if, the file and the copy are unchanged.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "interceptors/trap_sites.h"
#include "logstore/block_sums.h"
#include "logstore/file_store.h"
#include "supervisor/record/code/patch_plans.h"
#include "supervisor/record/code/trap_replacement.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::file_cache_test {

namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "/bin/true";  // an old file that nobody writes to
constexpr uint64_t kLimit = 1 << 30;

// A cache, with traces beside it.
struct Place {
  Place() {
    std::string name = (fs::temp_directory_path() / "rd-cache-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Place() { fs::remove_all(path); }
  std::string cache() const { return path / "cache"; }
  std::string copies(const std::string& trace) const {
    fs::create_directories(path / trace);
    return path / trace;
  }
  std::vector<fs::path> below(const std::string& directory) const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(path / "cache" / directory)) out.push_back(entry.path());
    return out;
  }
  fs::path path;
};

FileVersion version_of(const char* path) {
  struct stat info {};
  REQUIRE(stat(path, &info) == 0);
  return redrive::version_of(info);
}

FileFacts& facts_of(FileCache& cache, const char* path = kFile) {
  FileFacts* const facts = cache.of(path, version_of(path));
  REQUIRE_MESSAGE(facts, path << " is on a file system of which nothing is kept");
  return *facts;
}

// Does what a recording does: copies the file into a trace, learns something, keeps it.
std::string record(const Place& place, const std::string& trace, uint64_t limit = kLimit) {
  const auto cache = FileCache::open(place.cache(), limit);
  REQUIRE(cache);
  const std::string directory = place.copies(trace);
  FileStoreWriter copies(disk(), directory, cache.get());
  bool failed = false;
  const auto added = copies.add(kFile, kFile, true, failed);
  REQUIRE(added);
  FileFacts& facts = facts_of(*cache);
  facts.patch_plans = {1, 2, 3};
  facts.trap_sites = {0};
  cache->keep(directory);
  return directory + "/" + added->record.copy;
}

ino_t inode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_ino;
}

bool is_good_copy(const std::string& path) {
  const auto sums = read_sums(disk(), path);
  return sums && verify_sums(disk(), path, *sums) && sums->size == fs::file_size(kFile);
}

void flip(const fs::path& path, std::streamoff at) {
  const auto mode = fs::status(path).permissions();
  fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  fs::permissions(path, mode);
}

}  // namespace

TEST_CASE("a later recording shares the copy and knows what was learnt") {
  Place place;
  const std::string first = record(place, "t1");
  CHECK(is_good_copy(first));
  const auto cache = FileCache::open(place.cache(), kLimit);
  const FileFacts& facts = facts_of(*cache);
  CHECK(facts.patch_plans == Bytes{1, 2, 3});
  CHECK(facts.trap_sites == Bytes{0});
  CHECK(first.ends_with("/" + facts.content));
  const std::string second = place.copies("t2") + "/" + facts.content;
  REQUIRE(cache->put_copy(facts, second) != FileCache::Put::nothing);
  CHECK(is_good_copy(second));
  CHECK((access(second.c_str(), W_OK) != 0 || geteuid() == 0));
  CHECK((fs::status(second).permissions() & (fs::perms::owner_write | fs::perms::others_write)) == fs::perms::none);
  // Removing a trace does not change the others and the cache.
  fs::remove_all(place.path / "t1");
  CHECK(is_good_copy(second));
  CHECK(is_good_copy(record(place, "t3")));
}

TEST_CASE("nothing is rewritten where nothing was learnt") {
  Place place;
  record(place, "t1");
  const auto entries = place.below("files");
  REQUIRE(entries.size() == 1);
  const ino_t before = inode_of(entries[0]);
  record(place, "t2");
  CHECK(place.below("files") == entries);
  CHECK(inode_of(entries[0]) == before);
  CHECK(place.below("copies").size() == 2);  // the copy and its sums
}

TEST_CASE("another build of redrive knows nothing, and what it learns replaces what was there") {
  Place place;
  record(place, "t1");
  {
    const auto other = FileCache::open(place.cache(), kLimit, "another build");
    REQUIRE(other);
    FileFacts& facts = facts_of(*other);
    CHECK(facts.content.empty());
    CHECK(facts.patch_plans.empty());
    facts.patch_plans = {9};
    other->keep(place.copies("t2"));
  }
  CHECK(facts_of(*FileCache::open(place.cache(), kLimit)).patch_plans.empty());
  CHECK(facts_of(*FileCache::open(place.cache(), kLimit, "another build")).patch_plans == Bytes{9});
}

TEST_CASE("a damaged entry is as good as none, and is replaced") {
  Place place;
  record(place, "t1");
  const auto entries = place.below("files");
  REQUIRE(entries.size() == 1);
  const auto size = static_cast<std::streamoff>(fs::file_size(entries[0]));
  for (std::streamoff at = 0; at < size; at += 7) {
    CAPTURE(at);
    flip(entries[0], at);
    const auto cache = FileCache::open(place.cache(), kLimit);
    CHECK(facts_of(*cache).patch_plans.empty());
    flip(entries[0], at);
  }
  fs::resize_file(entries[0], 0);
  CHECK(facts_of(*FileCache::open(place.cache(), kLimit)).content.empty());
  CHECK(is_good_copy(record(place, "t2")));
  CHECK_FALSE(facts_of(*FileCache::open(place.cache(), kLimit)).content.empty());
}

TEST_CASE("a copy that is not what it was is not used, and is replaced") {
  Place place;
  const std::string first = record(place, "t1");
  const std::string kept = place.cache() + "/copies/" + fs::path(first).filename().string();
  const bool linked = inode_of(first) == inode_of(kept);
  flip(kept, 5000);
  CHECK(is_good_copy(first) != linked);  // a hard link shares the damage, which its sums show
  CHECK(facts_of(*FileCache::open(place.cache(), kLimit)).content.empty());
  const std::string second = record(place, "t2");
  CHECK(is_good_copy(second));
  CHECK(is_good_copy(kept));
  SUBCASE("missing") {
    fs::remove(kept);
    CHECK(facts_of(*FileCache::open(place.cache(), kLimit)).content.empty());
    CHECK(is_good_copy(record(place, "t3")));
    CHECK(is_good_copy(kept));
  }
  SUBCASE("of the same size, with the old time, in a week") {
    struct stat before {};
    REQUIRE(stat(kept.c_str(), &before) == 0);
    flip(kept, 5000);
    const timespec times[] = {before.st_atim, before.st_mtim};
    utimensat(AT_FDCWD, kept.c_str(), times, 0);
    timespec old[] = {{}, {}};
    clock_gettime(CLOCK_REALTIME, &old[0]);
    old[0].tv_sec -= 8 * 24 * 3600;
    old[1] = old[0];
    for (const auto& entry : place.below("files")) utimensat(AT_FDCWD, entry.c_str(), old, 0);
    CHECK(facts_of(*FileCache::open(place.cache(), kLimit)).content.empty());
  }
}

TEST_CASE("nothing is kept of a file that may change unseen") {
  Place place;
  const auto cache = FileCache::open(place.cache(), kLimit);
  REQUIRE(cache);
  const std::string fresh = place.path / "fresh";
  std::ofstream(fresh) << "new";
  CHECK_FALSE(cache->of(fresh, version_of(fresh.c_str())));  // it could be written again within this tick of the clock
  constexpr char kOurs[] = "CONTRIBUTING.md";
  {
    const Fd writer(open(kOurs, O_RDWR | O_CLOEXEC));
    REQUIRE(writer);
    CHECK_FALSE(FileCache::open(place.cache(), kLimit)->of(kOurs, version_of(kOurs)));
  }
  CHECK(FileCache::open(place.cache(), kLimit)->of(kOurs, version_of(kOurs)));
  FileVersion other = version_of(kOurs);
  other.changed_ns -= 1;
  CHECK_FALSE(cache->of(kOurs, other));
  CHECK_FALSE(cache->of("/proc/self/status", version_of("/proc/self/status")));
  CHECK_FALSE(cache->of("/dev/null", version_of("/dev/null")));
}

TEST_CASE("copies that no trace shares are removed beyond the limit") {
  Place place;
  record(place, "t1");
  REQUIRE(place.below("copies").size() == 2);
  fs::remove_all(place.path / "t1");
  const auto cache = FileCache::open(place.cache(), 0);
  facts_of(*cache).patch_plans = {4};
  cache->keep(place.copies("t2"));
  CHECK(place.below("copies").empty());
  CHECK(facts_of(*FileCache::open(place.cache(), kLimit)).patch_plans == Bytes{4});
}

TEST_CASE("a directory where others may write is no cache, nor one that cannot be made") {
  Place place;
  fs::create_directory(place.cache());
  fs::permissions(place.cache(), fs::perms::all);
  CHECK_FALSE(FileCache::open(place.cache(), kLimit));
  CHECK(fs::is_empty(place.cache()));
  CHECK_FALSE(FileCache::open("", kLimit));
  CHECK_FALSE(FileCache::open("/proc/nowhere/redrive", kLimit));
  CHECK_FALSE(FileCache::open("/dev/null", kLimit));
}

TEST_CASE("plans and cpuid sites come back as they were") {
  FilePlans plans;
  CodePlan& plan = plans.try_emplace({0x1000, 0x8000}, "/lib/x", 0x1000).first->second;
  const auto add = [&](uint64_t at, SiteKind kind, std::optional<PatchWindow> window, Bytes original) {
    CodeSite& site = plan.site(at);
    site.kind = kind;
    site.examined = true;
    site.window = window;
    site.original = std::move(original);
  };
  add(0x40, SiteKind::syscall, PatchWindow{0, 3, 0}, {0x0f, 0x05, 1, 2, 3});
  add(0x80, SiteKind::syscall, PatchWindow{5, 0, 0}, {0xb8, 1, 0, 0, 0});
  add(0xc0, SiteKind::rdtscp, PatchWindow{0, 7, 1 << 3}, Bytes(10, 0x90));
  add(0xe0, SiteKind::syscall, PatchWindow{0, 4, 0, true}, {0x0f, 0x05, 0x85, 0xc0, 0x75, 0x1e});
  add(0xf0, SiteKind::pausing, PatchWindow{0, 6, 1 << 2}, {0x8b, 0x05, 1, 2, 3, 4});
  add(0x100, SiteKind::cpuid, std::nullopt, {});
  add(0x140, SiteKind::syscall, PatchWindow{0, 3, 0}, {});  // not patched anywhere
  plan.site(0x180).stops = 1;
  const Bytes bytes = encode(plans);
  auto decoded = decode_plans(bytes, "/lib/y");
  REQUIRE(decoded);
  CHECK(encode(*decoded) == bytes);
  CodePlan& again = decoded.value().at({0x1000, 0x8000});
  CHECK(again.name() == "/lib/y");
  REQUIRE(again.sites().size() == 6);
  CHECK(again.ready(0x10000, nullptr).size() == 5);
  Program program;
  CHECK(again.ready(0x10000, &program).size() == 5);
  program.ended = true;  // it has used none
  CHECK(again.ready(0x10000, &program).empty());
  again.site(0x80).used_by.insert(&program);
  REQUIRE(again.ready(0x10000, &program).size() == 1);
  CHECK(again.ready(0x10000, &program).front().patch.site == 0x10080);
  CHECK(again.sites().at(0xe0).window->ends_in_jump);
  CHECK(again.sites().at(0x80).offset == 0x1080);
  CHECK(again.sites().at(0xc0).window->displacements == 1 << 3);
  CHECK(again.sites().at(0x100).examined);
  CHECK_FALSE(again.sites().at(0x100).window);
  CHECK(encode(FilePlans()).empty());

  // Windows for which no trampoline can be made.
  const auto refused = [&](PatchWindow window, size_t size, SiteKind kind = SiteKind::syscall, uint64_t at = 0x40) {
    FilePlans bad;
    CodeSite& site = bad.try_emplace({0, 0x1000}, "", 0).first->second.site(at);
    site.kind = kind;
    site.examined = true;
    site.window = window;
    site.original = Bytes(size, 0x90);
    return !decode_plans(encode(bad), "");
  };
  CHECK_FALSE(refused({0, 3, 0}, 5));
  CHECK(refused({0, 2, 0}, 4));
  CHECK(refused({0, 3, 0}, 6));
  CHECK(refused({0, 40, 0}, 42));
  CHECK(refused({0, 3, 1 << 5}, 5));
  CHECK(refused({0, 4, 0, true}, 6));  // ends in nops
  CHECK(refused({5, 0, 0}, 5, SiteKind::rdtsc));
  CHECK_FALSE(refused({0, 5, 0}, 5, SiteKind::pausing));
  CHECK(refused({0, 4, 0}, 4, SiteKind::pausing));
  CHECK(refused({5, 0, 0}, 5, SiteKind::pausing));
  CHECK(refused({5, 3, 0}, 5));
  CHECK(refused({5, 0, 0}, 5, SiteKind::syscall, 4));
  CHECK(refused({0, 3, 0}, 5, SiteKind::syscall, 0xffc));

  constexpr ProcessorTraps kNone{.counter = false, .cpuid = false};
  const auto encoded = [&](std::vector<TrapSite> sites, std::vector<CpuidQuestion> questions = {}) {
    return encode(FoundTrapSites{kNone, std::move(sites), std::move(questions)});
  };
  const auto kept = decode_trap_sites(encoded({{0x100, 2, {3, 2}}, {0x200, 1, {}}}, {{0x8000001d, 3}, {7, 0}}));
  REQUIRE(kept);
  CHECK(kept->traps == kNone);
  REQUIRE(kept->sites.size() == 2);
  CHECK(kept->sites[0].offset == 0x100);
  CHECK(kept->sites[0].instruction == 2);
  CHECK(kept->sites[1].instruction == 1);
  CHECK(kept->sites[0].front == std::vector<uint8_t>{3, 2});
  CHECK(kept->questions == std::vector<CpuidQuestion>{{0x8000001d, 3}, {7, 0}});
  CHECK(decode_trap_sites(encoded({}, std::vector<CpuidQuestion>(gate::kMaxAnswers))));
  CHECK_FALSE(decode_trap_sites(encoded({}, std::vector<CpuidQuestion>(gate::kMaxAnswers + 1))));
  constexpr ProcessorTraps kCounter{.counter = true, .cpuid = false};
  const auto none = decode_trap_sites(encode(FoundTrapSites{kCounter, {}, {}}));
  REQUIRE(none);
  CHECK(none->traps == kCounter);
  CHECK_FALSE(decode_trap_sites({}));
  CHECK_FALSE(decode_trap_sites(encoded({{2, 0, {}}, {1, 0, {}}})));
  CHECK_FALSE(decode_trap_sites(encoded({{2, 0, {0}}})));
  CHECK_FALSE(decode_trap_sites(encoded({{2, 0, {1, 1, 1, 1, 1}}})));
  CHECK_FALSE(decode_trap_sites(encoded({{2, 3, {}}})));
}

TEST_CASE("what the cpuid instructions of a file ask is known in the next recording") {
  constexpr CpuidQuestion kFirst{0x8000001d, 3}, kSecond{7, 0};
  constexpr char kLinker[] = "/lib64/ld-linux-x86-64.so.2";
  const MappedFile linker{kLinker, version_of(kLinker)};
  const Place place;
  {
    const auto cache = FileCache::open(place.cache());
    REQUIRE(cache);
    TrapReplacement replacement(cache.get(), {false, false});
    replacement.add_question(linker, kFirst);  // nothing is known of the file yet
    REQUIRE(replacement.sites_of(linker));
    CHECK(replacement.questions(linker.version).empty());
    for (const auto& question : {kFirst, kSecond, kFirst}) replacement.add_question(linker, question);
    CHECK_EQ(replacement.questions(linker.version).size(), 2);
    cache->keep(place.copies("trace"));
  }
  const auto cache = FileCache::open(place.cache());
  REQUIRE(cache);
  TrapReplacement replacement(cache.get(), {false, false});
  CHECK(replacement.questions(linker.version).empty());
  REQUIRE(replacement.sites_of(linker));
  const auto questions = replacement.questions(linker.version);
  CHECK(std::vector(questions.begin(), questions.end()) == std::vector{kFirst, kSecond});
  TrapReplacement other(cache.get(), {true, false});
  REQUIRE(other.sites_of(linker));  // found for processors that trap something else
  CHECK(other.questions(linker.version).empty());
}

}  // namespace redrive::file_cache_test
