// The vDSO of a child of this process: with the patch its functions make system calls, and without it they do not.
#include "supervisor/record/vdso_patch.h"

#include <sys/auxv.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/page.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/attachable.h"
#include "tests/unit/unit_test.h"

using namespace redrive;

TEST_CASE("a vDSO is patched and restored in place") {
  const Address start = vdso_address(getpid());
  REQUIRE_EQ(start, getauxval(AT_SYSINFO_EHDR));
  const auto range = mapped_from(getpid(), start);
  REQUIRE((range && *range));
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto patch = VdsoPatch::read(*memory, start, (*range)->end);
  REQUIRE(patch);
  CHECK(patch->holds(start));
  CHECK_FALSE(patch->holds((*range)->end));
  uint8_t instruction[2] = {};
  REQUIRE(memory->get(patch->syscall_instruction(), instruction));
  CHECK_EQ(instruction[0], 0x0f);
  CHECK_EQ(instruction[1], 0x05);

  Bytes before((*range)->end - start), during = before, after = before;
  REQUIRE(memory->read(start, before.data(), before.size()));
  REQUIRE(patch->apply(*memory));
  timespec now{};
  const int told = clock_gettime(CLOCK_MONOTONIC, &now);
  const time_t seconds = time(nullptr);
  REQUIRE(memory->read(start, during.data(), during.size()));
  REQUIRE(patch->undo(*memory));
  REQUIRE(memory->read(start, after.data(), after.size()));
  CHECK_EQ(told, 0);
  CHECK(now.tv_sec > 0);
  CHECK(seconds > 0);
  CHECK(during != before);
  CHECK(after == before);
  CHECK_EQ(patch->mapping().start, start);
}

TEST_CASE("what is no vDSO is not patched") {
  static uint8_t page[kPageSize] = {};
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto start = reinterpret_cast<Address>(page);
  CHECK_FALSE(VdsoPatch::read(*memory, start, start + sizeof page));
  CHECK_FALSE(VdsoPatch::read(*memory, start, start));
}

TEST_CASE("attaching is refused before anything is touched") {
  CHECK_EQ(attachable_tree(getpid()).error().message.find("redrive itself") == std::string::npos, false);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended{};
  REQUIRE_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  CHECK(attachable_tree(child).error().message.find("has ended") != std::string::npos);
  waitpid(child, nullptr, 0);
  CHECK_EQ(attachable_tree(child).error().message, "there is no process " + std::to_string(child));
}
