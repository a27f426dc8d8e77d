// Thoai and Volkert, MRT and ROS: for every distributed breakpoint there is a recovery line, made of the latest
// checkpoint of each unit or the one before: replay distance at most 2T. With MRT the replay takes at most 2T, however
// many units there are; with ROS, whose rule 2 needs to know less, up to 2nT for n units, and nT with its additional
// rule.
//
// Indexes are the papers', not the unit's count of intervals. A unit that receives from a later index first takes a
// checkpoint of that index; indexes that it has skipped count as one with the next. So sender and receiver of a message
// that is not kept have the same index (rule 1).
//
// Rule 2 of MRT ensures that if one unit replays an interval and needs the other's, both roll back to it. A message
// from I(q,i-1) to I(p,i-1) is dropped if (1) C(p,i) -> C(q,i+1), and (2) for each other unit s, C(q,i) -> C(s,i+1)
// implies C(p,i) -> C(s,i+1).
//
// Rule 2 of ROS stands in a paper that was not at hand; ours is derived from what that one is said to promise: it drops
// the message if (1) C(p,i) -> C(q,i+1), and (2) C(s,i) -> C(q,i+1) for each unit s that needs I(p,i-1): by a chain of
// messages within index i-1, sent from p, none of which is kept by (1). Proof. A unit rolls back from index i to i-1
// only if another one, which starts at i-1, needs it; the chain of these ends at a unit s0 whose place is in index i-1.
// So units with the smallest index never roll back. Let p start at i-1 and need I(q,i-1). If the place of q were behind
// C(q,i+1), every unit that needs I(p,i-1), and p itself, would have passed its C(s,i), because a breakpoint is closed
// under happened-before; but s0 has not. So the place of q is in index i at most, and q rolls back by one.
//
// Rule 3 keeps a message that was sent later after its sender's checkpoint than it was received after its receiver's: a
// replay never waits for a message between units that started in the same index. It is the additional rule of ROS too.
// With it, a replay executes index after index, each within T, and each of these indexes but the first begins with a
// unit that has rolled back by one, which is not the one with the smallest index: n indexes at most.
//
// The papers' clock continues while a process waits, and checkpoints come by that clock, so such messages are rare. Our
// clock is CPU time, which stands still, and rule 3 keeps many. So mrt-waits, our own variant, counts a unit's time in
// an index including its waits: it is a path, and at least as long as the sender's time of each message that is not
// kept. The next checkpoint is due when this time reaches T. What rule 3 keeps is thus decided at the end of an
// interval: if its path became longer than T nevertheless, every message that made it wait is kept. (If the checkpoint
// itself came later than T, waits may make the path longer by another eighth.) Its units go to a new index together.
//
// Rule 2 for index i depends on what the checkpoints of index i+2 of every unit know. Where the papers broadcast, this
// object sees all units: it settles index i when all have reached that index or have ended (counted as no coordination
// time). It grows with the number of units, including those that have ended.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "logstore/policy/needs.h"
#include "logstore/policy/path.h"

namespace redrive {
namespace {

constexpr uint32_t kEnded = UINT32_MAX;

enum class Rule2 { mrt, ros };
enum class Rule3 { none, by_cpu_time, by_waits };

class Mrt : public Policy {
 public:
  Mrt(const PolicyParameters& parameters, Rule2 rule_2, Rule3 rule_3)
      : period_ns_(parameters.checkpoint_period_ns), rule_2_(rule_2), rule_3_(rule_3) {}

  void on_checkpoint(uint32_t id, uint64_t ended_ns) override {
    const auto [place, is_new] = units_.try_emplace(id);
    Unit& unit = place->second;
    if (is_new) {
      unit.number = static_cast<uint32_t>(units_.size() - 1);
    } else {
      end_interval(unit, ended_ns);
      unit.index = std::max({unit.index + 1, unit.forced_index, goes_together() ? latest_ : 0});
    }
    latest_ = std::max(latest_, unit.index);
    unit.forced_index = 0;
    unit.path = {};
    know(unit, unit.number, unit.index + 1);
    unit.checkpoints[unit.index] = unit.clock;
    settle();
  }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t) override {
    Unit& unit = units_.at(id);
    unit.path.advance(at_ns);
    const uint64_t since_ns = rule_3_ == Rule3::by_waits ? unit.path.path_ns : at_ns;
    return Tag{since_ns, std::make_shared<Needs>(Needs{{id, unit.index, at_ns}}), unit.clock};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t) override {
    Unit& unit = units_.at(id);
    const auto [earliest, latest] = std::minmax_element(
        tag.needs->begin(), tag.needs->end(), [](const Need& a, const Need& b) { return a.interval < b.interval; });
    if (latest->interval > unit.index) {
      unit.forced_index = std::max(unit.forced_index, latest->interval);
      return {Keep::keep, true};
    }
    learn(unit, *tag.clock);
    if (earliest->interval < unit.index) return {Keep::keep};
    const bool waits = tag.critical_path_ns > at_ns;
    if (waits && rule_3_ == Rule3::by_cpu_time) return {Keep::keep};
    unit.path.advance(at_ns);
    unit.path.path_ns = std::max(unit.path.path_ns, tag.critical_path_ns);
    auto& waiting = waiting_[unit.index];
    waiting.push_back({next_ticket_, unit.number, waits, {}});
    for (const Need& sender : *tag.needs) waiting.back().senders.push_back(units_.at(sender.unit).number);
    return {Keep::later, false, next_ticket_++};
  }

  void on_kept(uint32_t id, const Tag& tag) override { learn(units_.at(id), *tag.clock); }

  bool wants_checkpoint(uint32_t id, uint64_t) override { return goes_together() && units_.at(id).index < latest_; }

  // An eighth earlier than necessary, because checkpoints can come late.
  uint64_t checkpoint_by_ns(uint32_t id) const override {
    const Path& path = units_.at(id).path;
    if (rule_3_ != Rule3::by_waits || period_ns_ == 0) return UINT64_MAX;
    return path.at_ns + std::max(period_ns_ - period_ns_ / 8, path.path_ns) - path.path_ns;
  }

  bool compares_units() const override { return rule_3_ == Rule3::by_cpu_time; }

  void on_end(uint32_t id, uint64_t at_ns) override {
    Unit& unit = units_.at(id);
    end_interval(unit, at_ns);
    unit.index = kEnded;
    settle();
  }

  // What it has not settled yet was received under the old T.
  bool set_limits(uint64_t, uint64_t) override { return false; }

  std::vector<Settled> on_settle() override { return std::exchange(settled_, {}); }

 private:
  struct Unit {
    uint32_t number = 0;  // in order of birth, from 0: the place in a clock
    uint32_t index = 0;   // of its interval; kEnded
    uint32_t forced_index = 0;
    std::shared_ptr<const VectorClock> clock;  // what has happened before, including its own checkpoints
    std::map<uint32_t, std::shared_ptr<const VectorClock>>
        checkpoints;  // the clock at each checkpoint that may still be needed
    const VectorClock& clock_at_next() const { return *checkpoints.begin()->second; }
    Path path;                    // in its index
    std::set<uint32_t> too_long;  // indexes in which the path was longer than T
  };
  struct Waiting {
    uint64_t ticket;
    uint32_t receiver;
    bool waits;  // for its sender, in a replay
    std::vector<uint32_t> senders;
  };
  using Bits = std::vector<uint64_t>;

  // Whether units go to a new index together, so that fewer messages are in flight from one index to the next.
  bool goes_together() const { return rule_3_ == Rule3::by_waits; }

  void end_interval(Unit& unit, uint64_t at_ns) const {
    unit.path.advance(at_ns);
    const uint64_t limit_ns = at_ns > period_ns_ ? at_ns + period_ns_ / 8 : period_ns_;
    if (rule_3_ == Rule3::by_waits && unit.path.path_ns > limit_ns) unit.too_long.insert(unit.index);
  }

  static void know(Unit& unit, uint32_t number, uint32_t checkpoints) {
    VectorClock clock = unit.clock ? *unit.clock : VectorClock();
    clock.resize(std::max<size_t>(clock.size(), number + 1));
    clock[number] = checkpoints;
    unit.clock = std::make_shared<VectorClock>(std::move(clock));
  }

  static void learn(Unit& unit, const VectorClock& from) {
    const VectorClock& has = *unit.clock;
    bool news = from.size() > has.size();
    for (size_t i = 0; i < from.size() && !news; ++i) news = from[i] > has[i];
    if (!news) return;
    VectorClock clock = has;
    clock.resize(std::max(clock.size(), from.size()));
    for (size_t i = 0; i < from.size(); ++i) clock[i] = std::max(clock[i], from[i]);
    unit.clock = std::make_shared<VectorClock>(std::move(clock));
  }

  // Settles every index that all units have passed by two.
  void settle() {
    while (!waiting_.empty()) {
      const uint32_t index = waiting_.begin()->first;
      const auto there = [index](const auto& unit) {
        return unit.second.index == kEnded || unit.second.index >= index + 2;
      };
      if (!std::all_of(units_.begin(), units_.end(), there)) return;
      settle(index, waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
  }

  // Applies rule 2, and rule 3 if it can be decided only now, to the messages that were sent and received in an index.
  void settle(uint32_t index, const std::vector<Waiting>& receives) {
    const std::vector<Bits> known = known_by_next(index + 1);
    const std::vector<Bits> needing = rule_2_ == Rule2::ros ? needing_units(receives, known) : std::vector<Bits>();
    std::vector<bool> too_long(units_.size());
    for (auto& [id, unit] : units_) too_long[unit.number] = unit.too_long.erase(index) > 0;
    const auto may_drop = [&](uint32_t sender, uint32_t receiver) {
      return rule_2_ == Rule2::ros ? may_drop_ros(known, needing, sender, receiver)
                                   : may_drop_mrt(known, sender, receiver);
    };
    for (const Waiting& receive : receives) {
      const bool drop = !(receive.waits && too_long[receive.receiver]) &&
                        std::all_of(receive.senders.begin(), receive.senders.end(),
                                    [&](uint32_t sender) { return may_drop(sender, receive.receiver); });
      settled_.push_back({receive.ticket, !drop});
    }
  }

  // For each unit p, the set of units s with C(p,i) -> C(s,i+1), or that have ended without it: they never roll back
  // that far.
  std::vector<Bits> known_by_next(uint32_t i) {
    std::vector<Bits> known(units_.size(), Bits((units_.size() + 63) / 64));
    for (auto& [id, s] : units_) {
      s.checkpoints.erase(s.checkpoints.begin(), s.checkpoints.lower_bound(i + 1));
      const bool ended = s.checkpoints.empty();
      for (size_t p = 0; p < known.size(); ++p) {
        const bool knows = ended || (p < s.clock_at_next().size() && s.clock_at_next()[p] > i);
        if (knows) add(known[p], s.number);
      }
    }
    return known;
  }

  static bool has(const Bits& bits, uint32_t number) { return (bits[number / 64] >> number % 64 & 1) != 0; }
  static void add(Bits& bits, uint32_t number) { bits[number / 64] |= uint64_t{1} << number % 64; }

  static bool may_drop_mrt(const std::vector<Bits>& known, uint32_t q, uint32_t p) {
    if (q == p) return true;
    if (!has(known[p], q)) return false;
    for (size_t word = 0; word < known[p].size(); ++word) {
      uint64_t missing = known[q][word] & ~known[p][word];
      if (word == p / 64) missing &= ~(uint64_t{1} << p % 64);
      if (missing) return false;
    }
    return true;
  }

  static bool may_drop_ros(const std::vector<Bits>& known, const std::vector<Bits>& needing, uint32_t q, uint32_t p) {
    if (q == p) return true;
    for (uint32_t s = 0; s < known.size(); ++s) {
      if (has(needing[p], s) && !has(known[s], q)) return false;
    }
    return true;
  }

  // For each unit p, the units that need what it does in the index, itself included: those that receive from it, and
  // those that need these.
  static std::vector<Bits> needing_units(const std::vector<Waiting>& receives, const std::vector<Bits>& known) {
    std::vector<Bits> needing(known.size(), Bits((known.size() + 63) / 64));
    for (uint32_t p = 0; p < known.size(); ++p) add(needing[p], p);
    for (const Waiting& receive : receives) {
      for (const uint32_t sender : receive.senders) {
        if (has(known[receive.receiver], sender)) add(needing[sender], receive.receiver);
      }
    }
    for (uint32_t via = 0; via < known.size(); ++via) {
      for (uint32_t p = 0; p < known.size(); ++p) {
        if (!has(needing[p], via)) continue;
        for (size_t word = 0; word < needing[p].size(); ++word) needing[p][word] |= needing[via][word];
      }
    }
    return needing;
  }

  const uint64_t period_ns_;
  const Rule2 rule_2_;
  const Rule3 rule_3_;
  uint32_t latest_ = 0;  // index
  std::unordered_map<uint32_t, Unit> units_;
  std::map<uint32_t, std::vector<Waiting>> waiting_;  // by index
  std::vector<Settled> settled_;
  uint64_t next_ticket_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_mrt(const PolicyParameters& parameters) {
  return std::make_unique<Mrt>(parameters, Rule2::mrt, Rule3::by_cpu_time);
}

std::unique_ptr<Policy> make_mrt_waits(const PolicyParameters& parameters) {
  return std::make_unique<Mrt>(parameters, Rule2::mrt, Rule3::by_waits);
}

std::unique_ptr<Policy> make_ros(const PolicyParameters& parameters) {
  return std::make_unique<Mrt>(parameters, Rule2::ros, Rule3::none);
}

std::unique_ptr<Policy> make_ros_nt(const PolicyParameters& parameters) {
  return std::make_unique<Mrt>(parameters, Rule2::ros, Rule3::by_cpu_time);
}

}  // namespace redrive
