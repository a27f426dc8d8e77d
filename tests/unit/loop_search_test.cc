#include "supervisor/record/code/loop_search.h"

#include <functional>
#include <iterator>
#include <vector>

#include "tests/unit/unit_test.h"

namespace redrive {
namespace {

constexpr Address kStart = 0x1000;

// Code that executes instruction after instruction, and then begins anew; each may change registers.
struct Code {
  size_t length;
  size_t pause;  // which of them is one; none: length
  std::function<void(size_t instruction, user_regs_struct& regs, Bytes& xstate)> execute;
};

// What is found in so many instructions.
LoopSearch::Loop searched(const Code& program, unsigned instructions) {
  LoopSearch search;
  user_regs_struct regs{};
  Bytes xstate(1024, 0);
  for (unsigned executed = 0; executed < instructions; ++executed) {
    const size_t at = executed % program.length;
    regs.rip = kStart + at;
    if (search.comes_to(regs, at == program.pause, [&] { return xstate; })) break;
    program.execute(at, regs, xstate);
  }
  return search.loop();
}

void do_nothing(size_t, user_regs_struct&, Bytes&) {}

std::vector<Address> all_of(size_t first, size_t length) {
  std::vector<Address> all;
  for (size_t i = 0; i < length; ++i) all.push_back(kStart + (first + i) % length);
  return all;
}

}  // namespace

TEST_CASE("a loop with a pause is known once it was executed, whatever else it does") {
  const Code counts{6, 2, [](size_t at, user_regs_struct& regs, Bytes&) { regs.rax += at == 4; }};
  const auto loop = searched(counts, 20);
  CHECK_EQ(loop.kind, SiteKind::pausing);
  CHECK_EQ(loop.instructions, all_of(2, 6));
  CHECK_EQ(searched(counts, 6).instructions, std::vector<Address>{kStart + 2});
  CHECK(searched(counts, 2).instructions.empty());
}

TEST_CASE("a loop without a pause is one in which a thread waits if it leaves all registers as they were") {
  const auto loop = searched({7, 7, do_nothing}, 40);
  CHECK_EQ(loop.kind, SiteKind::polling);
  CHECK_EQ(loop.instructions, all_of(0, 7));
  CHECK(searched({7, 7, do_nothing}, 14).instructions.empty());  // once is not enough
  const auto counting = [](auto counter) {
    return [counter](size_t at, user_regs_struct& regs, Bytes&) { regs.*counter += at == 3; };
  };
  for (const auto counter : {&user_regs_struct::rax, &user_regs_struct::rcx, &user_regs_struct::r15}) {
    CAPTURE(counter == &user_regs_struct::rcx);
    CHECK(searched({7, 7, counting(counter)}, 1000).instructions.empty());
  }
  const auto adds = [](size_t at, user_regs_struct&, Bytes& xstate) { xstate[160] += at == 3; };
  CHECK(searched({7, 7, adds}, 200).instructions.empty());
}

TEST_CASE("instructions that are executed more than once in a round are not the place to count it") {
  // 0 calls 3 and 4, and so does 1.
  constexpr Address kRound[] = {0, 3, 4, 1, 3, 4, 2};
  LoopSearch search;
  user_regs_struct regs{};
  for (unsigned executed = 0; executed < 100; ++executed) {
    const size_t at = executed % std::size(kRound);
    regs.rip = kStart + kRound[at];
    regs.rsp = at == 1 || at == 2 ? 1 : at == 4 || at == 5 ? 2 : 0;  // by where they return to
    if (search.comes_to(regs, false, [] { return Bytes(1024, 0); })) break;
  }
  CHECK_EQ(search.loop().instructions, std::vector<Address>{kStart, kStart + 1, kStart + 2});
}

}  // namespace redrive
