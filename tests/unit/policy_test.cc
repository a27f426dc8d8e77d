// Logging policies, decision by decision. Their promises over whole executions: simulation_test.cc.
#include "logstore/policy/policy.h"

#include <set>

#include "tests/unit/unit_test.h"

using namespace redrive;

namespace {

constexpr uint64_t kC = 7;
constexpr uint64_t kT = 4;

std::unique_ptr<Policy> make(const std::string& name, PolicyParameters parameters = {kC, kT}) {
  return make_policy(name, parameters).value();
}

Tag tag(uint64_t path_ns) { return Tag{path_ns}; }

Keep receive(Policy& policy, uint32_t unit, uint64_t at_ns, uint64_t path_ns) {
  const auto decision = policy.on_receive(unit, at_ns, tag(path_ns), 1);
  CHECK_FALSE(decision.force_checkpoint_first);
  return decision.keep;
}

}  // namespace

TEST_CASE("every listed policy can be made by its name") {
  std::set<std::string> names;
  for (const auto& policy : policies()) {
    CAPTURE(policy.name);
    CHECK(names.insert(policy.name).second);
    CHECK_FALSE(std::string(policy.summary).empty());
    CHECK(make_policy(policy.name, {kC, kT}));
  }
  CHECK_EQ(names, std::set<std::string>{"critical-path", "fewest-bytes", "critical-path-multiplicity", "makespan",
                                        "replay-set", "domino", "mrt", "ros", "all", "none"});
  CHECK_EQ(std::string(policies().front().name), "critical-path");
}

TEST_CASE("an unknown policy is a usage error that names the known ones") {
  const auto made = make_policy("best", {kC, kT});
  REQUIRE_FALSE(made);
  CHECK(made.error().status == Status::usage);
  CHECK_EQ(made.error().message,
           "there is no policy 'best': there are critical-path, fewest-bytes, critical-path-multiplicity, makespan, "
           "replay-set, domino, "
           "mrt, ros, all, none");
}

TEST_CASE("join is associative, commutative and idempotent") {
  for (uint64_t a : {0, 3, 9}) {
    for (uint64_t b : {0, 3, 9}) {
      CHECK_EQ(join(tag(a), tag(b)).critical_path_ns, std::max(a, b));
      CHECK_EQ(join(tag(b), tag(a)).critical_path_ns, std::max(a, b));
    }
  }
}

TEST_CASE("all keeps, none drops") {
  const auto all = make("all"), none = make("none");
  for (uint64_t path_ns : {uint64_t{0}, kC, UINT64_MAX}) {
    CHECK(receive(*all, 1, 1, path_ns) == Keep::keep);
    CHECK(receive(*none, 1, 1, path_ns) == Keep::drop);
  }
}

TEST_CASE("critical-path: the tag of a send is the longest path to it") {
  const auto policy = make("critical-path");
  policy->on_checkpoint(1);
  CHECK_EQ(policy->on_send(1, 2, 1).critical_path_ns, 2);
  CHECK(receive(*policy, 1, 3, 6) == Keep::drop);  // longer than its own 3
  CHECK_EQ(policy->on_send(1, 4, 1).critical_path_ns, 7);
  policy->on_checkpoint(1);
  CHECK_EQ(policy->on_send(1, 1, 1).critical_path_ns, 1);
}

TEST_CASE("critical-path: a shorter path does not shorten the receiver's") {
  const auto policy = make("critical-path");
  policy->on_checkpoint(1);
  CHECK(receive(*policy, 1, 3, 1) == Keep::drop);
  CHECK_EQ(policy->on_send(1, 3, 1).critical_path_ns, 3);
}

TEST_CASE("critical-path: keeps exactly what could exceed C with what remains of T") {
  for (uint64_t at_ns = 0; at_ns <= kT; ++at_ns) {
    for (uint64_t path_ns = 0; path_ns <= 2 * kC; ++path_ns) {
      CAPTURE(at_ns);
      CAPTURE(path_ns);
      const auto policy = make("critical-path");
      policy->on_checkpoint(1);
      CHECK((receive(*policy, 1, at_ns, path_ns) == Keep::keep) == (path_ns + (kT - at_ns) > kC));
    }
  }
}

TEST_CASE("critical-path: a kept message does not lengthen the path") {
  const auto policy = make("critical-path");
  policy->on_checkpoint(1);
  CHECK(receive(*policy, 1, 1, 100) == Keep::keep);
  CHECK_EQ(policy->on_send(1, 2, 1).critical_path_ns, 2);
}

// With the C and T of Netzer et al., figure 2, whose m2 is logged for the same reason; the times are ours.
TEST_CASE("critical-path: a chain through three intervals is cut where it would exceed C") {
  const auto policy = make("critical-path");
  for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit);
  const Tag m1 = policy->on_send(1, 3, 1);
  CHECK(policy->on_receive(2, 1, m1, 1).keep == Keep::drop);  // 3 + 3 <= 7
  const Tag m2 = policy->on_send(2, 3, 1);
  CHECK_EQ(m2.critical_path_ns, 5);
  CHECK(policy->on_receive(3, 1, m2, 1).keep == Keep::keep);  // 5 + 3 > 7
  CHECK(policy->on_receive(3, 2, m2, 1).keep == Keep::drop);  // 5 + 2 <= 7: late enough
}

TEST_CASE("critical-path: units are independent") {
  const auto policy = make("critical-path");
  policy->on_checkpoint(1);
  policy->on_checkpoint(2);
  policy->on_send(1, 3, 1);
  CHECK_EQ(policy->on_send(2, 1, 1).critical_path_ns, 1);
  policy->on_checkpoint(1);
  CHECK_EQ(policy->on_send(2, 2, 1).critical_path_ns, 2);
}

TEST_CASE("critical-path: birth, with a long and a short way behind it") {
  const auto policy = make("critical-path");
  policy->on_checkpoint(1);
  const Tag early = policy->on_send(1, 1, 1), late = policy->on_send(1, 4, 1);
  policy->on_checkpoint(2);
  CHECK(policy->on_receive(2, 0, early, 0).keep == Keep::drop);
  CHECK_EQ(policy->on_send(2, 2, 1).critical_path_ns, 3);
  policy->on_checkpoint(3);
  CHECK(policy->on_receive(3, 0, late, 0).keep == Keep::keep);  // 4 + 4 > 7: a checkpoint at birth
}

TEST_CASE("critical-path: an interval that outgrows T, clocks that stand still, and extremes") {
  const auto policy = make("critical-path");
  policy->on_checkpoint(1);
  CHECK(receive(*policy, 1, kT + 5, kC) == Keep::drop);  // nothing remains
  CHECK(receive(*policy, 1, kT + 5, kC + 1) == Keep::keep);
  CHECK_EQ(policy->on_send(1, kT + 4, 1).critical_path_ns, 9);  // earlier than the previous event: no time passed
  CHECK(receive(*policy, 1, kT + 5, UINT64_MAX) == Keep::keep);
  const auto short_limit = make("critical-path", {3, 4});  // C < T: the first receives cannot be dropped
  CHECK(receive(*short_limit, 1, 0, 0) == Keep::keep);
  CHECK(receive(*short_limit, 1, 1, 0) == Keep::drop);
  const auto unlimited = make("critical-path", {UINT64_MAX, UINT64_MAX});
  CHECK(receive(*unlimited, 1, 0, 1) == Keep::keep);
  CHECK(receive(*unlimited, 1, 1, 1) == Keep::drop);
}
