// When the record loop runs before others, and when no more.
#include "supervisor/record/placement/precedence.h"

#include <vector>

#include "tests/unit/unit_test.h"

namespace redrive::precedence_test {
namespace {

using namespace std::chrono_literals;

struct Starving {
  double kept = 0.7;  // from running: of the time, unless it comes first
  bool allowed = true, first = false;
  std::vector<bool> asked;
  std::chrono::nanoseconds waited{};
  Clock::time_point now{1h};
  Precedence precedence{{[this] { return static_cast<uint64_t>(waited.count()); },
                         [this](bool come) {
                           asked.push_back(come);
                           if (allowed) first = come;
                           return allowed;
                         }}};

  // Returns for how long it came first.
  Clock::duration pass(Clock::duration time) {
    Clock::duration preferred{};
    for (constexpr auto kTick = 5ms; time > 0s; time -= kTick) {
      now += kTick;
      if (first) preferred += kTick;
      if (!first) waited += std::chrono::duration_cast<std::chrono::nanoseconds>(kTick * kept);
      precedence.look(now);
    }
    return preferred;
  }
};

TEST_CASE("a record loop that is kept from running comes first, and sees now and then whether it still needs to") {
  Starving thread;
  CHECK_GT(thread.pass(10s), 9s);
  CHECK_GE(thread.asked.size(), 8u);
  thread.kept = 0.1;
  thread.pass(2s);
  CHECK_FALSE(thread.first);
  CHECK_EQ(thread.pass(10s), 0s);
}

TEST_CASE("one that gets what it needs stays as it is") {
  Starving thread;
  thread.kept = 0.3;
  CHECK_EQ(thread.pass(10s), 0s);
  CHECK(thread.asked.empty());
}

TEST_CASE("without the privilege it asks once") {
  Starving thread;
  thread.allowed = false;
  CHECK_EQ(thread.pass(10s), 0s);
  CHECK_EQ(thread.asked.size(), 1u);
}

TEST_CASE("it does not stay first when the recording ends") {
  bool first = false;
  {
    Starving thread;
    Precedence precedence{{[&] { return static_cast<uint64_t>(thread.waited.count()); },
                           [&](bool come) {
                             first = come;
                             return true;
                           }}};
    for (int i = 0; i < 30; ++i) {
      thread.waited += 10ms;
      precedence.look(thread.now += 10ms);
    }
    CHECK(first);
  }
  CHECK_FALSE(first);
}

}  // namespace
}  // namespace redrive::precedence_test
