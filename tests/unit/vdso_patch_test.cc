// The vDSO of a child of this process: with the patch its functions make system calls, and without it they do not.
#include "supervisor/record/code/vdso_patch.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/page.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/attach/attachable.h"
#include "tests/unit/unit_test.h"

namespace redrive::vdso_patch_test {

TEST_CASE("a vDSO is patched and restored in place") {
  const Address start = vdso_address(getpid());
  REQUIRE_EQ(start, getauxval(AT_SYSINFO_EHDR));
  const auto range = mapped_from(getpid(), start);
  REQUIRE((range && *range));
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto patch = VdsoPatch::of_process(getpid(), *memory);
  REQUIRE(patch);
  CHECK(patch->range() == AddressRange{(*range)->start, (*range)->end});
  CHECK_FALSE(patch->was_patched());
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

TEST_CASE("a vDSO that was left patched is known again") {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const auto memory = Memory::open(child);
  const auto patch = memory ? VdsoPatch::of_process(child, *memory) : Result<VdsoPatch>(memory.error());
  bool known = false, same = false;
  if (patch && patch->apply(*memory)) {
    const auto again = VdsoPatch::of_process(child, *memory);
    known = again && again->was_patched() && again->undo(*memory);
    const AddressRange range = patch->range();
    Bytes found(range.end - range.start);
    const auto* const own = reinterpret_cast<const uint8_t*>(range.start);  // a fork has it at the same address
    same = memory->read(range.start, found.data(), found.size()) && std::equal(found.begin(), found.end(), own);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(known);
  CHECK(same);
}

TEST_CASE("what is interrupted in the patch continues where it is right without") {
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto patch = VdsoPatch::of_process(getpid(), *memory);
  REQUIRE(patch);
  const auto* const function =
      static_cast<const uint8_t*>(dlsym(dlopen("linux-vdso.so.1", RTLD_NOLOAD | RTLD_LAZY), "__vdso_gettimeofday"));
  REQUIRE(function);
  const auto start = reinterpret_cast<Address>(function);
  constexpr Address kLoad = 5, kCall = 2, kCaller = 0x1234;
  Address stack[] = {kCaller, 0};
  const auto top = reinterpret_cast<Address>(stack);
  const auto moved = [&](Address offset) {
    std::pair place{start + offset, top};
    const bool was_moved = patch->move_out(*memory, place.first, place.second);
    CHECK_EQ(was_moved, place != std::pair(start + offset, top));
    return place;
  };
  CHECK(moved(0) == std::pair(start, top));
  CHECK(moved(kLoad) == std::pair(start, top));  // before its call
  CHECK(moved(kLoad + kCall) == std::pair(kCaller, top + sizeof(Address)));
  CHECK(moved(kLoad + kCall + 1) == std::pair(start + kLoad + kCall + 1, top));  // what is the same in both states
}

TEST_CASE("what is no vDSO is not patched") {
  CHECK_FALSE(VdsoPatch::of(kPageSize, Bytes(kPageSize)));
  CHECK_FALSE(VdsoPatch::of(kPageSize, {}));
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

}  // namespace redrive::vdso_patch_test
