#include "supervisor/plan/replay_sets.h"

#include <algorithm>

namespace redrive {

using What = Execution::What;
using Step = Execution::Step;

ReplaySets::ReplaySets(const Execution& execution, const Decided& decided)
    : execution_(execution), decided_(decided), needs_(decided.intervals.size()), reach_(decided.intervals.size()) {
  for (uint32_t i = 0; i < execution.steps.size(); ++i) {
    const Step& step = execution.steps[i];
    if (step.what != What::receive || step.sender_count == 0 || decided.kept[i]) continue;
    needs_[decided.interval_of[i]].push_back(i);
  }
}

const std::vector<Member>& ReplaySets::find(uint32_t wanted) {
  for (const uint32_t interval : found_) reach_[interval] = {};
  found_.clear();
  members_.clear();
  extend(wanted, decided_.intervals[wanted].cpu_ns());
  for (size_t done = 0; done < todo_.size(); ++done) {
    Reach& reach = reach_[todo_[done]];
    reach.queued = false;
    const auto& needs = needs_[todo_[done]];
    for (; reach.scanned < needs.size() && needs[reach.scanned] < reach.end_step; ++reach.scanned) {
      ++visits_;
      const Step& step = execution_.steps[needs[reach.scanned]];
      for (uint32_t k = 0; k < step.sender_count; ++k) need(execution_.senders[step.first_sender + k]);
    }
  }
  todo_.clear();
  for (const uint32_t interval : found_) {
    const Reach& reach = reach_[interval];
    members_.push_back({interval, reach.cpu_ns, std::span(needs_[interval]).first(reach.scanned)});
  }
  return members_;
}

void ReplaySets::need(uint32_t send) {
  const uint32_t interval = decided_.interval_of[send];
  const uint64_t at_ns = execution_.steps[send].at_ns - decided_.intervals[interval].start_ns;
  extend(interval, at_ns, send + 1);
}

void ReplaySets::extend(uint32_t interval, uint64_t cpu_ns, uint32_t end_step) {
  if (!reach_[interval].member) {
    reach_[interval].member = true;
    found_.push_back(interval);
    if (decided_.intervals[interval].birth) need(*decided_.intervals[interval].birth);
  }
  Reach& reach = reach_[interval];
  reach.cpu_ns = std::max(reach.cpu_ns, cpu_ns);
  if (end_step <= reach.end_step) return;
  reach.end_step = end_step;
  if (!reach.queued) {
    reach.queued = true;
    todo_.push_back(interval);
  }
}

}  // namespace redrive
