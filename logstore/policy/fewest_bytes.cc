// Ours: critical-path's promise, no interval's critical path exceeds C, with fewer bytes kept.
//
// What critical-path keeps are, for the most part, the messages from units far into their interval to units that have
// just begun one: as many as are sent between the two units' checkpoints. So checkpoints are placed on lines. When one
// unit comes near T, every unit takes a checkpoint before its next event; then only what was in flight when the line
// was drawn goes from before it to behind it. In the last quarter of T it is drawn as soon as the bytes in flight are
// as few as at their fewest in the quarter before, at T in any case. A unit with a short path stays out: what it sends
// is cheap to recompute.
//
// Where paths grow long within a line's interval (units that work one after the other), any message of the chain can be
// kept to cut it. So a small one is kept before its path is at the limit, rather than a large one when it is: small
// against those that had to be kept of late.
//
// Invariant: Algorithm 1's (critical_path.cc). Lines, and keeping more than must be, do not touch it.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "logstore/policy/path.h"

namespace redrive {
namespace {

class FewestBytes : public Policy {
 public:
  explicit FewestBytes(const PolicyParameters& parameters) : parameters_(parameters) {}

  void on_checkpoint(uint32_t id, uint64_t) override {
    Unit& unit = units_[id];
    unit.path = {};
    unit.line = line_;
  }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t bytes) override {
    in_flight_ += bytes;
    return Tag{advance(id, at_ns).path.path_ns};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t bytes) override {
    in_flight_ -= bytes;
    Path& receiver = advance(id, at_ns).path;
    if (receiver.may_exceed(tag.critical_path_ns, parameters_)) {
      must_keep_bytes_ += (static_cast<double>(bytes) - must_keep_bytes_) / 16;
      return {Keep::keep};
    }
    const bool longer = tag.critical_path_ns > receiver.path_ns;
    if (longer && small(bytes) && nearly_exceeds(receiver, tag)) return {Keep::keep};
    if (longer) receiver.path_ns = tag.critical_path_ns;
    return {Keep::drop};
  }

  bool wants_checkpoint(uint32_t id, uint64_t at_ns) override {
    Unit& unit = advance(id, at_ns);
    if (unit.line == line_) draw_line(unit.path.at_ns);
    if (unit.line == line_) return false;
    if (unit.path.path_ns > parameters_.checkpoint_period_ns / 8) return true;
    unit.line = line_;
    return false;
  }

  void on_end(uint32_t id, uint64_t) override { units_.erase(id); }

 private:
  struct Unit {
    Path path;
    uint64_t line = 0;  // the latest that it has passed
  };

  Unit& advance(uint32_t id, uint64_t at_ns) {
    Unit& unit = units_[id];
    unit.path.advance(at_ns);
    return unit;
  }

  bool small(uint64_t bytes) const { return static_cast<double>(bytes) <= must_keep_bytes_ / 2; }

  // Beyond three quarters of C at the interval's end.
  bool nearly_exceeds(const Path& receiver, const Tag& tag) const {
    return tag.critical_path_ns + receiver.remaining_ns(parameters_) >
           parameters_.critical_path_ns - parameters_.critical_path_ns / 4;
  }

  // `at_ns`: how far a unit is that has passed the latest line.
  void draw_line(uint64_t at_ns) {
    const uint64_t period_ns = parameters_.checkpoint_period_ns;
    if (at_ns < period_ns / 2) return;
    const bool may = at_ns >= period_ns - period_ns / 4;
    if (!may) fewest_ = std::min(fewest_, in_flight_);
    if (!may || (in_flight_ > fewest_ && at_ns < period_ns)) return;
    ++line_;
    fewest_ = std::numeric_limits<int64_t>::max();
  }

  const PolicyParameters parameters_;
  std::unordered_map<uint32_t, Unit> units_;
  uint64_t line_ = 0;
  double must_keep_bytes_ = 0;  // what a message had of late that could not be dropped, on average
  int64_t in_flight_ = 0;       // bytes sent and not received; what is never received does not matter to comparisons
  int64_t fewest_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

std::unique_ptr<Policy> make_fewest_bytes(const PolicyParameters& parameters) {
  return std::make_unique<FewestBytes>(parameters);
}

}  // namespace redrive
