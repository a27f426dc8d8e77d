#include "supervisor/replay/confined.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "tests/unit/run_filter.h"

namespace redrive::confined_test {

namespace {

constexpr int kOutput = 7;
using Args = std::array<uint64_t, 6>;

uint32_t answer(uint32_t number, const Args& args, uint32_t arch = AUDIT_ARCH_X86_64) {
  return run_filter(confined_filter(kOutput).value(), arch, number, 0, args);
}

std::string failure_of(const std::function<std::string()>& work) {
  const auto text = run_confined({}, work);
  return text ? "none: " + text.value() : text.error().message;
}

// A value that the compiler must not know.
volatile uintptr_t nowhere = 8;  // not a null pointer, which UndefinedBehaviorSanitizer reports before use
volatile bool always = true;

}  // namespace

TEST_CASE("a confined child's filter lets only reading, its memory and its end through") {
  std::set<uint32_t> passing;
  for (uint32_t number = 0; number < 600; ++number) {
    const uint32_t given = answer(number, {});
    CHECK((given == SECCOMP_RET_ALLOW || given == SECCOMP_RET_KILL_PROCESS));
    if (given == SECCOMP_RET_ALLOW) passing.insert(number);
  }
  std::set<uint32_t> expected{SYS_pread64, SYS_brk,     SYS_munmap,         SYS_mprotect,
                              SYS_mremap,  SYS_sysinfo, SYS_rt_sigprocmask, SYS_exit_group};
#ifdef __SANITIZE_ADDRESS__
  expected.insert(SYS_sigaltstack);
#endif
  CHECK(passing == expected);
}

TEST_CASE("a confined child's filter looks at arguments") {
  constexpr uint64_t kReadWrite = PROT_READ | PROT_WRITE;
  CHECK_EQ(answer(SYS_mmap, {0, 4096, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS, ~0ull}), SECCOMP_RET_ALLOW);
  CHECK_EQ(answer(SYS_mmap, {0, 4096, PROT_READ, MAP_PRIVATE, 3}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_mmap, {0, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_mprotect, {4096, 4096, PROT_READ | PROT_EXEC}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_madvise, {4096, 4096, MADV_DONTNEED}), SECCOMP_RET_ALLOW);
  CHECK_EQ(answer(SYS_madvise, {4096, 4096, MADV_HWPOISON}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_futex, {4096, FUTEX_WAKE_PRIVATE}), SECCOMP_RET_ALLOW);
  CHECK_EQ(answer(SYS_futex, {4096, FUTEX_WAIT_PRIVATE}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_write, {kOutput, 4096, 1}), SECCOMP_RET_ALLOW);
  CHECK_EQ(answer(SYS_write, {kOutput + 1, 4096, 1}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_write, {kOutput + (1ull << 32), 4096, 1}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(~0u, {}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_pread64, {}, AUDIT_ARCH_I386), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(SYS_pread64 | __X32_SYSCALL_BIT, {}), SECCOMP_RET_KILL_PROCESS);
}

TEST_CASE("confined work hands back its text, and no more of it than it may") {
  const std::string mine = "here";
  CHECK_EQ(failure_of([&] { return mine + " and there"; }), "none: here and there");
  const auto lots = run_confined({}, [] { return std::string(2 * kMostConfinedText, 'x'); });
  REQUIRE(lots);
  CHECK_EQ(lots->size(), kMostConfinedText);
}

TEST_CASE("confined work can sort much") {
  CHECK_EQ(failure_of([] {
             std::vector<int> numbers(100'000);
             for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = -static_cast<int>(i);
             const auto ascending = [](const void* a, const void* b) {
               const int x = *static_cast<const int*>(a), y = *static_cast<const int*>(b);
               return x < y ? -1 : x > y;
             };
             std::qsort(numbers.data(), numbers.size(), sizeof numbers[0], ascending);
             return std::to_string(numbers.front());
           }),
           "none: -99999");
}

TEST_CASE("confined work that fails says how, and its caller goes on") {
  CHECK_EQ(failure_of([] { return std::string(1, *reinterpret_cast<char*>(nowhere)); }),
           "it crashed (Segmentation fault)");
  CHECK_EQ(failure_of([] {
             while (always) {
             }
             return std::string();
           }),
           "it took more than 2 s");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their operators new do not throw
  CHECK_EQ(failure_of([] { return std::string(1ull << 40, 'x'); }), "it took more than 256 MiB of memory");
#endif
  CHECK_EQ(failure_of([]() -> std::string { throw 1; }), "it failed");
}

TEST_CASE("confined work reaches nothing") {
  const char* const call = "it made a system call that it must not make";
  CHECK_EQ(failure_of([] { return std::to_string(::open("/dev/null", O_RDONLY)); }), call);
  CHECK_EQ(failure_of([] { return std::to_string(::fork()); }), call);
  CHECK_EQ(failure_of([] { return std::to_string(::kill(getppid(), 0)); }), call);
  CHECK_EQ(failure_of([] { return std::to_string(::socket(AF_UNIX, SOCK_STREAM, 0)); }), call);
  CHECK_EQ(failure_of([] { return std::to_string(::write(STDERR_FILENO, "", 0)); }), call);
}

TEST_CASE("confined work reads the descriptors that it is given, and no others") {
  const Fd given(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)),
      kept(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  const int readable[] = {given.get()};
  const auto text = run_confined(readable, [&] {
    char byte = 0;
    return std::to_string(pread(given.get(), &byte, 1, 0)) + " " + std::to_string(pread(kept.get(), &byte, 1, 0));
  });
  REQUIRE(text);
  CHECK_EQ(text.value(), "1 -1");
}

TEST_CASE("work can be confined where limits are low, and beside other threads") {
  std::atomic<bool> over = false;
  std::jthread other([&] {
    while (!over) std::string(100, 'x').swap(*std::make_unique<std::string>());
  });
  for (int i = 0; i < 50; ++i) {
    CHECK_EQ(failure_of([i] { return std::to_string(i); }), "none: " + std::to_string(i));
  }
  over = true;
}

}  // namespace redrive::confined_test
