// Parts of replays that alone exceed a limit, so that some of the messages that they consist of must be kept. They are
// the rows of the linear program in lower_bound.h, which shows that each is necessary.
//
// They are searched for a choice that may keep fractions of messages, and found if the choice violates them: it keeps
// less than they demand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "supervisor/evaluation/evaluation.h"

namespace redrive {

inline constexpr uint32_t kWhole = 1 << 14;  // fine enough for paths of hundreds of fractions

// By step: what is kept of a receive, from 0 to kWhole.
using Choice = std::vector<uint32_t>;

// Whether it is a receive whose payload a policy decides about and `count_logged` counts. Whatever else an interval
// depends on (births, bytes from its own unit) costs no message, so it counts as kept.
bool is_choice(const Execution::Step& step);

// The sum of weight * (what is kept of the receive, from 0 to 1) is at least 1.
struct Excess {
  struct Term {
    uint32_t receive = 0;  // a step
    double weight = 0;
  };
  std::vector<Term> terms;
};

// Paths that are longer than their interval's limit.
class LongPaths {
 public:
  LongPaths(const Execution& execution, const Decided& decided, std::vector<uint64_t> limits_ns);

  // For each interval that a path leads to of which less than one message is kept: one of those of which least is kept.
  std::vector<Excess> find(const Choice& choice);

 private:
  // A path to an interval. Its length at some time of the interval is that time plus `longer_ns`.
  struct Path {
    uint32_t kept = 0;
    int64_t longer_ns = 0;
    uint32_t receive = 0;  // its last one: a step
    uint32_t before = 0;   // the path to the interval that this receive's message was sent in
  };
  // Elements of `fronts_`: the paths to an interval, apart from those than which another one is both longer and less
  // kept, in ascending order of both.
  struct Front {
    uint32_t begin = 0, end = 0;
  };

  void receive(uint32_t step, const Choice& choice);
  void merge(Front sent, uint32_t step, uint32_t kept, int64_t earlier_ns);
  Excess excess_of(uint32_t path, uint32_t interval) const;
  int64_t at_ns(uint32_t step) const;

  const Execution& execution_;
  const Decided& decided_;
  const std::vector<uint64_t> limits_ns_;  // by interval
  std::vector<Path> paths_;                // the first is the empty one
  std::vector<uint32_t> fronts_;
  std::vector<Front> now_;   // by interval
  std::vector<Front> sent_;  // by step: that of a send
};

// Replay sets whose work is more than their interval's limit.
class LargeSets {
 public:
  LargeSets(const Execution& execution, const Decided& decided, std::vector<uint64_t> limits_ns);

  // For each interval that needs such a set, up to two rows.
  std::vector<Excess> find(const Choice& choice);

  // The work for an interval, if messages are kept whole or not at all.
  uint64_t work_ns(uint32_t interval, const Choice& choice);

 private:
  // A part of an interval that must be executed, unless a receive on its way to the wanted interval is kept.
  struct Part {
    uint32_t kept = 0;  // the least sum of what is kept of the receives on a way
    uint32_t interval = 0;
    uint32_t end_step = 0;
    uint64_t end_ns = 0;   // in its interval
    uint32_t receive = 0;  // on that way, what receives from it; not of the wanted interval's part, which is the first
    uint32_t next = 0;     // on that way, the part with this receive
    uint64_t work_ns = 0;  // of the part alone
  };
  // How much of an interval is in parts.
  struct Reached {
    uint32_t end_step = 0;
    size_t needs = 0;
    uint64_t end_ns = 0;
  };

  void grow(uint32_t wanted, const Choice& choice, uint64_t enough_ns);
  std::vector<bool> fewest(size_t count, uint64_t spare_ns) const;
  Excess excess_of(const std::vector<bool>& taken, uint64_t limit_ns) const;

  const Execution& execution_;
  const Decided& decided_;
  const std::vector<uint64_t> limits_ns_;     // by interval
  std::vector<std::vector<uint32_t>> needs_;  // by interval: its receives that are choices
  std::vector<Reached> reached_;              // by interval
  std::vector<Part> parts_;                   // in ascending order of `kept`
};

}  // namespace redrive
