// The memory of a traced process, accessed with and without a descriptor.
#include "base/remote.h"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/unit_test.h"

namespace redrive::remote_test {
namespace {

// A stopped, traced child with a page that it may not write to and one that it may not even read.
struct Traced {
  Traced() {
    void* const made = mmap(nullptr, 3 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(made != MAP_FAILED);
    pages = reinterpret_cast<Address>(made);
    for (size_t i = 0; i < 3 * kPageSize; ++i) static_cast<uint8_t*>(made)[i] = static_cast<uint8_t>(i % 251);
    pid = fork();
    if (pid == 0) {
      mprotect(made, kPageSize, PROT_READ | PROT_EXEC);
      mprotect(reinterpret_cast<void*>(pages + kPageSize), kPageSize, PROT_NONE);
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      raise(SIGSTOP);
      _exit(0);
    }
    REQUIRE(waitpid(pid, nullptr, 0) == pid);
  }
  ~Traced() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    munmap(reinterpret_cast<void*>(pages), 3 * kPageSize);
  }

  pid_t pid = -1;
  Address pages = 0;
};

// While this exists, no file can be opened.
struct NoDescriptors {
  NoDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{0, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before); }

  rlimit before{};
};

void reads_and_writes(const Memory& memory, Address pages) {
  Bytes found(2 * kPageSize), expected(found.size());
  constexpr size_t kFrom = 3;  // across both page boundaries
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<uint8_t>((i + kFrom) % 251);
  REQUIRE(memory.read(pages + kFrom, found.data(), found.size()));
  CHECK(found == expected);
  const uint8_t written[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  for (const Address at : {pages + 5, pages + kPageSize - 4, pages + 2 * kPageSize - 7, pages + 2 * kPageSize + 1}) {
    uint8_t around[sizeof written + 2];
    REQUIRE(memory.read(at - 1, around, sizeof around));
    REQUIRE(memory.write(at, written, sizeof written));
    uint8_t now[sizeof around];
    REQUIRE(memory.read(at - 1, now, sizeof now));
    CHECK(now[0] == around[0]);
    CHECK(std::equal(std::begin(written), std::end(written), now + 1));
    CHECK(now[sizeof now - 1] == around[sizeof around - 1]);
  }
  CHECK(memory.read_some(pages + 3 * kPageSize - 8, found.data(), 8) == 8);
  CHECK_FALSE(memory.write(8, written, sizeof written));
  CHECK_FALSE(memory.read(8, found.data(), 8));
}

}  // namespace

TEST_CASE("memory of a stopped process, whatever protects it") {
  const Traced traced;
  const auto memory = Memory::open(traced.pid);
  REQUIRE(memory);
  reads_and_writes(*memory, traced.pages);
}

TEST_CASE("... while no files can be opened") {
  const Traced traced, other;
  const auto opened = Memory::open(other.pid);
  const NoDescriptors none;
  const auto memory = Memory::open(traced.pid);
  REQUIRE(opened);
  REQUIRE(memory);
  reads_and_writes(*memory, traced.pages);
  reads_and_writes(Memory::shared(other.pid, *opened), other.pages);
  CHECK_FALSE(memory->gone());
  kill(traced.pid, SIGKILL);
  siginfo_t end;
  REQUIRE(waitid(P_PID, static_cast<id_t>(traced.pid), &end, WEXITED | WNOWAIT) == 0);
  CHECK(memory->gone());
}

TEST_CASE("memory that is gone is told from memory that cannot be read") {
  const Traced traced;
  const auto memory = Memory::open(traced.pid);
  REQUIRE(memory);
  const Memory whole = Memory::snapshot(*memory), lacking = Memory::snapshot(*memory), gone = Memory::snapshot(*memory);
  uint8_t byte = 0;
  CHECK(whole.get(traced.pages, byte));
  CHECK_FALSE(lacking.get(8, byte));
  CHECK_FALSE(memory->gone());
  CHECK_FALSE(lacking.gone());
  kill(traced.pid, SIGKILL);
  siginfo_t end;
  REQUIRE(waitid(P_PID, static_cast<id_t>(traced.pid), &end, WEXITED | WNOWAIT) == 0);
  CHECK(memory->gone());
  CHECK(lacking.gone());
  CHECK_FALSE(whole.gone());  // what it says was read before
  CHECK_FALSE(gone.get(traced.pages, byte));
  CHECK(gone.gone());
}

}  // namespace redrive::remote_test
