// Netzer et al., Algorithm 1 (figure 3): no interval's critical path in a replay exceeds C.
//
// Invariant, as long as no interval is longer than T and T <= C: a unit's path so far + what may remain of its interval
// <= C. A checkpoint makes the sum T, which is <= C; computing moves time from what remains to the path; a receive
// keeps the payload if dropping it would break the invariant. Tags are exact, so delays do not add up: an interval of
// length L > T has a path of at most C + (L - T). If a checkpoint was skipped, what remains is counted to the next one:
// what is received from then on does not bring the path above C if that one comes in time.
#include <unordered_map>

#include "logstore/policy/path.h"

namespace redrive {
namespace {

class CriticalPath : public Policy {
 public:
  explicit CriticalPath(const PolicyParameters& parameters) : parameters_(parameters) {}

  void on_checkpoint(uint32_t unit, uint64_t) override { units_[unit] = {}; }

  void on_skipped(uint32_t unit, uint64_t until_ns) override { units_.at(unit).until_ns = until_ns; }

  void on_end_known(uint32_t unit, uint64_t by_ns) override { units_.at(unit).by_ns = by_ns; }

  Tag on_send(uint32_t unit, uint64_t at_ns, uint64_t) override { return Tag{advance(unit, at_ns).path_ns}; }

  Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag, uint64_t) override {
    Path& receiver = advance(unit, at_ns);
    if (receiver.may_exceed(tag.critical_path_ns, parameters_)) return {Keep::keep};
    receiver.path_ns = std::max(receiver.path_ns, tag.critical_path_ns);
    return {Keep::drop};
  }

  void on_end(uint32_t unit, uint64_t) override { units_.erase(unit); }

  bool set_limits(uint64_t critical_path_ns, uint64_t period_ns) override {
    parameters_.critical_path_ns = critical_path_ns;
    parameters_.checkpoint_period_ns = period_ns;
    return true;
  }

 private:
  Path& advance(uint32_t unit, uint64_t at_ns) {
    Path& path = units_[unit];
    path.advance(at_ns);
    return path;
  }

  PolicyParameters parameters_;
  std::unordered_map<uint32_t, Path> units_;
};

}  // namespace

std::unique_ptr<Policy> make_critical_path(const PolicyParameters& parameters) {
  return std::make_unique<CriticalPath>(parameters);
}

}  // namespace redrive
