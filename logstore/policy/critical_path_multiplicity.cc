// Netzer et al., Algorithm 2: no interval's critical path exceeds C, and no replay set has more than M intervals of a
// unit, so that a replay takes at most C*M with one processor per unit (theorem 1).
//
// Invariants: that of Algorithm 1; and a unit's set holds every interval that its current one depends on so far,
// including itself, and at most M of each unit. Approximate: the set holds only the earliest and latest interval of
// each unit, and stands for all between them.
#include <unordered_map>

#include "logstore/policy/needs.h"
#include "logstore/policy/path.h"

namespace redrive {
namespace {

class CriticalPathMultiplicity : public Policy {
 public:
  explicit CriticalPathMultiplicity(const PolicyParameters& parameters) : parameters_(parameters) {}

  void on_checkpoint(uint32_t id, uint64_t) override {
    Unit& unit = units_[id];
    unit.path = {};
    unit.begin_interval(id);
  }

  void on_skipped(uint32_t id, uint64_t until_ns) override { units_.at(id).path.until_ns = until_ns; }

  void on_end_known(uint32_t id, uint64_t by_ns) override { units_.at(id).path.by_ns = by_ns; }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t) override {
    Unit& unit = units_[id];
    unit.path.advance(at_ns);
    return Tag{unit.path.path_ns, unit.set};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t) override {
    Unit& unit = units_[id];
    unit.path.advance(at_ns);
    if (unit.path.may_exceed(tag.critical_path_ns, parameters_)) return {Keep::keep};
    if (!covers(*unit.set, *tag.needs)) {
      Needs both = unite(*unit.set, *tag.needs);
      if (parameters_.approximate) keep_ends(both);
      if (multiplicity(both, parameters_.approximate) > parameters_.multiplicity) return {Keep::keep};
      unit.set = std::make_shared<Needs>(std::move(both));
    }
    unit.path.path_ns = std::max(unit.path.path_ns, tag.critical_path_ns);
    return {Keep::drop};
  }

  void on_end(uint32_t id, uint64_t) override { units_.erase(id); }

  bool set_limits(uint64_t critical_path_ns, uint64_t period_ns) override {
    parameters_.critical_path_ns = critical_path_ns;
    parameters_.checkpoint_period_ns = period_ns;
    return true;
  }

 private:
  struct Unit : OwnNeeds {
    Path path;
  };

  PolicyParameters parameters_;
  std::unordered_map<uint32_t, Unit> units_;
};

}  // namespace

std::unique_ptr<Policy> make_critical_path_multiplicity(const PolicyParameters& parameters) {
  return std::make_unique<CriticalPathMultiplicity>(parameters);
}

}  // namespace redrive
