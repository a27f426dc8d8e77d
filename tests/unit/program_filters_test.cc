// Filters of recorded programs, compared with how the kernel treats the same filters.
#include "interceptors/program_filters.h"

#include <linux/audit.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <random>

#include "tests/unit/unit_test.h"

namespace redrive::program_filters_test {
namespace {

using Program = std::vector<sock_filter>;

constexpr int kFiltered = SYS_getpgid;  // with arguments that the call does not have
constexpr std::array<uint64_t, 6> kArguments = {0x123456789abcdef0, 1, 0xffffffffffffffff, 0, 42, 0x8000000000000000};
constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;

// A mostly valid program that computes with the call's data.
Program random_program(std::mt19937& random) {
  const auto below = [&](uint32_t limit) { return std::uniform_int_distribution<uint32_t>(0, limit - 1)(random); };
  constexpr uint16_t kOperations[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_AND, BPF_OR, BPF_XOR, BPF_LSH, BPF_RSH};
  constexpr uint16_t kTests[] = {BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET};
  Program program;
  const uint32_t size = 2 + below(30);
  while (program.size() + 1 < size) {
    const auto left = static_cast<uint32_t>(size - program.size() - 1);
    const uint32_t number = below(4) ? below(40) : random();
    switch (below(10)) {
      case 0:
      case 1:
        program.push_back(BPF_STMT(kLoad, below(16) * 4));
        break;
      case 2:
        program.push_back(BPF_STMT(BPF_LD | BPF_IMM, number));
        break;
      case 3:
        program.push_back(BPF_STMT(static_cast<uint16_t>(below(2) ? BPF_ST : BPF_STX), below(16)));
        break;
      case 4:
        program.push_back(BPF_STMT(static_cast<uint16_t>((below(2) ? BPF_LD : BPF_LDX) | BPF_MEM), below(17)));
        break;
      case 5:
        program.push_back(BPF_STMT(static_cast<uint16_t>(BPF_MISC | (below(2) ? BPF_TAX : BPF_TXA)), 0));
        break;
      case 6:
        program.push_back(BPF_STMT(BPF_ALU | BPF_NEG, 0));
        break;
      case 7:
        program.push_back(BPF_JUMP(static_cast<uint16_t>(BPF_JMP | kTests[below(4)] | (below(2) ? BPF_X : BPF_K)),
                                   number, static_cast<uint8_t>(below(left + (below(20) == 0))),
                                   static_cast<uint8_t>(below(left))));
        break;
      default:
        program.push_back(
            BPF_STMT(static_cast<uint16_t>(BPF_ALU | kOperations[below(9)] | (below(2) ? BPF_X : BPF_K)), number));
        break;
    }
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_A, 0));
  if (below(20) == 0) program[below(size)].code = static_cast<uint16_t>(random());
  return program;
}

// The same filter for that one call; all others are allowed. Its answer becomes an errno.
Program for_one_call(const Program& body) {
  Program program{BPF_STMT(kLoad, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kFiltered, 1, 0),
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  for (const sock_filter& instruction : body) {
    if (instruction.code == (BPF_RET | BPF_A)) {
      program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xfff));
      program.push_back(BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO));
    }
    program.push_back(instruction);
  }
  return program;
}

// How the kernel treats it: -1 if it refuses the filter, the errno of the call, or -2 if the process was killed.
int kernels_answer(const Program& program) {
  int told[2];
  REQUIRE(pipe(told) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const sock_fprog filter{static_cast<unsigned short>(program.size()), const_cast<sock_filter*>(program.data())};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int answer = -1;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) {
      const auto& a = kArguments;
      answer = syscall(kFiltered, a[0], a[1], a[2], a[3], a[4], a[5]) < 0 ? errno : 0;
    }
    [[maybe_unused]] const ssize_t written = write(told[1], &answer, sizeof answer);
    _exit(0);
  }
  close(told[1]);
  int answer = -2;
  if (read(told[0], &answer, sizeof answer) != sizeof answer) answer = -2;
  close(told[0]);
  waitpid(child, nullptr, 0);
  return answer;
}

int our_answer(const Program& program) {
  if (!is_valid_filter(program)) return -1;
  seccomp_data call{kFiltered, AUDIT_ARCH_X86_64, 0, {}};
  std::copy(kArguments.begin(), kArguments.end(), call.args);
  const uint32_t answer = ProgramFilters(program, nullptr).answer(call);
  return (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO ? static_cast<int>(answer & SECCOMP_RET_DATA) : -2;
}

bool asks_for_place(const Program& program) {
  return std::any_of(program.begin(), program.end(), [](const sock_filter& instruction) {
    return instruction.code == kLoad && (instruction.k == 8 || instruction.k == 12);
  });
}

TEST_CASE("a filter is valid, and answers, as in the kernel") {
  std::mt19937 random(20261122);
  int refused = 0, answered = 0;
  for (int i = 0; i < 600; ++i) {
    const Program program = for_one_call(random_program(random));
    if (asks_for_place(program)) continue;  // the place in the C library is not known here
    const int kernels = kernels_answer(program);
    CAPTURE(i);
    CHECK(our_answer(program) == kernels);
    (kernels == -1 ? refused : answered) += 1;
  }
  CHECK(refused > 50);
  CHECK(answered > 50);
}

TEST_CASE("the strictest filter of a chain answers, and of equals the newest") {
  const auto always = [](uint32_t answer, std::shared_ptr<const ProgramFilters> older) {
    return std::make_shared<const ProgramFilters>(Program{BPF_STMT(BPF_RET | BPF_K, answer)}, std::move(older));
  };
  const auto first = always(SECCOMP_RET_ERRNO | 1, nullptr);
  const auto second = always(SECCOMP_RET_ERRNO | 2, first);
  const auto third = always(SECCOMP_RET_ALLOW, second);
  const auto fourth = always(SECCOMP_RET_KILL_PROCESS, third);
  const seccomp_data call{};
  CHECK(second->answer(call) == (SECCOMP_RET_ERRNO | 2));
  CHECK(third->answer(call) == (SECCOMP_RET_ERRNO | 2));
  CHECK(always(SECCOMP_RET_TRAP, fourth)->answer(call) == SECCOMP_RET_KILL_PROCESS);
  CHECK(third->descends_from(nullptr));
  CHECK(third->descends_from(first.get()));
  CHECK_FALSE(first->descends_from(third.get()));
}

TEST_CASE("calls that a filter always allows are told from those that it may forbid") {
  const Program program{
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3),
      BPF_STMT(kLoad, offsetof(seccomp_data, args)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD)};
  REQUIRE(is_valid_filter(program));
  const ProgramFilters filters(program, nullptr);
  const auto restricted = [&](int number) { return filters.restricted()[number / 64] >> number % 64 & 1; };
  CHECK_FALSE(restricted(SYS_read));
  CHECK(restricted(SYS_write));
  CHECK(restricted(SYS_open));
}

}  // namespace
}  // namespace redrive::program_filters_test
