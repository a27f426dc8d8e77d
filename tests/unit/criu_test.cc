// CRIU's files, what they say of a stub, and what is read of the lines that CRIU writes.
#include "checkpoint/criu.h"

#include "checkpoint/criu_files.h"
#include "checkpoint/criu_images.pb.h"
#include "checkpoint/criu_stub.h"
#include "checkpoint/stub.h"
#include "tests/unit/unit_test.h"

namespace redrive::criu_test {

namespace {

criu::fs_entry directories(uint32_t cwd, uint32_t root) {
  criu::fs_entry entry;
  entry.set_cwd_id(cwd);
  entry.set_root_id(root);
  return entry;
}

}  // namespace

TEST_CASE("a file of CRIU's begins with its kind; messages follow their lengths") {
  CriuFileWriter file(CriuFile::fs);
  file.add(directories(3, 4));
  CHECK_EQ(file.content(), std::string("\x19\x43\x56\x54\x12\x39\x40\x51\x04\0\0\0\x08\x03\x10\x04", 16));
  CHECK_EQ(CriuFileWriter(CriuFile::inventory).content(), std::string("\x16\x31\x31\x58"));
}

TEST_CASE("what was written to a file of CRIU's is read again, in order") {
  CriuFileWriter file(CriuFile::fs);
  for (uint32_t i = 0; i < 3; ++i) file.add(directories(i, i + 1));
  auto reader = CriuFileReader::open(file.content(), CriuFile::fs);
  REQUIRE(reader);
  criu::fs_entry entry;
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK_FALSE(reader->at_end());
    REQUIRE(reader->next(entry));
    CHECK_EQ(entry.root_id(), i + 1);
  }
  CHECK(reader->at_end());
  CHECK_FALSE(reader->next(entry));
}

TEST_CASE("a file of CRIU's that is of another kind, or cut short, is refused") {
  CriuFileWriter file(CriuFile::fs);
  file.add(directories(1, 2));
  CHECK_FALSE(CriuFileReader::open(file.content(), CriuFile::mm));
  CHECK_FALSE(CriuFileReader::open(file.content(), CriuFile::inventory));
  criu::fs_entry entry;
  for (size_t size = 0; size < file.content().size(); ++size) {
    const std::string part = file.content().substr(0, size);
    auto reader = CriuFileReader::open(part, CriuFile::fs);
    CHECK_FALSE((reader && reader->next(entry)));
  }
}

TEST_CASE("of CRIU's lines, the first error that matters is shown") {
  CHECK_EQ(first_criu_error("Warn  (criu/x.c:1): no\n"
                            "(00.05) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE\n"
                            "(00.06)   7: Error (criu/sk-inet.c:12): inet: Connected TCP socket\n"
                            "(00.07) Error (criu/cr-dump.c:1): Dumping FAILED.\n"),
           "inet: Connected TCP socket");
  CHECK_EQ(first_criu_error("Error (criu/util.c:642): exited, status=1\nError (criu/vdso.c:1): vdso: bounds"),
           "vdso: bounds");
  CHECK_EQ(first_criu_error("Error (unfinished"), "Error (unfinished");
  CHECK_EQ(first_criu_error("Looks good.\n"), "");
}

TEST_CASE("CRIU is new enough from 4.1 on") {
  for (const char* const version : {"4.1", "4.1.1", "4.2", "4.10.3", "5.0"}) CHECK(is_criu_new_enough(version));
  for (const char* const version : {"4.0", "3.17.1", "of an unknown version", ""}) {
    CHECK_FALSE(is_criu_new_enough(version));
  }
}

TEST_CASE("each thread of a stub for CRIU is confined, and stands at a trap") {
  constexpr uint8_t kBreakpoint = 0xcc;
  const Bytes program = stub_program();
  REQUIRE_LT(stub_trap() - kGateStart, program.size());
  CHECK_EQ(program[stub_trap() - kGateStart], kBreakpoint);
  for (const bool first : {true, false}) {
    const criu::core_entry core = criu_stub::thread(first);
    CHECK(core.IsInitialized());
    CHECK_EQ(core.has_tc(), first);
    CHECK_EQ(core.thread_info().gpregs().ip(), stub_trap());
    const auto& creds = core.thread_core().creds();
    for (const uint32_t id : {creds.uid(), creds.euid(), creds.suid(), creds.fsuid(), creds.gid(), creds.egid(),
                              creds.sgid(), creds.fsgid()}) {
      CHECK_EQ(id, 65534);
    }
    for (const auto* const set : {&creds.cap_inh(), &creds.cap_prm(), &creds.cap_eff(), &creds.cap_bnd()}) {
      REQUIRE_EQ(set->size(), 2);
      CHECK_EQ((*set)[0] | (*set)[1], 0);
    }
    CHECK_EQ(creds.no_new_privs(), 1);
    CHECK_EQ(core.thread_core().seccomp_mode(), 2);
  }
}

TEST_CASE("CRIU is given the filter that other stubs have") {
  const StubTier tier{0x70010010, {0x70010000, 0x70020000}, 0x70011000};
  const auto filter = stub_filter(kStubSyscallEnd, {kGateStart, kGateEnd}, tier);
  const std::string bytes(reinterpret_cast<const char*>(filter.data()), filter.size() * sizeof filter.front());
  const criu::seccomp_entry given = criu_stub::filters(tier);
  REQUIRE_EQ(given.seccomp_filters_size(), 1);
  CHECK(given.seccomp_filters(0).filter() == bytes);
}

}  // namespace redrive::criu_test
