// No replay takes longer than C on J cores, and few bytes are kept for that: what is kept is decided when intervals
// end.
//
// C includes the time to restore what intervals start from. A list schedule of work W with longest path P takes at most
// W/J + P*(1 - 1/J) (Graham, 1969). makespan.cc promises this too, but has to decide at each receive, with an interval
// that may last for T and others that may go on. Here payloads are held. When an interval ends, its replay set is
// known, and so is the time of its replay. If that exceeds C, the replay set is cut: part of it stays, and what that
// part has received from the rest is kept. The part is a set, because one interval gains nothing by being cut off from
// one sender of several. It grows from the interval, by what it has received most bytes from (like the order of Stoer
// and Wagner's minimum cut), as long as it fits into C. Of all parts that are seen so, that one stays for which the
// fewest bytes are kept for the work that can follow before the next cut: what is left up to C on J cores, and the
// intervals of the part that have not ended. So a chain is cut far from where the next cut will be.
//
// Invariant: the replay of an interval of length L takes at most C, or C + (L - T) if that is more. What it has
// received is held until it ends, so it can be cut off from all others; keeping more later only makes replays shorter.
// What is dropped at once fits in any case: within an interval between two lines, if all that any unit needs, and T,
// fit into C one after the other, so that streams are not held; and a birth, which nobody can hold, if the replay of
// what it needs, and T, do. Other births are kept, and so is what comes from an interval about which nothing is known
// any more.
//
// An interval's messages are settled when twice as many intervals as there are units have ended after it. Later
// replays are cut elsewhere. What no replay can reach from intervals that are not settled is forgotten, so the object
// does not grow with the recording.
//
// Checkpoints are placed on lines, like those of fewest_bytes.cc. A line also comes when the replay of what a unit
// needs since the latest one has almost become as long as C, because a cut between lines takes few bytes, and one amid
// intervals takes many. But it costs images, so it does not come where these may be larger than what has been
// received.
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "logstore/policy/lines.h"
#include "logstore/policy/policy.h"

namespace redrive {
namespace {

constexpr uint64_t kBytesOfReceive = 16;  // that a kept payload takes beside its own
constexpr uint64_t kWritten = 4;          // about one of so many bytes of memory is written in an interval, and kept

class Deadline : public Policy {
 public:
  explicit Deadline(const PolicyParameters& parameters)
      : limit_ns_(parameters.critical_path_ns), period_ns_(parameters.checkpoint_period_ns), cores_(parameters.cores) {}

  void on_checkpoint(uint32_t id, uint64_t ended_ns) override {
    const auto [place, is_new] = units_.try_emplace(id);
    Unit& unit = place->second;
    if (!is_new) {
      Interval& ended = advance(unit, ended_ns);
      if (unit.line == lines_.latest() && ended.path_ns >= period_ns_ / 2) lines_.draw();
      end(ended);
    }
    unit.interval = &intervals_[key(id, unit.intervals++)];
    unit.end_ns = period_ns_;
    unit.looked_ns = 0;
    unit.line = unit.interval->line = lines_.latest();
  }

  void on_skipped(uint32_t id, uint64_t until_ns) override {
    Unit& unit = units_.at(id);
    unit.end_ns = std::max(unit.end_ns, until_ns);
  }

  void on_restore_known(uint32_t id, uint64_t restore_ns, uint64_t memory_bytes) override {
    Interval& interval = *units_.at(id).interval;
    happened_ns_ += restore_ns - interval.restore_ns;
    interval.restore_ns = restore_ns;
    interval.memory_bytes = memory_bytes;
  }

  Tag on_send(uint32_t id, uint64_t at_ns, uint64_t bytes) override {
    lines_.sent(bytes);
    Unit& unit = units_.at(id);
    const Interval& interval = advance(unit, at_ns);
    return Tag{interval.path_ns, std::make_shared<Needs>(Needs{{id, unit.intervals - 1, interval.now_ns}})};
  }

  Decision on_receive(uint32_t id, uint64_t at_ns, const Tag& tag, uint64_t bytes) override {
    lines_.received(bytes);
    Unit& unit = units_.at(id);
    Interval& interval = advance(unit, at_ns);
    const bool is_birth = unit.intervals == 1 && at_ns == 0 && interval.received.empty();
    bool comes_late = false;
    std::vector<Received> parts;
    for (const Need& sender : *tag.needs) {
      const auto known = intervals_.find(key(sender.unit, sender.interval));
      if (known == intervals_.end() || known->second.settled) return {Keep::keep};
      if (&known->second == &interval) continue;
      comes_late |= known->second.ended || known->second.line != interval.line;
      parts.push_back({at_ns, &known->second, sender.cpu_ns, receives_, parts.empty() ? bytes : 0});
    }
    if (parts.empty()) return {Keep::drop};
    if (is_birth && !fits_after(interval, parts)) return {Keep::keep};
    const bool settled = is_birth || (!comes_late && fits_anyway(period_ns_ - std::min(period_ns_, at_ns)));
    for (Received& part : parts) part.settled = settled;
    interval.path_ns = std::max(interval.path_ns, tag.critical_path_ns);
    interval.received.insert(interval.received.end(), parts.begin(), parts.end());
    ++receives_;
    return settled ? Decision{Keep::drop} : Decision{Keep::later, false, receives_ - 1};
  }

  bool looks_for_place() const override { return lines_.looks_for_place(); }

  bool wants_checkpoint(uint32_t id, uint64_t at_ns) override {
    Unit& unit = units_.at(id);
    note_place(unit, at_ns);
    if (fills_up(unit, at_ns)) lines_.draw();
    lines_.ask();
    if (unit.line == lines_.latest()) return false;
    const Interval& interval = *unit.interval;
    if (interval.path_ns + at_ns - std::min(at_ns, interval.now_ns) > period_ns_ / 8) return true;
    unit.line = lines_.latest();
    return false;
  }

  void on_end(uint32_t id, uint64_t at_ns) override {
    Unit& unit = units_.at(id);
    end(advance(unit, at_ns));
    units_.erase(id);
    if (units_.empty()) settle(0);
  }

  bool set_limits(uint64_t critical_path_ns, uint64_t period_ns) override {
    limit_ns_ = critical_path_ns;
    period_ns_ = period_ns;
    return true;
  }

  std::vector<Settled> on_settle() override { return std::exchange(settled_, {}); }

 private:
  struct Interval;
  // A message part that is not kept. Its ticket is also its place among all that were received.
  struct Received {
    uint64_t at_ns = 0;
    Interval* sender = nullptr;
    uint64_t sent_ns = 0;
    uint64_t ticket = 0;
    uint64_t bytes = 0;
    bool settled = false;  // it will not be kept
  };
  struct Interval {
    uint64_t now_ns = 0;
    uint64_t path_ns = 0;     // the longest one that leads here, or more
    uint64_t restore_ns = 0;  // what it starts from
    uint64_t memory_bytes = 0;
    uint64_t line = 0;  // the latest one before it
    bool ended = false;
    bool settled = false;
    std::vector<Received> received;
    // What the replay that was looked at last needs of it:
    uint64_t replay = 0;
    uint64_t needed_ns = 0;
    size_t followed = 0;                                 // parts
    size_t place = 0;                                    // in the replay set
    bool stays = false;                                  // when that is cut
    std::vector<std::pair<uint64_t, uint64_t>> waits{};  // from this time on, so much more than its own time

    uint64_t wait_ns(uint64_t at_ns) const {
      const auto after = std::upper_bound(waits.begin(), waits.end(), at_ns,
                                          [](uint64_t time, const auto& wait) { return time < wait.first; });
      return after == waits.begin() ? 0 : std::prev(after)->second;
    }
  };
  struct Unit {
    uint32_t intervals = 0;
    Interval* interval = nullptr;  // the current one
    uint64_t end_ns = 0;           // when that ends at the latest
    uint64_t line = 0;             // the latest that it has passed
    uint64_t looked_ns = 0;        // when it was last seen whether much has happened since that
  };
  struct Work {
    uint64_t cpu_ns = 0, restore_ns = 0, longest_restore_ns = 0;

    Work() = default;
    explicit Work(const std::vector<Interval*>& replay_set) {
      for (const Interval* const interval : replay_set) add(*interval);
    }
    void add(const Interval& interval) {
      cpu_ns += interval.needed_ns;
      restore_ns += interval.restore_ns;
      longest_restore_ns = std::max(longest_restore_ns, interval.restore_ns);
    }
  };
  // All that one interval of a replay set has received from another one: their places there.
  struct Edge {
    size_t sender = 0;
    uint64_t bytes = 0;
    bool settled = false;
  };

  static uint64_t key(uint32_t unit, uint32_t interval) { return uint64_t{unit} << 32 | interval; }

  Interval& advance(Unit& unit, uint64_t at_ns) {
    Interval& interval = *unit.interval;
    if (at_ns > interval.now_ns) {
      happened_ns_ += at_ns - interval.now_ns;
      interval.path_ns += at_ns - interval.now_ns;
      interval.now_ns = at_ns;
    }
    note_place(unit, at_ns);
    return interval;
  }

  void note_place(const Unit& unit, uint64_t at_ns) {
    if (unit.line == lines_.latest()) lines_.note_place(at_ns, unit.end_ns);
  }

  // Whether the replay of what the unit needs since the latest line has almost become too long. It would have to be cut
  // amid intervals.
  bool fills_up(Unit& unit, uint64_t at_ns) {
    Interval& interval = *unit.interval;
    const bool passed = unit.line == lines_.latest() && interval.line == lines_.latest();
    if (!passed || at_ns < period_ns_ / 4 || at_ns - unit.looked_ns < period_ns_ / 16) return false;
    unit.looked_ns = at_ns;
    begin_replay();
    need(interval, at_ns);
    follow();
    Work work;
    for (const Interval* const needed : replay_set_) {
      if (needed->line == lines_.latest()) work.add(*needed);
    }
    const uint64_t path_ns = interval.path_ns + at_ns - std::min(at_ns, interval.now_ns);
    if (schedule_ns(work, path_ns) <= limit_ns_ - limit_ns_ / 8) return false;
    uint64_t received_bytes = 0, memory_bytes = 0;
    for (const Interval* const needed : replay_set_) {
      if (needed->line != lines_.latest()) continue;
      memory_bytes += needed->memory_bytes;
      for (size_t i = 0; i < needed->followed; ++i) received_bytes += needed->received[i].bytes;
    }
    return received_bytes >= memory_bytes / kWritten;
  }

  // ---- The end of an interval

  void end(Interval& interval) {
    if (exceeds(interval)) cut(interval);
    interval.ended = true;
    undecided_.push_back(&interval);
    settle(2 * units_.size());
    if (intervals_.size() > 2 * remembered_ + 64) forget();
  }

  void settle(size_t left) {
    for (; undecided_.size() > left; undecided_.pop_front()) {
      Interval& interval = *undecided_.front();
      interval.settled = true;
      uint64_t last = UINT64_MAX;
      for (Received& part : interval.received) {
        const bool is_first = std::exchange(last, part.ticket) != part.ticket;
        if (!std::exchange(part.settled, true) && is_first) settled_.push_back({part.ticket, false});
      }
    }
  }

  // Forgets what no interval that is not settled can need.
  void forget() {
    begin_replay();
    for (auto& [id, unit] : units_) need(*unit.interval, unit.interval->now_ns);
    for (Interval* const interval : undecided_) need(*interval, interval->now_ns);
    follow();
    std::erase_if(intervals_, [&](const auto& known) { return known.second.replay != replays_; });
    for (auto& [id, interval] : intervals_) {
      if (interval.settled) interval.received.resize(interval.followed);
    }
    remembered_ = intervals_.size();
  }

  // ---- Replays

  void begin_replay() {
    ++replays_;
    replay_set_.clear();
  }

  void need(Interval& interval, uint64_t needed_ns) {
    if (interval.replay != replays_) {
      interval.replay = replays_;
      interval.followed = 0;
      interval.needed_ns = needed_ns;
      interval.place = replay_set_.size();
      interval.stays = false;
      replay_set_.push_back(&interval);
    } else if (interval.needed_ns < needed_ns) {
      interval.needed_ns = needed_ns;
    } else {
      return;
    }
    to_follow_.push_back(&interval);
  }

  // Adds to the replay set what is needed.
  void follow() {
    while (!to_follow_.empty()) {
      Interval& interval = *to_follow_.back();
      to_follow_.pop_back();
      auto& received = interval.received;
      for (; interval.followed < received.size(); ++interval.followed) {
        const Received& part = received[interval.followed];
        if (part.at_ns > interval.needed_ns) break;
        need(*part.sender, part.sent_ns);
      }
    }
  }

  // What has to be done if an interval's execution up to a time is wanted. Leaves the replay set.
  Work replay(Interval& wanted, uint64_t wanted_ns) {
    begin_replay();
    need(wanted, wanted_ns);
    follow();
    return Work(replay_set_);
  }

  // Graham's bound. The longest path may begin with the longest of the restores.
  uint64_t schedule_ns(const Work& work, uint64_t path_ns) const {
    const uint64_t all_ns = work.cpu_ns + work.restore_ns;
    const uint64_t longest_ns = std::min(path_ns, work.cpu_ns) + work.longest_restore_ns;
    return (all_ns + longest_ns * (cores_ - 1) + cores_ - 1) / cores_;
  }

  // The longest path to the end of an interval through the replay set.
  uint64_t longest_path_ns(const Interval& wanted) {
    struct Step {
      const Received* part;
      Interval* receiver;
    };
    std::vector<Step> steps;
    for (Interval* const interval : replay_set_) {
      interval->waits.clear();
      for (size_t i = 0; i < interval->followed; ++i) steps.push_back({&interval->received[i], interval});
    }
    std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.part->ticket < b.part->ticket; });
    for (const Step& step : steps) {
      const uint64_t sent_ns = step.part->sent_ns + step.part->sender->wait_ns(step.part->sent_ns);
      auto& waits = step.receiver->waits;
      const uint64_t before_ns = waits.empty() ? 0 : waits.back().second;
      if (sent_ns > step.part->at_ns + before_ns) waits.emplace_back(step.part->at_ns, sent_ns - step.part->at_ns);
    }
    return wanted.needed_ns + wanted.wait_ns(wanted.needed_ns);
  }

  // Whether all that has happened and may still be needed, and so much more, fits into C, executed one after the other.
  bool fits_anyway(uint64_t more_ns) {
    const auto fits = [&] { return needed_by_all_ns_ + (happened_ns_ - summed_up_ns_) + more_ns <= limit_ns_; };
    if (fits()) return true;
    if (happened_ns_ - summed_up_ns_ < period_ns_ / 8) return false;
    summed_up_ns_ = happened_ns_;
    begin_replay();
    for (auto& [id, unit] : units_) need(*unit.interval, unit.interval->now_ns);
    follow();
    const Work work(replay_set_);
    needed_by_all_ns_ = work.cpu_ns + work.restore_ns;
    return fits();
  }

  // Whether what a birth needs, and an interval of T after it with its start, fit into C.
  bool fits_after(const Interval& born, const std::vector<Received>& birth) {
    uint64_t needed_ns = born.restore_ns + period_ns_;
    for (const Received& part : birth) {
      needed_ns += schedule_ns(replay(*part.sender, part.sent_ns), part.sender->path_ns);
    }
    return needed_ns <= limit_ns_;
  }

  // Leaves the replay set, and the right path.
  bool exceeds(Interval& interval) {
    const Work work = replay(interval, interval.now_ns);
    if (schedule_ns(work, interval.path_ns) <= limit_ns_) return false;
    interval.path_ns = longest_path_ns(interval);
    return schedule_ns(work, interval.path_ns) > limit_ns_;
  }

  // ---- Cutting the replay set

  // What each interval of the replay set has received from others, as far as it is needed.
  std::vector<std::vector<Edge>> edges() const {
    std::vector<std::vector<Edge>> edges(replay_set_.size());
    for (const Interval* const interval : replay_set_) {
      auto& senders = edges[interval->place];
      for (size_t i = 0; i < interval->followed; ++i) {
        const Received& part = interval->received[i];
        const auto is_sender = [&](const Edge& edge) { return edge.sender == part.sender->place; };
        auto edge = std::find_if(senders.begin(), senders.end(), is_sender);
        if (edge == senders.end()) edge = senders.insert(edge, {part.sender->place});
        edge->bytes += part.bytes + kBytesOfReceive;
        edge->settled |= part.settled;
      }
    }
    return edges;
  }

  void cut(Interval& interval) {
    const auto received = edges();
    std::vector<uint64_t> sent(replay_set_.size());  // to the part, by each of the others
    std::vector<size_t> part;                        // in the order in which they were added
    size_t best = 0;                                 // how many of these stay
    double best_cost = 0;
    Work work;
    uint64_t going_on_ns = 0, kept = 0;
    for (size_t next = interval.place; next < replay_set_.size();) {
      std::vector<size_t> to_add{next};
      while (!to_add.empty()) {
        Interval& added = *replay_set_[to_add.back()];
        to_add.pop_back();
        if (std::exchange(added.stays, true)) continue;
        part.push_back(added.place);
        kept -= sent[added.place];
        work.add(added);
        if (!added.ended) going_on_ns += added.needed_ns;
        for (const Edge& edge : received[added.place]) {
          if (replay_set_[edge.sender]->stays) continue;
          sent[edge.sender] += edge.bytes;
          kept += edge.bytes;
          if (edge.settled) to_add.push_back(edge.sender);
        }
      }
      const uint64_t needed_ns = schedule_ns(work, interval.path_ns);
      if (needed_ns > limit_ns_) break;
      const uint64_t following_ns = going_on_ns + cores_ * (limit_ns_ - std::min(limit_ns_, needed_ns));
      const double cost = static_cast<double>(kept) / static_cast<double>(following_ns + 1);
      if (best == 0 || cost < best_cost) best = part.size(), best_cost = cost;
      next = replay_set_.size();
      for (size_t i = 0; i < replay_set_.size(); ++i) {
        const bool is_more = next == replay_set_.size() || sent[i] > sent[next];
        if (!replay_set_[i]->stays && sent[i] > 0 && is_more) next = i;
      }
    }
    for (size_t i = best; i < part.size(); ++i) replay_set_[part[i]]->stays = false;
    for (size_t i = 0; i < best; ++i) keep_from_others(*replay_set_[part[i]]);
    if (best == 0) keep_from_others(interval);
  }

  // What an interval has received from those that do not stay, as far as that is not settled.
  void keep_from_others(Interval& interval) {
    std::unordered_set<uint64_t> tickets;
    auto& received = interval.received;
    for (size_t i = 0; i < interval.followed; ++i) {
      const Received& part = received[i];
      if (!part.settled && !part.sender->stays && tickets.insert(part.ticket).second)
        settled_.push_back({part.ticket, true});
    }
    std::erase_if(received, [&](const Received& part) { return tickets.contains(part.ticket); });
  }

  uint64_t limit_ns_;   // C
  uint64_t period_ns_;  // T
  const uint64_t cores_;
  Lines lines_;
  std::unordered_map<uint32_t, Unit> units_;
  std::unordered_map<uint64_t, Interval> intervals_;  // by key()
  std::deque<Interval*> undecided_;                   // that have ended, the oldest first
  size_t remembered_ = 0;                             // intervals, when some were forgotten
  uint64_t receives_ = 1;
  // CPU time and restores: what the current intervals needed together when that was summed up; what has happened until
  // then, and until now.
  uint64_t needed_by_all_ns_ = 0, summed_up_ns_ = 0, happened_ns_ = 0;
  std::vector<Settled> settled_;
  // The replay that is looked at:
  uint64_t replays_ = 0;
  std::vector<Interval*> replay_set_, to_follow_;
};

}  // namespace

std::unique_ptr<Policy> make_deadline(const PolicyParameters& parameters) {
  return std::make_unique<Deadline>(parameters);
}

}  // namespace redrive
