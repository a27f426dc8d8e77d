// Logging policies, decision by decision. Their promises over whole executions: simulation_test.cc.
#include "logstore/policy/policy.h"

#include <map>
#include <set>

#include "tests/unit/unit_test.h"

namespace redrive::policy_test {

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
  CHECK_EQ(names,
           std::set<std::string>{"deadline", "critical-path", "fewest-bytes", "critical-path-multiplicity", "makespan",
                                 "replay-set", "domino", "mrt", "mrt-waits", "ros", "ros-nt", "all", "none"});
  CHECK_EQ(std::string(policies().front().name), kDefaultPolicy);
}

TEST_CASE("an unknown policy is a usage error that names the known ones") {
  const auto made = make_policy("best", {kC, kT});
  REQUIRE_FALSE(made);
  CHECK(made.error().status == Status::usage);
  CHECK_EQ(
      made.error().message,
      "unknown policy 'best' (choose from deadline, fewest-bytes, critical-path, critical-path-multiplicity, makespan, "
      "replay-set, domino, "
      "mrt, mrt-waits, ros, ros-nt, all, none)");
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

TEST_CASE("an interval whose latest end is known leaves that much room in a path") {
  for (const char* name : {"critical-path", "critical-path-multiplicity", "makespan"}) {
    CAPTURE(std::string(name));
    PolicyParameters parameters{kC, kT};
    parameters.cores = 1'000'000;
    const auto policy = make(name, parameters);
    const auto keeps = [&](uint64_t by_ns, uint64_t path_ns) {
      policy->on_checkpoint(1);
      policy->on_end_known(1, by_ns);
      return policy->on_receive(1, 1, Tag{path_ns, std::make_shared<Needs>()}, 1).keep == Keep::keep;
    };
    CHECK_FALSE(keeps(3, kC - 2));
    CHECK(keeps(3, kC - 1));
    CHECK(keeps(kT + 3, kC - kT + 2));  // T is the limit in any case
    CHECK_FALSE(keeps(kT + 3, kC - kT + 1));
  }
}

TEST_CASE("policies that limit paths take other limits while they decide, mrt and ros do not") {
  for (const char* name : {"critical-path", "critical-path-multiplicity", "makespan", "fewest-bytes"}) {
    CAPTURE(name);
    PolicyParameters parameters{kC, kT};
    parameters.cores = 1024;  // makespan: nearly only the path counts
    const auto policy = make(name, parameters);
    policy->on_checkpoint(1);
    const auto keeps = [&](uint64_t at_ns, uint64_t path_ns) {
      const Tag sent{path_ns, std::make_shared<Needs>(Needs{{2, 0, path_ns}}), nullptr, 1000};
      return policy->on_receive(1, at_ns, sent, 1).keep == Keep::keep;
    };
    CHECK(keeps(1, kC + 1));
    CHECK(policy->set_limits(10 * kC, kT));
    CHECK_FALSE(keeps(1, kC + 1));
    policy->on_checkpoint(1, 2);
    CHECK(policy->set_limits(kC, kT));
    CHECK(keeps(1, kC + 1));
  }
  for (const auto& known : policies()) {
    CAPTURE(known.name);
    const std::string name = known.name;
    CHECK_EQ(make(name)->set_limits(2 * kC, 2 * kT), !name.starts_with("mrt") && !name.starts_with("ros"));
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

namespace {

PolicyParameters with(void (*set)(PolicyParameters&)) {
  PolicyParameters parameters{kC, kT};
  set(parameters);
  return parameters;
}

}  // namespace

TEST_CASE("join unites sets and clocks") {
  const Tag a{1, std::make_shared<Needs>(Needs{{1, 0, 5}, {2, 3, 1}}),
              std::make_shared<VectorClock>(VectorClock{1, 4})};
  const Tag b{2, std::make_shared<Needs>(Needs{{1, 0, 7}, {2, 1, 2}}), std::make_shared<VectorClock>(VectorClock{2})};
  for (const Tag& both : {join(a, b), join(b, a), join(join(a, b), b)}) {
    CHECK_EQ(both.critical_path_ns, 2);
    CHECK(*both.needs == Needs{{1, 0, 7}, {2, 1, 2}, {2, 3, 1}});
    CHECK_EQ(*both.clock, VectorClock{2, 4});
  }
  CHECK(join(a, Tag{}).needs == a.needs);
}

TEST_CASE("a policy's text says its parameters, and can be read again") {
  for (const auto& policy : policies()) {
    PolicyParameters given{kC, kT}, read{kC, kT};
    given.set_bound = 5, given.multiplicity = 6, given.cores = 7, given.approximate = true;
    const std::string text = policy_text(policy, given);
    CAPTURE(text);
    CHECK_EQ(std::string(parse_policy_text(text, read).value()->name), policy.name);
    CHECK_EQ(policy_text(policy, read), text);
  }
  PolicyParameters unused;
  CHECK_EQ(policy_text(*find_policy("replay-set").value(), unused), "replay-set --set-bound 16");
  for (const char* wrong : {"", "best", "replay-set --set-bound", "replay-set --set-bound x", "all --nonsense",
                            "deadline --cores 0", "makespan --cores -1", "replay-set --set-bound 1000001",
                            "critical-path-multiplicity --multiplicity 0", "deadline --cores 4294967297"}) {
    CAPTURE(std::string(wrong));
    const auto parsed = parse_policy_text(wrong, unused);
    REQUIRE_FALSE(parsed);
    CHECK_EQ(parsed.error().status, Status::damaged);
  }
}

TEST_CASE("critical-path-multiplicity: keeps what would add an interval too many of a unit") {
  for (const bool approximate : {false, true}) {
    PolicyParameters parameters{100, kT};
    parameters.approximate = approximate;
    const auto policy = make("critical-path-multiplicity", parameters);  // M = 2
    std::vector<Tag> tags;
    policy->on_checkpoint(2);
    for (int interval = 0; interval < 4; ++interval) {
      policy->on_checkpoint(1);
      tags.push_back(policy->on_send(1, 1, 1));
    }
    CHECK(policy->on_receive(2, 0, tags[0], 1).keep == Keep::drop);
    // Intervals 0 and 2 are two; with what lies between they are three.
    CHECK((policy->on_receive(2, 0, tags[2], 1).keep == Keep::keep) == approximate);
    CHECK((policy->on_receive(2, 0, tags[1], 1).keep == Keep::drop) == approximate);
    CHECK(policy->on_receive(2, 0, tags[3], 1).keep == Keep::keep);
    CHECK(policy->on_receive(2, 0, tags[0], 1).keep == Keep::drop);
  }
}

TEST_CASE("replay-set: keeps what would make the set larger than the bound, and counts nothing twice") {
  const auto policy = make("replay-set", with([](PolicyParameters& p) { p.set_bound = 3; }));
  for (uint32_t unit : {1, 2, 3, 4}) policy->on_checkpoint(unit);
  CHECK(policy->on_receive(2, 1, policy->on_send(1, 1, 1), 1).keep == Keep::drop);
  CHECK(policy->on_receive(3, 1, policy->on_send(2, 2, 1), 1).keep == Keep::drop);  // 1, 2, 3
  CHECK(policy->on_receive(3, 2, policy->on_send(1, 2, 1), 1).keep == Keep::drop);
  CHECK(policy->on_receive(4, 1, policy->on_send(3, 3, 1), 1).keep == Keep::keep);  // 1, 2, 3, 4
  policy->on_checkpoint(3);
  CHECK(policy->on_receive(4, 1, policy->on_send(3, 1, 1), 1).keep == Keep::drop);
}

// Netzer and Xu's domino dependence: through another unit back to an earlier interval of its own.
TEST_CASE("domino: keeps what leads back to an earlier interval of the receiver") {
  const auto policy = make("domino");
  policy->on_checkpoint(1);
  policy->on_checkpoint(2);
  const Tag there = policy->on_send(1, 1, 1);
  CHECK(policy->on_receive(2, 1, there, 1).keep == Keep::drop);
  const Tag back = policy->on_send(2, 2, 1);
  CHECK(policy->on_receive(1, 2, back, 1).keep == Keep::drop);  // its own interval
  policy->on_checkpoint(1);
  CHECK(policy->on_receive(1, 0, back, 1).keep == Keep::keep);
  policy->on_checkpoint(2);
  CHECK(policy->on_receive(1, 0, policy->on_send(2, 0, 1), 1).keep == Keep::drop);
}

TEST_CASE("makespan: on one core the sum of the work counts, on many the longest path") {
  const auto last = [](uint32_t cores) {
    PolicyParameters parameters{12, kT};
    parameters.cores = cores;
    const auto policy = make("makespan", parameters);
    for (uint32_t unit : {1, 2, 3, 4}) policy->on_checkpoint(unit);
    std::vector<Keep> kept;
    for (uint32_t unit : {1, 2, 3}) kept.push_back(policy->on_receive(4, 0, policy->on_send(unit, 4, 1), 1).keep);
    return kept;
  };
  // Of each unit 4 are needed, and 4 remain: 4 + 4, 8 + 4, 12 + 4 of work, but no path longer than 4 + 4.
  CHECK_EQ(last(1), std::vector{Keep::drop, Keep::drop, Keep::keep});
  CHECK_EQ(last(4), std::vector{Keep::drop, Keep::drop, Keep::drop});
}

TEST_CASE("mrt: rule 1 keeps, a later index forces a checkpoint first") {
  const auto policy = make("mrt");
  policy->on_checkpoint(1);
  policy->on_checkpoint(2);
  const Tag early = policy->on_send(1, 1, 1);
  CHECK(policy->on_receive(2, 2, early, 1).keep == Keep::later);
  policy->on_checkpoint(1, 3);
  CHECK_FALSE(policy->wants_checkpoint(2, 3));
  const auto forced = policy->on_receive(2, 3, policy->on_send(1, 0, 1), 1);
  CHECK(forced.keep == Keep::keep);
  CHECK(forced.force_checkpoint_first);
  policy->on_checkpoint(2, 3);
  CHECK(policy->on_receive(2, 0, early, 1).keep == Keep::keep);  // rule 1
}

TEST_CASE("mrt: rule 3 keeps what was sent later after its checkpoint than it was received; ros does not") {
  for (const char* name : {"mrt", "ros-nt", "ros"}) {
    CAPTURE(std::string(name));
    const auto policy = make(name, {160, 80});
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
    const Tag tag = policy->on_send(1, 60, 1);
    CHECK(policy->on_receive(2, 60, tag, 1).keep == Keep::later);
    CHECK_EQ(policy->checkpoint_by_ns(2), UINT64_MAX);
    const Keep waited = std::string(name) == "ros" ? Keep::later : Keep::keep;
    CHECK(policy->on_receive(2, 59, tag, 1).keep == waited);
  }
}

TEST_CASE("mrt-waits: units go to a new index together") {
  const auto policy = make("mrt-waits");
  for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
  policy->on_checkpoint(1, 3);
  CHECK(policy->wants_checkpoint(2, 3));
  CHECK_FALSE(policy->wants_checkpoint(1, 0));
  policy->on_checkpoint(2, 3);
  CHECK_FALSE(policy->wants_checkpoint(2, 0));
}

// Unit 2 receives at 1 what unit 1 has sent at 60 of its 80: they tell each other of that before the next checkpoints.
TEST_CASE("mrt-waits: rule 3 counts the time of waiting, and keeps what made an interval longer than T") {
  for (const uint64_t length : {20, 60}) {
    CAPTURE(length);
    const auto policy = make("mrt-waits", {160, 80});
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
    CHECK_EQ(policy->checkpoint_by_ns(2), 70);
    const auto waited = policy->on_receive(2, 1, policy->on_send(1, 60, 1), 1);
    REQUIRE(waited.keep == Keep::later);
    CHECK_EQ(policy->checkpoint_by_ns(2), 11);  // 60 have passed, 70 are seven eighths
    policy->on_checkpoint(1, 61);
    policy->on_checkpoint(2, length);
    policy->on_receive(1, 1, policy->on_send(2, 1, 1), 1);
    policy->on_receive(2, 2, policy->on_send(1, 2, 1), 1);
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit, 3);
    const auto settled = policy->on_settle();
    REQUIRE_EQ(settled.size(), 1);
    CHECK_EQ(settled[0].ticket, waited.ticket);
    CHECK_EQ(settled[0].keep, length == 60);
  }
}

// Two units: rule 2 drops what both know of at the next checkpoint but one.
TEST_CASE("mrt: rule 2 settles when all units are two checkpoints on") {
  for (const bool answered : {false, true}) {
    const auto policy = make("mrt");
    const uint32_t p = 1, q = 2;
    for (uint32_t unit : {p, q}) policy->on_checkpoint(unit);
    const auto asked = policy->on_receive(p, 1, policy->on_send(q, 1, 1), 1);
    REQUIRE(asked.keep == Keep::later);
    for (uint32_t unit : {p, q}) policy->on_checkpoint(unit);
    // C(p,1) happens before C(q,2) only if q hears of it.
    if (answered) policy->on_receive(q, 2, policy->on_send(p, 1, 1), 1);
    policy->on_checkpoint(p);
    CHECK(policy->on_settle().empty());
    policy->on_checkpoint(q);
    const auto settled = policy->on_settle();
    REQUIRE_EQ(settled.size(), 1);
    CHECK_EQ(settled[0].ticket, asked.ticket);
    CHECK_EQ(settled[0].keep, !answered);
  }
}

// In their first intervals, unit 1 sends to unit 2, and unit 2 to unit 3. In its second interval, unit 1 hears that
// unit 2 has begun its second, and perhaps the same of unit 3. If it does not, then as far as unit 1 knows, unit 3
// still needs the first interval of unit 2, and with it that of unit 1.
TEST_CASE("ros: keeps what is needed by a unit that the sender does not know to be in its next interval") {
  for (const bool three_told : {false, true}) {
    CAPTURE(three_told);
    const auto policy = make("ros");
    for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit);
    const auto first = policy->on_receive(2, 1, policy->on_send(1, 1, 1), 1);
    const auto second = policy->on_receive(3, 2, policy->on_send(2, 2, 1), 1);
    REQUIRE(first.keep == Keep::later);
    REQUIRE(second.keep == Keep::later);
    for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit, 3);
    const auto tells = [&](uint32_t from, uint32_t to) { policy->on_receive(to, 1, policy->on_send(from, 1, 1), 1); };
    tells(2, 1);
    tells(3, 2);
    if (three_told) tells(3, 1);
    for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit, 3);
    std::map<uint64_t, bool> kept;
    for (const auto& settled : policy->on_settle()) kept[settled.ticket] = settled.keep;
    CHECK_EQ(kept.at(first.ticket), !three_told);
    CHECK_FALSE(kept.at(second.ticket));
  }
}

// Unit 1 hears of unit 2's second interval in its first, because that receive could not wait for a checkpoint.
TEST_CASE("mrt: what was received before a forced checkpoint is known at it") {
  for (const bool heard : {false, true}) {
    const auto policy = make("mrt");
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
    const auto asked = policy->on_receive(2, 1, policy->on_send(1, 1, 1), 1);
    REQUIRE(asked.keep == Keep::later);
    for (int twice = 0; twice < 2; ++twice) {
      policy->on_checkpoint(2, 1);
      const Tag tag = policy->on_send(2, 0, 1);
      CHECK(policy->on_receive(1, 1, tag, 1).force_checkpoint_first);
      if (heard) policy->on_kept(1, tag);
      policy->on_checkpoint(1, 1);
    }
    const auto settled = policy->on_settle();
    REQUIRE_EQ(settled.size(), 1);
    CHECK_EQ(settled[0].keep, !heard);
  }
}

TEST_CASE("mrt: nothing is kept for units that end before the next checkpoint but one") {
  const auto policy = make("mrt");
  for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
  const auto asked = policy->on_receive(2, 1, policy->on_send(1, 1, 1), 1);
  for (uint32_t unit : {1, 2}) policy->on_end(unit, 2);
  const auto settled = policy->on_settle();
  REQUIRE_EQ(settled.size(), 1);
  CHECK_EQ(settled[0].ticket, asked.ticket);
  CHECK_FALSE(settled[0].keep);
}

namespace {

// C, T, and one core.
std::unique_ptr<Policy> deadline(uint64_t limit_ns, uint64_t period_ns) {
  PolicyParameters parameters{limit_ns, period_ns};
  parameters.cores = 1;
  return make("deadline", parameters);
}

std::set<uint64_t> kept(Policy& policy) {
  std::set<uint64_t> tickets;
  for (const auto& settled : policy.on_settle()) {
    if (settled.keep) tickets.insert(settled.ticket);
  }
  return tickets;
}

}  // namespace

TEST_CASE("deadline: when an interval ends, what it received is kept if its replay would take longer than C") {
  for (const uint64_t limit_ns : {180, 179}) {
    const auto policy = deadline(limit_ns, 100);
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
    const Tag message = policy->on_send(1, 90, 10);
    const auto decision = policy->on_receive(2, 50, message, 10);
    CHECK_EQ(decision.keep, Keep::later);
    policy->on_checkpoint(2, 90);
    CHECK_EQ(kept(*policy).contains(decision.ticket), limit_ns < 180);
  }
}

TEST_CASE("deadline: restores count") {
  for (const uint64_t restore_ns : {0, 1}) {
    const auto policy = deadline(180, 100);
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
    policy->on_restore_known(1, restore_ns, 0);
    const auto decision = policy->on_receive(2, 50, policy->on_send(1, 90, 10), 10);
    policy->on_checkpoint(2, 90);
    CHECK_EQ(kept(*policy).contains(decision.ticket), restore_ns > 0);
  }
}

TEST_CASE(
    "deadline: a birth is not dropped if what the child starts from is too much for a replay of its first interval") {
  for (const uint64_t restore_ns : {0, 1}) {
    const auto policy = deadline(190, 100);
    policy->on_checkpoint(1);
    const Tag birth = policy->on_send(1, 90, 0);
    policy->on_checkpoint(2);
    policy->on_restore_known(2, restore_ns, 0);
    CHECK_EQ(policy->on_receive(2, 0, birth, 0).keep, restore_ns > 0 ? Keep::keep : Keep::drop);
  }
}

TEST_CASE("deadline: what is known later of a restore replaces what was known before") {
  for (const uint64_t later_ns : {10, 11}) {
    const auto policy = deadline(190, 100);
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
    policy->on_restore_known(1, 5, 0);
    policy->on_restore_known(1, later_ns, 0);
    const auto decision = policy->on_receive(2, 50, policy->on_send(1, 90, 10), 10);
    policy->on_checkpoint(2, 90);
    CHECK_EQ(kept(*policy).contains(decision.ticket), later_ns > 10);
  }
}

TEST_CASE(
    "deadline: a line comes early if a replay gets too long, but not if its images may take more than was received") {
  for (const uint64_t bytes : {999, 1000}) {
    const auto policy = deadline(400, 100);
    for (uint32_t unit : {1, 2}) {
      policy->on_checkpoint(unit);
      policy->on_restore_known(unit, 150, 2000);  // a quarter of that may have been written since
    }
    policy->on_receive(2, 30, policy->on_send(1, 30, bytes), bytes);
    CHECK_FALSE(policy->wants_checkpoint(1, 30));  // it needs nothing of the other one
    CHECK_EQ(policy->wants_checkpoint(2, 30), bytes == 1000);
    CHECK_EQ(policy->wants_checkpoint(1, 30), bytes == 1000);
  }
}

TEST_CASE("deadline: of a chain, the smaller message is kept, although the interval that received it ended before") {
  for (const bool is_first_smaller : {true, false}) {
    const auto policy = deadline(170, 100);
    for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit);
    const auto first = policy->on_receive(2, 1, policy->on_send(1, 80, 1), is_first_smaller ? 1 : 1000);
    policy->on_checkpoint(1, 80);
    const auto second = policy->on_receive(3, 1, policy->on_send(2, 80, 1), is_first_smaller ? 1000 : 1);
    policy->on_checkpoint(2, 80);
    CHECK(kept(*policy).empty());
    policy->on_checkpoint(3, 80);
    CHECK_EQ(kept(*policy), std::set{is_first_smaller ? first.ticket : second.ticket});
  }
}

TEST_CASE("deadline: what fits in any case is dropped at once, but not across a line") {
  const auto policy = deadline(400, 100);
  for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
  CHECK_EQ(policy->on_receive(2, 50, policy->on_send(1, 50, 10), 10).keep, Keep::drop);
  const Tag message = policy->on_send(1, 80, 10);
  policy->on_checkpoint(1, 100);  // draws a line
  policy->on_checkpoint(2, 60);
  CHECK_EQ(policy->on_receive(2, 10, message, 10).keep, Keep::later);
}

TEST_CASE("deadline: a line is drawn before the replay of what happened since the last one becomes longer than C") {
  const auto policy = deadline(200, 100);
  for (uint32_t unit : {1, 2, 3, 4}) policy->on_checkpoint(unit);
  for (uint32_t unit : {1, 2, 3}) {
    policy->on_receive(unit + 1, 45, policy->on_send(unit, 45, 10), 10);
    CHECK_FALSE(policy->wants_checkpoint(unit, 45));
  }
  CHECK(policy->wants_checkpoint(4, 45));
  CHECK(policy->wants_checkpoint(1, 46));
}

TEST_CASE("deadline: every receive is settled once, and nothing waits when all units have ended") {
  const auto policy = deadline(150, 100);
  std::set<uint64_t> waiting;
  for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit);
  const auto settle = [&] {
    for (const auto& settled : policy->on_settle()) CHECK_EQ(waiting.erase(settled.ticket), 1);
  };
  for (uint64_t round = 1; round <= 1000; ++round) {
    for (uint32_t unit : {1, 2, 3}) {
      const uint32_t next = unit % 3 + 1;
      const auto decision = policy->on_receive(next, round % 7 * 10 + 10, policy->on_send(unit, round % 7 * 10, 8), 8);
      if (decision.keep == Keep::later) waiting.insert(decision.ticket);
      if (round % 7 == 6) policy->on_checkpoint(next, 80);
      settle();
    }
    CHECK_LT(waiting.size(), 100);
  }
  for (uint32_t unit : {1, 2, 3}) policy->on_end(unit, 80);
  settle();
  CHECK(waiting.empty());
}

TEST_CASE("fewest-bytes: a line is drawn near T, where little is in flight, and units take their checkpoints there") {
  const auto policy = make("fewest-bytes", {200, 100});
  for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit);
  const Tag message = policy->on_send(1, 60, 1000);
  CHECK_FALSE(policy->wants_checkpoint(1, 70));  // 1000 in flight, before the last quarter
  const Tag other = policy->on_send(2, 60, 10);
  CHECK_FALSE(policy->wants_checkpoint(1, 80));  // 1010 are more
  policy->on_receive(2, 70, message, 1000);
  CHECK(policy->wants_checkpoint(1, 81));
  CHECK(policy->wants_checkpoint(2, 71));
  CHECK_FALSE(policy->wants_checkpoint(3, 5));  // a short path
  policy->on_checkpoint(1);
  CHECK_FALSE(policy->wants_checkpoint(1, 1));
  CHECK(policy->wants_checkpoint(1, 100));  // at T in any case
}

TEST_CASE("fewest-bytes: keeps a small message rather than a large one later") {
  const auto policy = make("fewest-bytes", {200, 100});
  for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
  Tag path{180};
  CHECK(policy->on_receive(1, 90, path, 10).keep == Keep::drop);  // nothing had to be kept yet
  for (int i = 0; i < 100; ++i) CHECK(policy->on_receive(2, 0, path, 1000).keep == Keep::keep);
  CHECK(policy->on_receive(2, 90, path, 1000).keep == Keep::drop);
  path.critical_path_ns = 190;
  CHECK(policy->on_receive(2, 90, path, 10).keep == Keep::keep);
}

TEST_CASE("fewest-bytes: an interval ends sooner rather than that a message is kept, if that is not much sooner") {
  const auto policy = make("fewest-bytes", {200, 100});
  for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
  CHECK_EQ(policy->checkpoint_by_ns(2), UINT64_MAX);
  CHECK(policy->on_receive(2, 0, Tag{110}, 1000).keep == Keep::drop);
  CHECK_EQ(policy->checkpoint_by_ns(2), 90 - 100 / 8);  // the path is 200 at 90; an eighth of T for being late
  CHECK(policy->on_receive(2, 1, Tag{150}, 1000).keep == Keep::keep);
  policy->on_checkpoint(2, 40);  // a line: the next may be as short
  CHECK(policy->on_receive(2, 0, Tag{150, {}, {}, 1}, 1000).keep == Keep::drop);
  CHECK(policy->on_receive(2, 0, Tag{165, {}, {}, 1}, 1000).keep == Keep::keep);
}

TEST_CASE("fewest-bytes: an interval is not to end at once, nor after a checkpoint that was late or skipped") {
  const auto policy = make("fewest-bytes", {200, 100});
  for (uint32_t unit : {1, 2, 3}) policy->on_checkpoint(unit);
  const Tag path{115, {}, {}, 99};  // after any line; 200 at 85, or later if it is received later
  CHECK(policy->on_receive(1, 0, path, 1000).keep == Keep::drop);
  const Tag longer{196};
  CHECK(policy->on_receive(2, 84, longer, 1000).keep == Keep::keep);  // 4 would be left
  policy->on_checkpoint(1, 86);
  CHECK(policy->on_receive(1, 0, path, 1000).keep == Keep::keep);
  policy->on_checkpoint(1, 60);
  CHECK(policy->on_receive(1, 0, path, 1000).keep == Keep::drop);
  policy->on_skipped(3, 110);
  CHECK(policy->on_receive(3, 100, Tag{190}, 1000).keep == Keep::drop);
  CHECK(policy->on_receive(3, 100, Tag{191}, 1000).keep == Keep::keep);
}

TEST_CASE(
    "critical-path and makespan: what remains of an interval is counted to the next checkpoint, if one was skipped") {
  for (const char* name : {"critical-path", "critical-path-multiplicity", "makespan"}) {
    CAPTURE(std::string(name));
    PolicyParameters parameters{200, 100};
    parameters.cores = 64;  // the work counts little
    parameters.multiplicity = 9;
    const auto policy = make(name, parameters);
    for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
    Tag tag = policy->on_send(2, 50, 1);
    tag.critical_path_ns = 150;
    policy->on_skipped(1, 160);
    CHECK(policy->on_receive(1, 100, tag, 1).keep == Keep::keep);
    CHECK(policy->on_receive(1, 130, tag, 1).keep == Keep::drop);
  }
}

TEST_CASE("fewest-bytes: what was in flight at a line is kept if it would make the next interval's paths too long") {
  const auto policy = make("fewest-bytes", {200, 100});
  for (uint32_t unit : {1, 2}) policy->on_checkpoint(unit);
  const Tag before = policy->on_send(1, 60, 1000);
  policy->on_checkpoint(1, 60);
  policy->on_checkpoint(2, 40);
  const Tag behind = policy->on_send(1, 5, 1000);
  CHECK_EQ(join(before, behind).line, behind.line);
  CHECK(policy->on_receive(2, 30, before, 1000).keep == Keep::drop);
  Tag chain = before;
  chain.critical_path_ns = 120;
  CHECK(policy->on_receive(2, 30, chain, 1000).keep == Keep::keep);
  chain.line = behind.line;
  CHECK(policy->on_receive(2, 30, chain, 1000).keep == Keep::drop);
}

TEST_CASE("fewest-bytes: where the lengths of intervals are known, what exceeds C with them is kept") {
  const auto policy = make("fewest-bytes", {200, 100});
  policy->on_checkpoint(1);
  policy->on_length_known(1, 20);
  CHECK(policy->on_receive(1, 5, Tag{185}, 1000).keep == Keep::drop);
  CHECK(policy->on_receive(1, 5, Tag{186}, 1000).keep == Keep::keep);
}

TEST_CASE("fewest-bytes: to be asked for a checkpoint before older events are told changes no path") {
  const auto policy = make("fewest-bytes", {200, 100});
  policy->on_checkpoint(1);
  policy->wants_checkpoint(1, 50);
  CHECK(policy->on_receive(1, 10, Tag{60}, 1000).keep == Keep::drop);
  CHECK_EQ(policy->on_send(1, 50, 1).critical_path_ns, 100);
}

}  // namespace redrive::policy_test
