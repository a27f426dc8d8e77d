// Netzer et al., Algorithm 1 (figure 3): no interval's critical path in replay exceeds C.
//
// Invariant, as long as no interval is longer than T and T <= C: a unit's path so far + what may remain of its interval
// <= C. A checkpoint makes it T <= C; computing moves time from what remains to the path; a receive keeps what would
// break it. Tags are exact, so lateness does not add up: an interval of length L > T has a path of at most C + (L - T).
#include <algorithm>
#include <unordered_map>

#include "logstore/policy/policy.h"

namespace redrive {
namespace {

class CriticalPath : public Policy {
 public:
  explicit CriticalPath(const PolicyParameters& parameters) : parameters_(parameters) {}

  void on_checkpoint(uint32_t unit) override { units_[unit] = {}; }

  Tag on_send(uint32_t unit, uint64_t at_ns) override { return Tag{advance(unit, at_ns).path_ns}; }

  Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag) override {
    Unit& receiver = advance(unit, at_ns);
    if (exceeds_limit(tag.critical_path_ns, remaining_ns(receiver))) return {Keep::keep};
    receiver.path_ns = std::max(receiver.path_ns, tag.critical_path_ns);
    return {Keep::drop};
  }

 private:
  struct Unit {
    uint64_t at_ns = 0;    // of its previous event
    uint64_t path_ns = 0;  // the papers' cp: longest path into the current interval so far
  };

  Unit& advance(uint32_t id, uint64_t at_ns) {
    Unit& unit = units_[id];
    if (at_ns > unit.at_ns) {
      unit.path_ns += at_ns - unit.at_ns;
      unit.at_ns = at_ns;
    }
    return unit;
  }

  // Upper bound of the interval's time that is still to come.
  uint64_t remaining_ns(const Unit& unit) const {
    return parameters_.checkpoint_period_ns - std::min(parameters_.checkpoint_period_ns, unit.at_ns);
  }

  // path + remaining > C, without overflow.
  bool exceeds_limit(uint64_t path_ns, uint64_t remaining_ns) const {
    const uint64_t limit_ns = parameters_.critical_path_ns;
    return remaining_ns > limit_ns || path_ns > limit_ns - remaining_ns;
  }

  const PolicyParameters parameters_;
  std::unordered_map<uint32_t, Unit> units_;
};

}  // namespace

std::unique_ptr<Policy> make_critical_path(const PolicyParameters& parameters) {
  return std::make_unique<CriticalPath>(parameters);
}

}  // namespace redrive
