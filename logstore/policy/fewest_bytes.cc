// Our own policy. It makes the promise of critical-path (no interval's critical path exceeds C) and keeps fewer bytes.
// Both are greedy: to find the smallest set of messages is NP-hard (Netzer et al.).
//
// Most of what critical-path keeps are messages from units far into their interval to units that have just begun one:
// all messages that are sent between the two units' checkpoints. At C = 2T these come with a path of about C/2, and the
// rest of the interval adds C/2. So this policy places checkpoints on lines. When one unit comes near T, every unit
// takes a checkpoint before its next event; then only what was in flight when the line was drawn goes from before the
// line to after it. In the last quarter of T, the line is drawn as soon as there are no more bytes in flight than the
// fewest in the quarter before; a unit that takes its checkpoint without a line draws one in any case. A unit with a
// short path takes no part in the line: what it sends is cheap to recompute. What a process computes between two looks
// at its messages must be short compared with T, because messages that wait meanwhile are in flight at any line.
//
// The rest are messages that would exceed C if their receiver's interval lasted for T: any message between units that
// are not at quite the same place in their intervals, if the paths of these began with what was in flight at a line.
// Because of the lines, most intervals end sooner. So such a message is dropped if it does not exceed C with an
// interval as long as the previous one. From then on the interval must end in time: its checkpoint is due an eighth of
// T before the path reaches C, unless a line comes first. If the checkpoints are those of a recording, it is known what
// exceeds C. A unit whose checkpoint was skipped, or came later than that, is not relied on: until one has come in
// time, it counts as one that will compute for T.
//
// Every message that was in flight at a line is treated as if it came right after the line, whatever is left of its
// receiver's own interval: that interval may end in time, as those of a unit that waits much do, but with the path that
// the message brings, everything that the receiver sends from then on would exceed C.
//
// Where paths grow long within the interval between two lines (units that work one after the other), the chain can be
// cut by keeping any of its messages. So a small message is kept before its path reaches the limit, rather than a large
// one when it does. Small is relative to the messages that had to be kept recently.
//
// Invariant: that of Algorithm 1 (critical_path.cc), with the latest end of the interval instead of T: a unit's path so
// far + what may remain of its interval <= C. Lines, and keeping more than necessary, do not affect it. So an interval
// of length L has a path of at most C + (L - E), where E is T, or an eighth of T after the earliest checkpoint_by_ns()
// that was asked for.
#include <algorithm>
#include <unordered_map>

#include "logstore/policy/lines.h"
#include "logstore/policy/path.h"

namespace redrive {
namespace {

class FewestBytes : public Policy {
 public:
  explicit FewestBytes(const PolicyParameters& parameters)
      : limit_ns_(parameters.critical_path_ns), period_ns_(parameters.checkpoint_period_ns) {}

  void on_checkpoint(uint32_t id, uint64_t ended_ns) override {
    const auto [place, is_new] = units_.try_emplace(id, Unit{{}, period_ns_, usual_most_ns(), lines_.latest()});
    if (is_new) return;
    Unit& unit = place->second;
    unit.path.advance(ended_ns);
    if (unit.line == lines_.latest() && unit.path.path_ns >= period_ns_ / 2) lines_.draw();
    if (ended_ns > unit.end_ns) {
      unit.usual_ns = period_ns_;
    } else {
      // The length of an interval that was cut short says nothing about the next one.
      unit.usual_ns = std::min(ended_ns < by_ns(unit) ? ended_ns : unit.usual_ns, usual_most_ns());
    }
    unit.path = {};
    unit.end_ns = period_ns_;
    unit.line = lines_.latest();
  }

  void on_skipped(uint32_t id, uint64_t until_ns) override {
    Unit& unit = units_.at(id);
    unit.end_ns = unit.usual_ns = std::max(unit.end_ns, until_ns);
  }

  void on_length_known(uint32_t id, uint64_t length_ns) override {
    Unit& unit = units_.at(id);
    unit.end_ns = unit.usual_ns = length_ns;
  }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t bytes) override {
    lines_.sent(bytes);
    return {.critical_path_ns = advance(id, at_ns).path.path_ns, .line = lines_.latest()};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t bytes) override {
    lines_.received(bytes);
    Unit& unit = advance(id, at_ns);
    const uint64_t path_ns = tag.critical_path_ns;
    if (tag.line < unit.line && path_ns + period_ns_ > limit_ns_) return {Keep::keep};
    if (unit.may_exceed(path_ns, limit_ns_)) {
      // The latest end of the interval with which the path does not exceed C.
      const uint64_t end_ns = unit.path.at_ns + limit_ns_ - std::min(limit_ns_, path_ns);
      if (path_ns > limit_ns_ || end_ns < std::max(unit.usual_ns, unit.path.at_ns + early_ns())) {
        must_keep_bytes_ += (static_cast<double>(bytes) - must_keep_bytes_) / 16;
        return {Keep::keep};
      }
      unit.end_ns = end_ns;
    }
    const bool longer = path_ns > unit.path.path_ns;
    // The path would exceed three quarters of C at the interval's end.
    if (longer && small(bytes) && unit.may_exceed(path_ns, limit_ns_ - limit_ns_ / 4)) return {Keep::keep};
    if (longer) unit.path.path_ns = path_ns;
    return {Keep::drop};
  }

  bool looks_for_place() const override { return lines_.looks_for_place(); }

  bool wants_checkpoint(uint32_t id, uint64_t at_ns) override {
    Unit& unit = units_.at(id);
    note_place(unit, at_ns);
    lines_.ask();
    if (unit.line == lines_.latest()) return false;
    if (unit.path.path_ns + at_ns - std::min(at_ns, unit.path.at_ns) > period_ns_ / 8) return true;
    unit.line = lines_.latest();
    return false;
  }

  uint64_t checkpoint_by_ns(uint32_t id) const override {
    const Unit& unit = units_.at(id);
    return unit.end_ns >= period_ns_ ? UINT64_MAX : by_ns(unit);
  }

  void on_end(uint32_t id, uint64_t) override { units_.erase(id); }

  bool set_limits(uint64_t critical_path_ns, uint64_t period_ns) override {
    limit_ns_ = critical_path_ns;
    period_ns_ = period_ns;
    return true;
  }

 private:
  struct Unit {
    Path path;
    uint64_t end_ns = 0;    // latest end of its interval
    uint64_t usual_ns = 0;  // the interval should not end before this, if possible
    uint64_t line = 0;      // the latest line that it has passed

    bool may_exceed(uint64_t to_receive_ns, uint64_t limit_ns) const {
      return to_receive_ns + end_ns - std::min(end_ns, path.at_ns) > limit_ns;
    }
  };

  uint64_t usual_most_ns() const { return period_ns_ - period_ns_ / 4; }
  uint64_t early_ns() const { return period_ns_ / 8; }
  // Earlier than necessary, because the checkpoint can come late.
  uint64_t by_ns(const Unit& unit) const { return unit.end_ns - std::min(unit.end_ns, early_ns()); }

  Unit& advance(uint32_t id, uint64_t at_ns) {
    Unit& unit = units_.at(id);
    unit.path.advance(at_ns);
    note_place(unit, at_ns);
    return unit;
  }

  void note_place(const Unit& unit, uint64_t at_ns) {
    if (unit.line == lines_.latest()) lines_.note_place(at_ns, unit.end_ns);
  }

  bool small(uint64_t bytes) const { return static_cast<double>(bytes) <= must_keep_bytes_ / 2; }

  uint64_t limit_ns_;   // C
  uint64_t period_ns_;  // T
  std::unordered_map<uint32_t, Unit> units_;
  Lines lines_;
  double must_keep_bytes_ = 0;  // recent average size of messages that could not be dropped
};

}  // namespace

std::unique_ptr<Policy> make_fewest_bytes(const PolicyParameters& parameters) {
  return std::make_unique<FewestBytes>(parameters);
}

}  // namespace redrive
