#include "supervisor/evaluation/replay_sets.h"

#include <algorithm>
#include <iterator>
#include <memory>

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
      for (const uint32_t send : execution_.senders_of(step)) need(send);
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

StoredSets::StoredSets(const Execution& execution, const Decided& decided) : of_unit_(execution.units) {
  std::vector<std::shared_ptr<const Set>> sets;                          // by interval, so far
  std::vector<std::shared_ptr<const Set>> tags(execution.steps.size());  // by step: what a send piggybacks
  for (uint32_t i = 0; i < decided.intervals.size(); ++i) {
    auto& intervals = of_unit_[decided.intervals[i].unit];
    place_.emplace_back(decided.intervals[i].unit, intervals.size());
    intervals.push_back(i);
    sets.push_back(std::make_shared<Set>(Set{i}));
  }
  for (uint32_t i = 0; i < execution.steps.size(); ++i) {
    const Step& step = execution.steps[i];
    auto& set = sets[decided.interval_of[i]];
    if (step.what == What::send) tags[i] = set;
    if ((step.what != What::receive && step.what != What::birth) || decided.kept[i]) continue;
    for (const uint32_t send : execution.senders_of(step)) {
      const Set& tag = *tags[send];
      if (std::includes(set->begin(), set->end(), tag.begin(), tag.end())) continue;
      Set both;
      std::set_union(set->begin(), set->end(), tag.begin(), tag.end(), std::back_inserter(both));
      set = std::make_shared<Set>(std::move(both));
    }
  }
  for (const auto& set : sets) store(*set);
}

// Unit by unit: the distance from the unit before, how many of its intervals there are, and their distances.
void StoredSets::store(Set set) {
  std::sort(set.begin(), set.end(), [this](uint32_t a, uint32_t b) { return place_[a] < place_[b]; });
  begin_.push_back(stored_.size());
  stored_.u(set.size());
  uint32_t unit = 0;
  for (size_t i = 0; i < set.size();) {
    const auto last = std::find_if(set.begin() + static_cast<ptrdiff_t>(i), set.end(),
                                   [&](uint32_t other) { return place_[other].first != place_[set[i]].first; });
    const auto end = static_cast<size_t>(last - set.begin());
    stored_.u(place_[set[i]].first - std::exchange(unit, place_[set[i]].first));
    stored_.u(end - i);
    for (uint32_t place = 0; i < end; ++i)
      stored_.u(place_[set[i]].second - std::exchange(place, place_[set[i]].second));
  }
}

std::vector<uint32_t> StoredSets::load(uint32_t interval) const {
  Decoder stored(stored_.data().subspan(begin_[interval]));
  Set set(stored.u());
  uint64_t unit = 0;
  for (size_t i = 0; i < set.size();) {
    unit += stored.u();
    const size_t end = i + stored.u();
    for (uint64_t place = 0; i < end; ++i) set[i] = of_unit_[unit][place += stored.u()];
  }
  std::sort(set.begin(), set.end());
  return set;
}

}  // namespace redrive
