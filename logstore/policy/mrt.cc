// Thoai and Volkert, MRT: for every distributed breakpoint there is a recovery line, made of the latest checkpoint of
// each unit or the one before, whose replay distance and replay time are at most 2T, however many units there are. ROS
// is MRT without rule 3: replay distance at most 2T, replay time up to n*T.
//
// Indexes are the paper's, not the unit's count of intervals. A unit that receives from a later index first takes a
// checkpoint of that index; any other checkpoint goes to the latest index there is; indexes that a unit has skipped
// count as one with the next. So sender and receiver of a message that is not kept have the same index (rule 1). Rule 2
// ensures that if one unit replays an interval and needs the other's, both roll back to it.
//
// Rule 3 keeps a message that was sent later after its sender's checkpoint than it was received after its receiver's: a
// replay never waits longer for a message than for the receiver itself. The paper's clock continues while a process
// waits, and checkpoints come by that clock, so such messages are rare. Our clock is CPU time, which stands still. So a
// unit's time in an index is counted including its waits: it is a path, and at least as long as the sender's time of
// each message that is not kept. The next checkpoint is due when this time reaches T. What rule 3 keeps is thus decided
// at the end of an interval: if its path became longer than T nevertheless, every message that made it wait is kept.
// (If the checkpoint itself came later than T, waits may make the path longer by another eighth.)
//
// Rule 2 for index i depends on what the checkpoints of index i+2 of every unit know. Where the papers broadcast, this
// object sees all units: it settles index i when all have reached that index or have ended (counted as no coordination
// time).
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

class Mrt : public Policy {
 public:
  Mrt(const PolicyParameters& parameters, bool bounds_time)
      : period_ns_(parameters.checkpoint_period_ns), rule_3_(bounds_time) {}

  void on_checkpoint(uint32_t id, uint64_t ended_ns) override {
    const auto [place, is_new] = units_.try_emplace(id);
    Unit& unit = place->second;
    if (is_new) {
      unit.number = static_cast<uint32_t>(units_.size() - 1);
    } else {
      end_interval(unit, ended_ns);
      unit.index = std::max({unit.index + 1, unit.forced_index, latest_});
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
    return Tag{unit.path.path_ns, std::make_shared<Needs>(Needs{{id, unit.index, at_ns}}), unit.clock};
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
    unit.path.advance(at_ns);
    const bool waits = tag.critical_path_ns > at_ns;
    unit.path.path_ns = std::max(unit.path.path_ns, tag.critical_path_ns);
    auto& waiting = waiting_[unit.index];
    waiting.push_back({next_ticket_, unit.number, waits, {}});
    for (const Need& sender : *tag.needs) waiting.back().senders.push_back(units_.at(sender.unit).number);
    return {Keep::later, false, next_ticket_++};
  }

  void on_kept(uint32_t id, const Tag& tag) override { learn(units_.at(id), *tag.clock); }

  // Units go to a new index together, so that fewer messages are in flight from one index to the next.
  bool wants_checkpoint(uint32_t id, uint64_t) override { return units_.at(id).index < latest_; }

  // An eighth earlier than necessary, because checkpoints can come late.
  uint64_t checkpoint_by_ns(uint32_t id) const override {
    const Path& path = units_.at(id).path;
    if (!rule_3_ || period_ns_ == 0) return UINT64_MAX;
    return path.at_ns + std::max(period_ns_ - period_ns_ / 8, path.path_ns) - path.path_ns;
  }

  void on_end(uint32_t id, uint64_t at_ns) override {
    Unit& unit = units_.at(id);
    end_interval(unit, at_ns);
    unit.index = kEnded;
    settle();
  }

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

  void end_interval(Unit& unit, uint64_t at_ns) const {
    unit.path.advance(at_ns);
    const uint64_t limit_ns = at_ns > period_ns_ ? at_ns + period_ns_ / 8 : period_ns_;
    if (rule_3_ && unit.path.path_ns > limit_ns) unit.too_long.insert(unit.index);
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

  // Applies rules 2 and 3 to the messages that were sent and received in an index.
  void settle(uint32_t index, const std::vector<Waiting>& receives) {
    const std::vector<Bits> known = known_by_next(index + 1);
    std::vector<bool> too_long(units_.size());
    for (auto& [id, unit] : units_) too_long[unit.number] = unit.too_long.erase(index) > 0;
    for (const Waiting& receive : receives) {
      const bool drop = !(receive.waits && too_long[receive.receiver]) &&
                        std::all_of(receive.senders.begin(), receive.senders.end(),
                                    [&](uint32_t sender) { return may_drop(known, sender, receive.receiver); });
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
        if (knows) known[p][s.number / 64] |= uint64_t{1} << s.number % 64;
      }
    }
    return known;
  }

  static bool may_drop(const std::vector<Bits>& known, uint32_t q, uint32_t p) {
    if (q == p) return true;
    const auto has = [](const Bits& bits, uint32_t s) { return (bits[s / 64] >> s % 64 & 1) != 0; };
    if (!has(known[p], q)) return false;
    for (size_t word = 0; word < known[p].size(); ++word) {
      uint64_t missing = known[q][word] & ~known[p][word];
      if (word == p / 64) missing &= ~(uint64_t{1} << p % 64);
      if (missing) return false;
    }
    return true;
  }

  const uint64_t period_ns_;
  const bool rule_3_;
  uint32_t latest_ = 0;  // index
  std::unordered_map<uint32_t, Unit> units_;
  std::map<uint32_t, std::vector<Waiting>> waiting_;  // by index
  std::vector<Settled> settled_;
  uint64_t next_ticket_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_mrt(const PolicyParameters& parameters) { return std::make_unique<Mrt>(parameters, true); }

std::unique_ptr<Policy> make_ros(const PolicyParameters& parameters) {
  return std::make_unique<Mrt>(parameters, false);
}

}  // namespace redrive
