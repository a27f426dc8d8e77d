// A thread is stopped at any state of a loop, starting from any other state.
#include "supervisor/replay/probe.h"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor/tier/registers.h"
#include "tests/unit/nameless_file.h"
#include "tests/unit/unit_test.h"

namespace redrive::probe_test {

namespace {

constexpr Address kCode = 0x10000000;
constexpr Address kCounter = kCode + 0x10000;

// x ^= x << 13; x ^= x >> 7; x ^= x << 17; ++*counter; until rcx is 0; then int3.
constexpr uint8_t kLoop[] = {
    0x48, 0x89, 0xc2, 0x48, 0xc1, 0xe2, 0x0d, 0x48, 0x31, 0xd0, 0x48, 0x89, 0xc2, 0x48, 0xc1,
    0xea, 0x07, 0x48, 0x31, 0xd0, 0x48, 0x89, 0xc2, 0x48, 0xc1, 0xe2, 0x11, 0x48, 0x31, 0xd0,
    0x48, 0x83, 0xe9, 0x01, 0x48, 0x83, 0x03, 0x01, 0x48, 0x85, 0xc9, 0x75, 0xd5, 0xcc,
};
constexpr uint64_t kTurns = 4;

struct State {
  user_regs_struct regs;
  uint64_t counter;
};

struct Computation {
  Stub stub;
  std::vector<State> states;
};

// All states that the loop passes through. `flags`: of the mapping of its code.
Computation loop(int flags) {
  auto stub = Stub::spawn();
  REQUIRE_MESSAGE(stub, stub.error().message);
  const NamelessFile file(Bytes(std::begin(kLoop), std::end(kLoop)));
  const pid_t tid = stub->pid();
  REQUIRE(stub->map_file(tid, file.path(), kCode, kPageSize, PROT_READ | PROT_EXEC, flags, 0));
  REQUIRE(stub->map_anonymous(tid, kCounter, kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE));
  Computation out{std::move(stub).value(), {}};
  user_regs_struct regs{};
  REQUIRE(get_regs(tid, regs));
  regs.rip = kCode;
  regs.rax = 88172645463325252u;
  regs.rbx = kCounter;
  regs.rcx = kTurns;
  regs.orig_rax = ~0ull;
  REQUIRE(set_regs(tid, regs));
  while (regs.rip != kCode + sizeof kLoop - 1) {
    uint64_t counter = 0;
    REQUIRE(out.stub.memory().get(kCounter, counter));
    out.states.push_back({regs, counter});
    int status = 0;
    REQUIRE_EQ(ptrace(PTRACE_SINGLESTEP, tid, nullptr, nullptr), 0);
    REQUIRE(wait_for(tid, status));
    REQUIRE_EQ(status >> 8, SIGTRAP);
    REQUIRE(get_regs(tid, regs));
  }
  REQUIRE_EQ(out.states.size() % kTurns, 0);
  return out;
}

void stop_everywhere(const Computation& computation) {
  const auto& states = computation.states;
  const Stub& stub = computation.stub;
  size_t comparing = 0;
  for (size_t from = 0; from < states.size(); ++from) {
    for (size_t to = from + 1; to < states.size(); ++to) {
      CAPTURE(from);
      CAPTURE(to);
      REQUIRE(set_regs(stub.pid(), states[from].regs));
      REQUIRE(stub.memory().put(kCounter, states[from].counter));
      auto probe = Probe::set(stub, stub.pid(), states[to].regs);
      REQUIRE_MESSAGE(probe, probe.error().message);
      comparing += probe->compares();
      user_regs_struct regs{};
      for (;;) {
        int status = 0;
        REQUIRE_EQ(ptrace(PTRACE_CONT, stub.pid(), nullptr, nullptr), 0);
        REQUIRE(wait_for(stub.pid(), status));
        REQUIRE_EQ(status >> 8, SIGTRAP);
        REQUIRE(get_regs(stub.pid(), regs));
        const auto stop = probe->at(regs);
        REQUIRE(stop != Probe::Stop::elsewhere);
        if (stop == Probe::Stop::wanted) break;
        REQUIRE(probe->pass(stub.pid(), regs));
      }
      CHECK(same_registers(regs, states[to].regs));
      REQUIRE(probe->remove(stub.pid(), regs));
      uint8_t code[sizeof kLoop];
      REQUIRE(stub.memory().read(kCode, code, sizeof code));
      CHECK(std::equal(std::begin(code), std::end(code), kLoop));
    }
  }
  CHECK(comparing > 0);
}

}  // namespace

TEST_CASE("a probe stops a thread at each state of a loop, from each state before it, also in shared code") {
  for (const int flags : {MAP_PRIVATE, MAP_SHARED_VALIDATE}) {
    CAPTURE(flags);
    stop_everywhere(loop(flags));
  }
}

TEST_CASE("a probe is not intact if shared code was written beside it") {
  const Bytes code(2 * kPageSize, 0x90);
  const NamelessFile file(code);
  auto stub = Stub::spawn();
  REQUIRE_MESSAGE(stub, stub.error().message);
  const pid_t tid = stub->pid();
  REQUIRE(stub->map_file(tid, file.path(), kCode, code.size(), PROT_READ | PROT_EXEC, MAP_SHARED_VALIDATE, 0));
  user_regs_struct regs{};
  REQUIRE(get_regs(tid, regs));
  regs.orig_rax = ~0ull;
  const auto before = read_mappings(stub->pid());
  REQUIRE(before);
  user_regs_struct wanted = regs;
  wanted.rip = kCode + kPageSize - 2;  // what is inserted lies in two pages
  const auto probe = Probe::set(*stub, tid, wanted);
  REQUIRE_MESSAGE(probe, probe.error().message);
  CHECK(probe->intact());
  REQUIRE_EQ(pwrite(file.fd.get(), "\xcc", 1, 100), 1);
  CHECK(!probe->intact());
  REQUIRE(probe->remove(tid, regs));
  const auto after = read_mappings(stub->pid());
  REQUIRE(after);
  REQUIRE_EQ(after->size(), before->size());
  for (size_t i = 0; i < after->size(); ++i) {
    CHECK((*after)[i].start == (*before)[i].start);
    CHECK((*after)[i].end == (*before)[i].end);
    CHECK((*after)[i].inode == (*before)[i].inode);
  }
  uint8_t written = 0;
  CHECK(stub->memory().get(kCode + 100, written));
  CHECK(written == 0xcc);
}

TEST_CASE("what a program writes to shared code while a probe is there stays") {
  const NamelessFile file(Bytes(kPageSize, 0x90));
  auto stub = Stub::spawn();
  REQUIRE_MESSAGE(stub, stub.error().message);
  const pid_t tid = stub->pid();
  const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
  REQUIRE(stub->map_file(tid, file.path(), kCode, kPageSize, all, MAP_SHARED, 0));
  user_regs_struct regs{};
  REQUIRE(get_regs(tid, regs));
  regs.orig_rax = ~0ull;
  user_regs_struct wanted = regs;
  wanted.rip = kCode + 1000;
  const auto probe = Probe::set(*stub, tid, wanted);
  REQUIRE_MESSAGE(probe, probe.error().message);
  Bytes object(kPageSize);
  REQUIRE_EQ(pread(file.fd.get(), object.data(), object.size(), 0), kPageSize);
  CHECK(object == Bytes(kPageSize, 0x90));
  REQUIRE(stub->memory().put(kCode + 100, uint8_t{0xcc}));
  REQUIRE(probe->remove(tid, regs));
  REQUIRE_EQ(pread(file.fd.get(), object.data(), object.size(), 0), kPageSize);
  CHECK(object[100] == 0xcc);
  CHECK(std::count(object.begin(), object.end(), 0x90) == kPageSize - 1);
}

}  // namespace redrive::probe_test
