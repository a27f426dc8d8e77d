// Netzer and Xu: no replay of an interval needs an earlier interval of its own unit (a domino dependence). It has no
// parameters.
//
// Invariant: a unit's set is the left frontier of its interval's replay set, that is, the earliest interval of each
// unit. The earliest interval of the unit itself is its current one, because what would add an earlier one is kept.
#include <algorithm>
#include <unordered_map>

#include "logstore/policy/needs.h"

namespace redrive {
namespace {

class Domino : public Policy {
 public:
  void on_checkpoint(uint32_t id, uint64_t) override { units_[id].begin_interval(id); }

  Tag on_send(uint32_t id, uint64_t, uint64_t) override { return Tag{0, units_[id].set}; }

  Decision on_receive(uint32_t id, uint64_t, const Tag& tag, uint64_t) override {
    OwnNeeds& unit = units_[id];
    const auto own = std::lower_bound(tag.needs->begin(), tag.needs->end(), id,
                                      [](const Need& need, uint32_t wanted) { return need.unit < wanted; });
    if (own != tag.needs->end() && own->unit == id && own->interval + 1 < unit.intervals) return {Keep::keep};
    if (goes_back_to(*unit.set, *tag.needs)) return {Keep::drop};
    Needs both = unite(*unit.set, *tag.needs);
    keep_earliest(both);
    unit.set = std::make_shared<Needs>(std::move(both));
    return {Keep::drop};
  }

  void on_end(uint32_t id, uint64_t) override { units_.erase(id); }

 private:
  // Whether a frontier has, for each of these, an interval at least as early.
  static bool goes_back_to(const Needs& frontier, const Needs& needs) {
    auto own = frontier.begin();
    for (const Need& need : needs) {
      while (own != frontier.end() && own->unit < need.unit) ++own;
      if (own == frontier.end() || own->unit != need.unit || own->interval > need.interval) return false;
    }
    return true;
  }

  std::unordered_map<uint32_t, OwnNeeds> units_;
};

}  // namespace

std::unique_ptr<Policy> make_domino(const PolicyParameters&) { return std::make_unique<Domino>(); }

}  // namespace redrive
