// Lower bounds: of executions whose optimum is known, of those small enough to try every choice, and compared with what
// policies keep.
#include "supervisor/evaluation/lower_bound.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "supervisor/evaluation/excess.h"
#include "tests/unit/unit_test.h"

namespace redrive::lower_bound_test {

namespace {

using What = Execution::What;

constexpr uint64_t kMs = 1'000'000;

// An execution written down by hand, in milliseconds. Every unit begins with a program.
class Writer {
 public:
  explicit Writer(uint32_t units) {
    execution_.units = units;
    for (uint32_t unit = 0; unit < units; ++unit) add(What::program, unit, 0);
  }

  uint32_t send(uint32_t unit, uint64_t at_ms) {
    add(What::send, unit, at_ms);
    return static_cast<uint32_t>(execution_.steps.size() - 1);
  }
  void receive(uint32_t unit, uint64_t at_ms, uint32_t send, uint64_t bytes) {
    Execution::Step& step = add(What::receive, unit, at_ms);
    step.message = true;
    step.bytes = bytes;
    step.first_sender = static_cast<uint32_t>(execution_.senders.size());
    step.sender_count = 1;
    execution_.senders.push_back(send);
  }
  void checkpoint(uint32_t unit, uint64_t at_ms) { add(What::checkpoint, unit, at_ms); }
  void end(uint32_t unit, uint64_t at_ms) { add(What::end, unit, at_ms); }

  const Execution& execution() const { return execution_; }

 private:
  Execution::Step& add(What what, uint32_t unit, uint64_t at_ms) {
    Execution::Step& step = execution_.steps.emplace_back();
    step.what = what;
    step.unit = unit;
    step.at_ns = at_ms * kMs;
    return step;
  }

  Execution execution_;
};

Decided decided_by(const Execution& execution, const char* policy, const PolicyParameters& limits,
                   const CheckpointPlacement& placement = {}) {
  return decide(execution, *make_policy(policy, limits).value(), limits, placement).value();
}

// Whatever is kept by `policy`, it is too much.
LowerBound bound_of(const Execution& execution, uint64_t limit_ms, std::optional<uint32_t> cores = std::nullopt,
                    const char* policy = "all") {
  const Decided decided = decided_by(execution, policy, {});
  return lower_bound(execution, decided, {limit_ms * kMs, cores}).value();
}

void check_bound(const LowerBound& bound, uint64_t messages, uint64_t bytes) {
  CHECK(bound.is_solved);
  CHECK_EQ(bound.messages, messages);
  CHECK_EQ(bound.bytes, bytes);
}

// Three units in a row, each of which computes for 10 ms after it has received what the one before sent.
Execution chain() {
  Writer writer(3);
  const uint32_t first = writer.send(0, 10);
  writer.receive(1, 0, first, 1000);
  const uint32_t second = writer.send(1, 10);
  writer.receive(2, 0, second, 10);
  writer.end(0, 10);
  writer.end(1, 10);
  writer.end(2, 10);
  return writer.execution();
}

// Four units compute for 10 ms each, and send the results to a fifth, which then computes for 10 ms.
Execution star() {
  Writer writer(5);
  for (uint32_t unit = 1; unit < 5; ++unit) writer.receive(0, 0, writer.send(unit, 10), 100 * unit);
  for (uint32_t unit = 0; unit < 5; ++unit) writer.end(unit, 10);
  return writer.execution();
}

// The least that is kept by any choice that keeps the limit. All choices are tried.
struct Least {
  uint64_t bytes = UINT64_MAX, messages = UINT64_MAX;
};

class Choices {
 public:
  Choices(const Execution& execution, Decided decided) {
    std::vector<uint32_t> receives;
    for (uint32_t i = 0; i < execution.steps.size(); ++i) {
      if (is_choice(execution.steps[i])) receives.push_back(i);
    }
    REQUIRE_LE(receives.size(), 12);
    for (uint32_t chosen = 0; chosen < 1u << receives.size(); ++chosen) {
      for (size_t k = 0; k < receives.size(); ++k) decided.kept[receives[k]] = chosen >> k & 1;
      const Costs costs = measure(execution, decided, 1);
      const Logged logged = count_logged(execution, decided);
      choices_.push_back(
          {costs.critical_path_s.largest, costs.work_s.largest, logged.logged_bytes, logged.logged_messages});
    }
  }

  Least least(const ReplayLimit& limit) const {
    const double limit_s = static_cast<double>(limit.path_ns) * 1e-9 + 1e-12;
    Least least;
    for (const auto& choice : choices_) {
      if (choice.path_s > limit_s || (limit.cores && choice.work_s > limit_s * *limit.cores)) continue;
      least.bytes = std::min(least.bytes, choice.bytes);
      least.messages = std::min(least.messages, choice.messages);
    }
    return least;
  }

 private:
  struct Made {
    double path_s = 0, work_s = 0;
    uint64_t bytes = 0, messages = 0;
  };
  std::vector<Made> choices_;
};

}  // namespace

TEST_CASE("lower bound: of a path that is too long, the cheapest message must be kept") {
  check_bound(bound_of(chain(), 30), 0, 0);
  check_bound(bound_of(chain(), 29), 1, 10);
  check_bound(bound_of(chain(), 20), 1, 10);
  check_bound(bound_of(chain(), 19), 2, 1010);
}

TEST_CASE("lower bound: each message between two intervals makes a path of its own") {
  Writer writer(2);
  for (const uint64_t at_ms : {6, 8, 10}) writer.receive(1, 0, writer.send(0, at_ms), at_ms);
  writer.end(0, 10);
  writer.end(1, 10);
  check_bound(bound_of(writer.execution(), 20), 0, 0);
  check_bound(bound_of(writer.execution(), 19), 1, 10);
  check_bound(bound_of(writer.execution(), 17), 2, 18);
  check_bound(bound_of(writer.execution(), 15), 3, 24);
}

TEST_CASE("lower bound: a checkpoint shortens the paths that begin after it") {
  Writer writer(2);
  writer.checkpoint(0, 5);
  writer.receive(1, 0, writer.send(0, 10), 7);
  writer.end(0, 10);
  writer.end(1, 10);
  check_bound(bound_of(writer.execution(), 15), 0, 0);
  check_bound(bound_of(writer.execution(), 14), 1, 7);
}

TEST_CASE("lower bound: the work of a replay set must fit on the cores") {
  check_bound(bound_of(star(), 25), 0, 0);
  check_bound(bound_of(star(), 25, 2), 0, 0);
  check_bound(bound_of(star(), 24, 2), 1, 100);
  check_bound(bound_of(star(), 20, 2), 1, 100);
  check_bound(bound_of(star(), 20, 1), 3, 100 + 200 + 300);
  check_bound(bound_of(star(), 10, 5), 4, 1000);
}

TEST_CASE("lower bound: bytes from the same unit and births cost no message") {
  Writer writer(1);
  const uint32_t send = writer.send(0, 10);
  writer.checkpoint(0, 10);
  writer.receive(0, 10, send, 7);
  writer.end(0, 20);
  Execution execution = writer.execution();
  check_bound(bound_of(execution, 15), 1, 7);
  for (auto& step : execution.steps) step.message = false;
  check_bound(bound_of(execution, 15), 0, 0);
}

TEST_CASE("lower bound: where the decisions exceed the limit, they are the limit") {
  check_bound(bound_of(chain(), 19, std::nullopt, "none"), 0, 0);
  check_bound(bound_of(star(), 10, 1, "none"), 0, 0);
  check_bound(bound_of(chain(), 5), 2, 1010);
}

TEST_CASE("lower bound: it is one also without the time to solve it") {
  const Execution execution = chain();
  const auto bound = lower_bound(execution, decided_by(execution, "all", {}), {19 * kMs, std::nullopt}, 0).value();
  CHECK(!bound.is_solved);
  CHECK_EQ(bound.bytes, 0);
  CHECK_EQ(bound.messages, 0);
}

TEST_CASE("lower bound: executions that are too large are refused") {
  const Execution execution = make_execution({"ring", 2, kMostBoundedMessages + 1, 1});
  const auto bound = lower_bound(execution, decided_by(execution, "none", {}), {kMs, std::nullopt});
  REQUIRE(!bound);
  CHECK_EQ(bound.error().message, "250001 messages are too many for a lower bound; the most are 250000");
}

TEST_CASE("lower bound: it never exceeds the best of all choices") {
  constexpr uint64_t kPeriod = 3 * kMs;
  PolicyParameters limits;
  limits.checkpoint_period_ns = kPeriod;
  int needed = 0, exact = 0;
  for (const auto& pattern : synthetic_patterns()) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      CAPTURE(pattern);
      CAPTURE(seed);
      const Execution execution = make_execution({pattern, 3, 6 + seed % 4, seed});
      const Decided decided = decided_by(execution, "all", limits, {false, seed % 2 ? 0 : kPeriod, seed});
      const Choices choices(execution, decided);
      for (const uint64_t limit_ns : {kPeriod + kMs / 2, 2 * kPeriod}) {
        for (const auto& cores : {std::optional<uint32_t>(), std::optional<uint32_t>(1), std::optional<uint32_t>(2)}) {
          CAPTURE(limit_ns);
          CAPTURE(cores.value_or(0));
          const ReplayLimit limit{limit_ns, cores};
          const Least least = choices.least(limit);
          const LowerBound bound = lower_bound(execution, decided, limit).value();
          CHECK_LE(bound.bytes, least.bytes);
          CHECK_LE(bound.messages, least.messages);
          if (least.bytes == 0) continue;
          needed += 2;
          exact += (bound.bytes == least.bytes) + (bound.messages == least.messages);
        }
      }
    }
  }
  MESSAGE("exact in " << exact << " of " << needed << " cases in which something must be kept");
  CHECK_GT(needed, 100);
  CHECK_GT(exact, 0);
}

TEST_CASE("lower bound: no policy that promises a time keeps less") {
  PolicyParameters limits;
  limits.checkpoint_period_ns = 20 * kMs;
  limits.critical_path_ns = 30 * kMs;
  limits.cores = 2;
  uint64_t least_bytes = 0;
  for (const auto& pattern : synthetic_patterns()) {
    for (const char* policy : {"critical-path", "fewest-bytes", "critical-path-multiplicity", "makespan"}) {
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        CAPTURE(pattern);
        CAPTURE(std::string(policy));
        CAPTURE(seed);
        const Execution execution = make_execution({pattern, 4, 300, seed});
        const Decided decided = decided_by(execution, policy, limits, {false, seed % 2 ? 0 : 20 * kMs, seed});
        ReplayLimit limit{limits.critical_path_ns, std::nullopt};
        if (std::string(policy) == "makespan") limit.cores = limits.cores;
        const LowerBound bound = lower_bound(execution, decided, limit, 0.02).value();
        const Logged logged = count_logged(execution, decided);
        CHECK_LE(bound.bytes, logged.logged_bytes);
        CHECK_LE(bound.messages, logged.logged_messages);
        least_bytes += bound.bytes;
      }
    }
  }
  CHECK_GT(least_bytes, 0);
}

}  // namespace redrive::lower_bound_test
