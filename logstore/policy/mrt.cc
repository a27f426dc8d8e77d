// Thoai and Volkert, MRT: for every distributed breakpoint there is a recovery line, of each unit its latest checkpoint
// or the one before, whose replay distance and replay time are at most 2T, however many units there are. ROS is MRT
// without rule 3: replay distance at most 2T, replay time up to n*T.
//
// Indexes are the paper's, not the unit's count of intervals: a unit that receives from a later index takes a
// checkpoint of that index first, and those it has skipped count as one with it. So of the messages that are not kept
// sender and receiver have the same index (rule 1), and the sender's time is not beyond the receiver's (rule 3), so
// that a replay never waits for a message longer than for the receiver itself. Rule 2 sees to it that of two units, of
// which one replays an interval and needs the other's, both roll back to it.
//
// Rule 2 for index i asks what the checkpoints of index i+2 know, of every unit. Where the papers broadcast, this
// object sees all units: it settles index i when all have got there or have ended (counted as no coordination time).
// While a program is recorded nothing can wait for that: everything is kept.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "logstore/policy/needs.h"

namespace redrive {
namespace {

constexpr uint32_t kEnded = UINT32_MAX;

class Mrt : public Policy {
 public:
  Mrt(const PolicyParameters& parameters, bool bounds_time) : off_line_(parameters.off_line), rule_3_(bounds_time) {}

  void on_checkpoint(uint32_t id) override {
    const auto [place, is_new] = units_.try_emplace(id);
    Unit& unit = place->second;
    if (is_new) {
      unit.number = static_cast<uint32_t>(units_.size() - 1);
    } else {
      unit.index = std::max(unit.index + 1, unit.forced_index);
    }
    unit.forced_index = 0;
    if (!off_line_) return;
    know(unit, unit.number, unit.index + 1);
    unit.checkpoints[unit.index] = unit.clock;
    settle();
  }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t) override {
    const Unit& unit = units_.at(id);
    return Tag{0, std::make_shared<Needs>(Needs{{id, unit.index, at_ns}}), unit.clock};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t) override {
    Unit& unit = units_.at(id);
    const auto later = [](const Need& a, const Need& b) { return a.interval < b.interval; };
    const uint32_t latest = std::max_element(tag.needs->begin(), tag.needs->end(), later)->interval;
    if (latest > unit.index) {
      unit.forced_index = latest;
      return {Keep::keep, true};
    }
    if (!off_line_) return {Keep::keep};
    learn(unit, *tag.clock);
    const bool rules_1_3 = std::any_of(tag.needs->begin(), tag.needs->end(), [&](const Need& sender) {
      return sender.interval < unit.index || (rule_3_ && sender.cpu_ns > at_ns);
    });
    if (rules_1_3) return {Keep::keep};
    auto& waiting = waiting_[unit.index];
    waiting.push_back({next_ticket_, unit.number, {}});
    for (const Need& sender : *tag.needs) waiting.back().senders.push_back(units_.at(sender.unit).number);
    return {Keep::later, false, next_ticket_++};
  }

  void on_end(uint32_t id, uint64_t) override {
    if (!off_line_) return;
    Unit& unit = units_.at(id);
    unit.checkpoints[kEnded] = unit.clock;
    unit.index = kEnded;
    settle();
  }

  std::vector<Settled> on_settle() override { return std::exchange(settled_, {}); }

 private:
  struct Unit {
    uint32_t number = 0;  // in order of birth, from 0: the place in a clock
    uint32_t index = 0;   // of its interval; kEnded
    uint32_t forced_index = 0;
    std::shared_ptr<const VectorClock> clock;  // what has happened before, its own checkpoints included
    std::map<uint32_t, std::shared_ptr<const VectorClock>>
        checkpoints;  // the clock at each that can still be asked for
  };
  struct Waiting {
    uint64_t ticket;
    uint32_t receiver;
    std::vector<uint32_t> senders;
  };
  using Bits = std::vector<uint64_t>;

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

  // Settles every index that all units are two beyond.
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

  // Rule 2, of the messages sent and received in index i-1.
  void settle(uint32_t index, const std::vector<Waiting>& receives) {
    const std::vector<Bits> known = known_by_next(index + 1);
    for (const Waiting& receive : receives) {
      const bool drop = std::all_of(receive.senders.begin(), receive.senders.end(),
                                    [&](uint32_t sender) { return may_drop(known, sender, receive.receiver); });
      settled_.push_back({receive.ticket, !drop});
    }
  }

  // Of each unit p, the set of units s with C(p,i) -> C(s,i+1).
  std::vector<Bits> known_by_next(uint32_t i) {
    std::vector<Bits> known(units_.size(), Bits((units_.size() + 63) / 64));
    for (auto& [id, s] : units_) {
      s.checkpoints.erase(s.checkpoints.begin(), s.checkpoints.lower_bound(i + 1));
      const VectorClock& clock = *s.checkpoints.begin()->second;
      for (size_t p = 0; p < clock.size(); ++p) {
        if (clock[p] > i) known[p][s.number / 64] |= uint64_t{1} << s.number % 64;
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

  const bool off_line_;
  const bool rule_3_;
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
