// Zambonelli and Netzer, "full informed": no interval's replay set has more intervals than the bound.
//
// Invariant: a unit's set is exactly what its interval depends on so far, its own interval included, and within the
// bound.
#include <unordered_map>

#include "logstore/policy/needs.h"

namespace redrive {
namespace {

class ReplaySet : public Policy {
 public:
  explicit ReplaySet(const PolicyParameters& parameters) : bound_(parameters.set_bound) {}

  void on_checkpoint(uint32_t id, uint64_t) override { units_[id].begin_interval(id); }

  Tag on_send(uint32_t id, uint64_t, uint64_t) override { return Tag{0, units_[id].set}; }

  Decision on_receive(uint32_t id, uint64_t, const Tag& tag, uint64_t) override {
    OwnNeeds& unit = units_[id];
    const size_t size = size_of_union(*unit.set, *tag.needs);
    if (size > bound_) return {Keep::keep};
    if (size > unit.set->size()) unit.set = std::make_shared<Needs>(unite(*unit.set, *tag.needs));
    return {Keep::drop};
  }

  void on_end(uint32_t id, uint64_t) override { units_.erase(id); }

 private:
  const size_t bound_;
  std::unordered_map<uint32_t, OwnNeeds> units_;
};

}  // namespace

std::unique_ptr<Policy> make_replay_set(const PolicyParameters& parameters) {
  return std::make_unique<ReplaySet>(parameters);
}

}  // namespace redrive
