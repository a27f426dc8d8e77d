// Ours: critical-path's promise, no interval's critical path exceeds C, with fewer bytes kept.
//
// What critical-path keeps are, for the most part, the messages from units far into their interval to units that have
// just begun one: as many as are sent between the two units' checkpoints. So checkpoints are placed on lines. When one
// unit comes near T, every unit takes a checkpoint before its next event; then only what was in flight when the line
// was drawn goes from before it to behind it. In the last quarter of T it is drawn as soon as the bytes in flight are
// as few as at their fewest in the quarter before; a unit that takes its checkpoint without draws it in any case. A
// unit with a short path stays out: what it sends is cheap to recompute.
//
// The rest are messages that would exceed C if their receiver's interval lasted for T. Because of the lines most end
// sooner. So such a message is dropped if it does not exceed C with an interval as long as the one before, and from
// then on the interval is to end in time: its checkpoint comes when the path is at C, if no line comes before. Where
// the checkpoints are those of a recording, it is known what exceeds C.
//
// Of what was in flight at a line each message is looked at as if it came right behind it: with the path that it brings
// all that its receiver sends from then on would exceed C, whose own interval may end in time.
//
// Where paths grow long within a line's interval (units that work one after the other), any message of the chain can be
// kept to cut it. So a small one is kept before its path is at the limit, rather than a large one when it is: small
// against those that had to be kept of late.
//
// Invariant: Algorithm 1's (critical_path.cc), with the interval's latest end instead of T: a unit's path so far + what
// may remain of its interval <= C. Lines, and keeping more than must be, do not touch it.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "logstore/policy/path.h"

namespace redrive {
namespace {

constexpr unsigned kMostAsked = 256;  // times for a place; then the line comes when a checkpoint does

class FewestBytes : public Policy {
 public:
  explicit FewestBytes(const PolicyParameters& parameters)
      : limit_ns_(parameters.critical_path_ns), period_ns_(parameters.checkpoint_period_ns) {}

  void on_checkpoint(uint32_t id, uint64_t ended_ns) override {
    const auto [place, is_new] = units_.try_emplace(id, Unit{{}, period_ns_, usual_most_ns(), line_});
    if (is_new) return;
    Unit& unit = place->second;
    unit.path.advance(ended_ns);
    if (unit.line == line_ && unit.path.path_ns >= period_ns_ / 2) draw_line();
    // How long one is that has been cut short says nothing of the next.
    if (ended_ns < by_ns(unit)) unit.usual_ns = std::min(ended_ns, usual_most_ns());
    unit.path = {};
    unit.end_ns = period_ns_;
    unit.line = line_;
  }

  void on_length_known(uint32_t id, uint64_t length_ns) override {
    Unit& unit = units_.at(id);
    unit.end_ns = unit.usual_ns = length_ns;
  }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t bytes) override {
    in_flight_ += bytes;
    return {.critical_path_ns = advance(id, at_ns).path.path_ns, .line = line_};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t bytes) override {
    in_flight_ -= bytes;
    mean_in_flight_ += (static_cast<double>(in_flight_) - mean_in_flight_) / 256;
    Unit& unit = advance(id, at_ns);
    const uint64_t path_ns = tag.critical_path_ns;
    if (tag.line < unit.line && path_ns + period_ns_ > limit_ns_) return {Keep::keep};
    if (unit.may_exceed(path_ns, limit_ns_)) {
      // The latest end with which it does not.
      const uint64_t end_ns = unit.path.at_ns + limit_ns_ - std::min(limit_ns_, path_ns);
      if (path_ns > limit_ns_ || end_ns < unit.usual_ns) {
        must_keep_bytes_ += (static_cast<double>(bytes) - must_keep_bytes_) / 16;
        return {Keep::keep};
      }
      unit.end_ns = end_ns;
    }
    const bool longer = path_ns > unit.path.path_ns;
    // Beyond three quarters of C at the interval's end.
    if (longer && small(bytes) && unit.may_exceed(path_ns, limit_ns_ - limit_ns_ / 4)) return {Keep::keep};
    if (longer) unit.path.path_ns = path_ns;
    return {Keep::drop};
  }

  bool looks_for_place() const override { return near_ && asked_ < kMostAsked; }

  bool wants_checkpoint(uint32_t id, uint64_t at_ns) override {
    Unit& unit = units_.at(id);
    if (unit.line == line_) note_place(unit, at_ns);
    if (near_) ++asked_;
    if (near_ && in_flight_ <= few()) draw_line();
    if (unit.line == line_) return false;
    if (unit.path.path_ns + at_ns - std::min(at_ns, unit.path.at_ns) > period_ns_ / 8) return true;
    unit.line = line_;
    return false;
  }

  uint64_t checkpoint_by_ns(uint32_t id) const override {
    const Unit& unit = units_.at(id);
    return unit.end_ns == period_ns_ ? UINT64_MAX : by_ns(unit);
  }

  void on_end(uint32_t id, uint64_t) override { units_.erase(id); }

 private:
  struct Unit {
    Path path;
    uint64_t end_ns = 0;    // of its interval, at the latest
    uint64_t usual_ns = 0;  // no sooner, if it can be helped
    uint64_t line = 0;      // the latest that it has passed

    bool may_exceed(uint64_t to_receive_ns, uint64_t limit_ns) const {
      return to_receive_ns + end_ns - std::min(end_ns, path.at_ns) > limit_ns;
    }
  };

  uint64_t usual_most_ns() const { return period_ns_ - period_ns_ / 4; }
  // An eighth of T sooner than must be, because it can come late.
  uint64_t by_ns(const Unit& unit) const {
    return std::max(unit.path.at_ns, unit.end_ns - std::min(unit.end_ns, period_ns_ / 8));
  }

  Unit& advance(uint32_t id, uint64_t at_ns) {
    Unit& unit = units_.at(id);
    unit.path.advance(at_ns);
    if (unit.line == line_) note_place(unit, at_ns);
    return unit;
  }

  // Of a unit that has passed the latest line.
  void note_place(const Unit& unit, uint64_t at_ns) {
    near_ |= at_ns >= unit.end_ns - unit.end_ns / 4;
    if (!near_ && at_ns >= unit.end_ns / 2) fewest_ = std::min(fewest_, in_flight_);
  }

  // Bytes in flight with which a line is drawn. If it does not come to that for long, more will do.
  int64_t few() const {
    const auto most = static_cast<int64_t>(mean_in_flight_ / 4);
    return asked_ < kMostAsked / 2 ? fewest_ : std::max(fewest_, most);
  }

  bool small(uint64_t bytes) const { return static_cast<double>(bytes) <= must_keep_bytes_ / 2; }

  void draw_line() {
    ++line_;
    near_ = false;
    asked_ = 0;
    fewest_ = std::numeric_limits<int64_t>::max();
  }

  const uint64_t limit_ns_;
  const uint64_t period_ns_;
  std::unordered_map<uint32_t, Unit> units_;
  uint64_t line_ = 0;
  bool near_ = false;           // a unit is in the last quarter of its interval
  unsigned asked_ = 0;          // ... since when it was asked so often
  double must_keep_bytes_ = 0;  // what a message had of late that could not be dropped, on average
  int64_t in_flight_ = 0;       // bytes sent and not received; what is never received does not matter to comparisons
  double mean_in_flight_ = 0;   // of late
  int64_t fewest_ = std::numeric_limits<int64_t>::max();  // of them in the quarter before
};

}  // namespace

std::unique_ptr<Policy> make_fewest_bytes(const PolicyParameters& parameters) {
  return std::make_unique<FewestBytes>(parameters);
}

}  // namespace redrive
