// No replay takes longer than C on J cores, not counting restores. The papers bound the longest path, as if every unit
// had a processor of its own, or the number of intervals, as if there were one processor; users have J.
//
// A list schedule of work W with longest path P takes at most W/J + P*(1 - 1/J) (Graham, 1969). Invariant, as long as
// no interval is longer than T and T <= C: that sum + what may remain of the interval <= C. A checkpoint makes it T;
// computing adds as much to W and to P as it takes from what remains; a receive keeps the payload if dropping it would
// break the invariant.
#include <algorithm>
#include <unordered_map>

#include "logstore/policy/needs.h"
#include "logstore/policy/path.h"

namespace redrive {
namespace {

class Makespan : public Policy {
 public:
  explicit Makespan(const PolicyParameters& parameters) : parameters_(parameters) {}

  void on_checkpoint(uint32_t id, uint64_t) override {
    Unit& unit = units_[id];
    unit.path = {};
    unit.interval = unit.intervals++;
    unit.set.assign(1, {id, unit.interval, 0});
  }

  void on_skipped(uint32_t id, uint64_t until_ns) override { units_.at(id).path.until_ns = until_ns; }

  void on_end_known(uint32_t id, uint64_t by_ns) override { units_.at(id).path.by_ns = by_ns; }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t) override {
    Unit& unit = advance(id, at_ns);
    return Tag{unit.path.path_ns, std::make_shared<Needs>(unit.set)};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t) override {
    Unit& unit = advance(id, at_ns);
    const uint64_t path_ns = std::max(unit.path.path_ns, tag.critical_path_ns);
    Needs both = unite(unit.set, *tag.needs);
    if (exceeds(both, path_ns, unit.path.remaining_ns(parameters_))) return {Keep::keep};
    unit.set = std::move(both);
    unit.path.path_ns = path_ns;
    return {Keep::drop};
  }

  void on_end(uint32_t id, uint64_t) override { units_.erase(id); }

  bool set_limits(uint64_t critical_path_ns, uint64_t period_ns) override {
    parameters_.critical_path_ns = critical_path_ns;
    parameters_.checkpoint_period_ns = period_ns;
    return true;
  }

 private:
  struct Unit {
    Path path;
    uint32_t intervals = 0;
    uint32_t interval = 0;
    Needs set;  // what the interval needs so far, including itself
  };

  Unit& advance(uint32_t id, uint64_t at_ns) {
    Unit& unit = units_[id];
    unit.path.advance(at_ns);
    const auto own =
        std::lower_bound(unit.set.begin(), unit.set.end(), unit.interval, [id](const Need& need, uint32_t interval) {
          return std::pair(need.unit, need.interval) < std::pair(id, interval);
        });
    own->cpu_ns = unit.path.at_ns;
    return unit;
  }

  // W/J + P*(1 - 1/J) + remaining > C, in integers.
  bool exceeds(const Needs& needs, uint64_t path_ns, uint64_t remaining_ns) const {
    using Wide = unsigned __int128;
    Wide work_ns = 0;
    for (const Need& need : needs) work_ns += need.cpu_ns;
    const Wide cores = parameters_.cores;
    return work_ns + path_ns * (cores - 1) + remaining_ns * cores > parameters_.critical_path_ns * cores;
  }

  PolicyParameters parameters_;
  std::unordered_map<uint32_t, Unit> units_;
};

}  // namespace

std::unique_ptr<Policy> make_makespan(const PolicyParameters& parameters) {
  return std::make_unique<Makespan>(parameters);
}

}  // namespace redrive
