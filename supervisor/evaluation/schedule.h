// How long a replay set takes to execute, by the way in which its intervals share processors. Restores are not counted.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "supervisor/evaluation/replay_sets.h"

namespace redrive {

// list: J cores. An interval is executed as long as it can be; one that waits gives its core to the one that has been
// ready longest.
//
// cyclic: each unit has a processor, which cycles through those of the unit's intervals that can be executed, one unit
// of time each (Netzer et al., theorem 1). A unit of time is as short as can be: each of n intervals is executed at 1/n
// of the speed. If the set has at most M intervals of a unit, this takes at most M times the critical path.
//
// frontier: each unit is executed once, on a processor of its own, from the earliest of its intervals in the set (the
// left frontier) on and through all its later checkpoints. This is what can be done where only the frontier is known,
// as with Netzer and Xu's `domino`. It may never end: a unit also executes what is not in the set, and may wait there
// for a message that nobody sends again.
enum class ScheduleKind : uint8_t { list, cyclic, frontier };
const std::vector<std::string>& schedule_names();  // in the order of ScheduleKind

class Schedule {
 public:
  Schedule(const Execution& execution, const Decided& decided);  // which must outlive it

  // The time when all members of a set have been executed; `frontier`: its first member. Nullopt: never, because an
  // interval waits for a message that nobody sends.
  std::optional<uint64_t> time_ns(ScheduleKind kind, uint32_t cores, const std::vector<Member>& members);

  uint64_t visits() const { return visits_; }  // steps that replays from frontiers have looked at

 private:
  struct Run {
    size_t next = 0, end = 0;  // points that it must pass
    uint64_t reached_ns = 0;
    uint64_t cpu_ns = 0;
    uint64_t start_ns = 0;  // of its interval
    uint32_t processor = 0;
  };
  // With the runs that it cycles through, by the amount that each run there has executed when they get to their next
  // point.
  struct Processor {
    double now_ns = 0;
    double executed_ns = 0;  // by a run that has been there since the beginning
    uint64_t changes = 0;
    std::priority_queue<std::pair<double, uint32_t>, std::vector<std::pair<double, uint32_t>>, std::greater<>> runs;
  };
  // When the first of its runs gets to its next point, unless the processor changes before.
  struct Due {
    double at_ns;
    uint32_t processor;
    uint64_t changes;
    bool operator>(const Due& other) const { return at_ns > other.at_ns; }
  };
  // A unit in a replay from the frontier.
  struct Progress {
    uint32_t first = 0;  // interval
    uint64_t at_ns = 0;  // CPU time since the unit's beginning
    uint64_t now_ns = 0;
    bool waits = false;  // for ever
  };

  uint64_t list_ns(uint32_t cores);
  uint64_t cyclic_ns();
  std::optional<uint64_t> frontier_ns(const std::vector<Member>& members);
  void advance(Processor& processor, double now_ns);
  void expect(uint32_t processor);
  void execute(uint32_t step, Progress& unit);

  void begin(const std::vector<Member>& members);
  void add_send(uint32_t send);
  uint64_t to_next_point_ns(uint32_t run);
  bool pass(uint32_t run);
  std::optional<uint32_t> missing_of(uint32_t receive) const;

  const Execution& execution_;
  const Decided& decided_;
  std::vector<uint32_t> first_steps_;  // by interval
  std::vector<bool> done_;             // by step: sends
  std::vector<uint32_t> sends_;        // sends whose flags in done_ may be set
  std::vector<uint64_t> points_;       // sorted by interval and step
  std::vector<Run> runs_;
  size_t finished_ = 0;  // how many runs
  std::deque<uint32_t> ready_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> waiters_;  // by send
  std::vector<Processor> processors_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<uint64_t> sent_ns_;  // by step: sends, in a replay from the frontier
  uint64_t visits_ = 0;
};

}  // namespace redrive
