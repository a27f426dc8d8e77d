// Where the replay set of a plan can be cut, so that less has to be executed. What is cut off has to be in the trace.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "supervisor/plan/plan.h"

namespace redrive {

// All that one run of a plan (an execution from a checkpoint) receives from another one, and its birth if that is a
// fork by the other.
struct Link {
  UnitId receiver = 0;
  IntervalIndex start = 0;  // where the receiving run begins
  std::vector<Rdg::Dependence*> dependences;
  std::vector<Rdg::Dependence*> thinned;  // the same of the thinned graph
  bool is_birth = false;
  uint64_t bytes = 0;  // that the trace grows by if nothing of it is needed
};

// Links of which nothing is needed any more; with `from`, nothing from that event of their only receiver on.
struct Cut {
  std::vector<const Link*> links;
  EventIndex from = 0;
  uint64_t bytes = 0;

  void add(const Link& link) {
    links.push_back(&link);
    bytes += link.bytes;
  }
};

// The links between the runs of a plan. Cuts point to them, and they to dependences of both graphs.
class Links {
 public:
  Links(Rdg& graph, Rdg& thinned, const Plan& plan);

  // By kind: what one run receives from another one; what one receives from all; what all receive from one; what a
  // group around the wanted one receives from outside of it; and the last parts of what the wanted one receives.
  std::vector<std::vector<Cut>> cuts() const;
  // All that the wanted run receives; nothing if it receives nothing.
  std::optional<Cut> around_wanted() const;

 private:
  std::optional<size_t> run_of(const Rdg& graph, EventRef event) const;
  Link& link(size_t receiver, size_t sender);
  void add(Rdg& graph, size_t receiver, std::vector<Rdg::Dependence*> Link::*to);
  std::vector<Cut> around_groups() const;

  const Plan& plan_;
  std::map<std::pair<UnitId, IntervalIndex>, size_t> runs_;  // by where each begins; their places in the replay set
  std::map<std::pair<size_t, size_t>, Link> links_;          // by receiving and sending run; the wanted one is 0
};

}  // namespace redrive
