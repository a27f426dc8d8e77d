#include "supervisor/evaluation/excess.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

namespace redrive {
namespace {

using What = Execution::What;
using Step = Execution::Step;

constexpr uint32_t kNoPath = UINT32_MAX;

bool is_violated(const Excess& excess, const Choice& choice) {
  double kept = 0;
  for (const auto& term : excess.terms) kept += term.weight * choice[term.receive];
  return kept < kWhole;
}

}  // namespace

bool is_choice(const Step& step) { return step.what == What::receive && step.message && step.sender_count > 0; }

LongPaths::LongPaths(const Execution& execution, const Decided& decided, std::vector<uint64_t> limits_ns)
    : execution_(execution), decided_(decided), limits_ns_(std::move(limits_ns)), sent_(execution.steps.size()) {}

std::vector<Excess> LongPaths::find(const Choice& choice) {
  paths_.assign(1, {0, 0, kNoPath, kNoPath});
  fronts_.assign(1, 0);
  now_.assign(decided_.intervals.size(), {0, 1});
  for (uint32_t i = 0; i < execution_.steps.size(); ++i) {
    const Step& step = execution_.steps[i];
    if (step.what == What::send) sent_[i] = now_[decided_.interval_of[i]];
    if (is_choice(step) && choice[i] < kWhole) receive(i, choice);
  }
  std::vector<Excess> found;
  for (uint32_t interval = 0; interval < now_.size(); ++interval) {
    const auto cpu_ns = static_cast<int64_t>(decided_.intervals[interval].cpu_ns());
    const auto too_much_ns = static_cast<int64_t>(limits_ns_[interval]) - cpu_ns;
    const auto [begin, end] = now_[interval];
    const auto first = std::upper_bound(fronts_.begin() + begin, fronts_.begin() + end, too_much_ns,
                                        [this](int64_t ns, uint32_t path) { return ns < paths_[path].longer_ns; });
    if (first != fronts_.begin() + end) found.push_back(excess_of(*first, interval));
  }
  return found;
}

int64_t LongPaths::at_ns(uint32_t step) const {
  return static_cast<int64_t>(execution_.steps[step].at_ns - decided_.intervals[decided_.interval_of[step]].start_ns);
}

void LongPaths::receive(uint32_t number, const Choice& choice) {
  const Step& step = execution_.steps[number];
  for (const uint32_t sender : execution_.senders_of(step)) {
    merge(sent_[sender], number, choice[number], at_ns(sender) - at_ns(number));
  }
}

// Adds the sender's paths to those of the receive's interval.
void LongPaths::merge(Front sent, uint32_t step, uint32_t kept, int64_t earlier_ns) {
  Front& now = now_[decided_.interval_of[step]];
  const auto begin = static_cast<uint32_t>(fronts_.size());
  uint32_t own = now.begin;
  int64_t longest_ns = -1;  // of those taken; the empty path is never left out
  bool is_new = false;
  for (uint32_t other = sent.begin; own < now.end || other < sent.end;) {
    Path candidate;
    if (other < sent.end) {
      const Path& path = paths_[fronts_[other]];
      candidate = {path.kept + kept, path.longer_ns + earlier_ns, step, fronts_[other]};
      if (candidate.kept >= kWhole) {
        other = sent.end;
        continue;
      }
    }
    const auto is_first = [](const Path& a, const Path& b) {
      return std::pair(a.kept, -a.longer_ns) <= std::pair(b.kept, -b.longer_ns);
    };
    if (other == sent.end || (own < now.end && is_first(paths_[fronts_[own]], candidate))) {
      const uint32_t path = fronts_[own++];
      if (paths_[path].longer_ns <= longest_ns) continue;
      longest_ns = paths_[path].longer_ns;
      fronts_.push_back(path);
      continue;
    }
    ++other;
    if (candidate.longer_ns <= longest_ns) continue;
    longest_ns = candidate.longer_ns;
    fronts_.push_back(static_cast<uint32_t>(paths_.size()));
    paths_.push_back(candidate);
    is_new = true;
  }
  if (is_new) {
    now = {begin, static_cast<uint32_t>(fronts_.size())};
  } else {
    fronts_.resize(begin);
  }
}

// Without the beginning of the path if the rest alone is too long: the fewer terms a row has, the more it demands.
Excess LongPaths::excess_of(uint32_t path, uint32_t interval) const {
  const auto limit_ns = static_cast<int64_t>(limits_ns_[interval]);
  const int64_t whole_ns = static_cast<int64_t>(decided_.intervals[interval].cpu_ns()) + paths_[path].longer_ns;
  Excess excess;
  for (; whole_ns - paths_[path].longer_ns <= limit_ns; path = paths_[path].before) {
    excess.terms.push_back({paths_[path].receive, 1});
  }
  return excess;
}

LargeSets::LargeSets(const Execution& execution, const Decided& decided, std::vector<uint64_t> limits_ns)
    : execution_(execution),
      decided_(decided),
      limits_ns_(std::move(limits_ns)),
      needs_(decided.intervals.size()),
      reached_(decided.intervals.size()) {
  for (uint32_t i = 0; i < execution.steps.size(); ++i) {
    if (is_choice(execution.steps[i])) needs_[decided.interval_of[i]].push_back(i);
  }
}

std::vector<Excess> LargeSets::find(const Choice& choice) {
  std::vector<Excess> found;
  for (uint32_t wanted = 0; wanted < needs_.size(); ++wanted) {
    const uint64_t limit_ns = limits_ns_[wanted];
    grow(wanted, choice, 2 * limit_ns);
    uint64_t work_ns = 0;
    size_t least = 0;  // parts that together are too much
    while (least < parts_.size() && work_ns <= limit_ns) work_ns += parts_[least++].work_ns;
    if (work_ns <= limit_ns) continue;
    for (const auto& taken : {fewest(least, work_ns - limit_ns), std::vector<bool>(parts_.size(), true)}) {
      Excess excess = excess_of(taken, limit_ns);
      if (is_violated(excess, choice)) found.push_back(std::move(excess));
    }
  }
  return found;
}

uint64_t LargeSets::work_ns(uint32_t interval, const Choice& choice) {
  grow(interval, choice, UINT64_MAX);
  uint64_t sum_ns = 0;
  for (const Part& part : parts_) sum_ns += part.work_ns;
  return sum_ns;
}

// Dijkstra's algorithm, from the wanted interval backwards through receives, as long as less than one is kept. It ends
// early if the work, less what is kept of it, is enough.
void LargeSets::grow(uint32_t wanted, const Choice& choice, uint64_t enough_ns) {
  for (const Part& part : parts_) reached_[part.interval] = {};
  parts_.clear();
  std::vector<Part> seen{{0, wanted, UINT32_MAX, decided_.intervals[wanted].cpu_ns(), kNoPath, kNoPath, 0}};
  using Nearest = std::pair<uint32_t, uint32_t>;  // kept, index in `seen`
  std::priority_queue<Nearest, std::vector<Nearest>, std::greater<>> queue;
  queue.emplace(0, 0);
  double left_ns = static_cast<double>(enough_ns);
  while (!queue.empty() && left_ns > 0) {
    Part part = seen[queue.top().second];
    queue.pop();
    Reached& reached = reached_[part.interval];
    if (part.end_step <= reached.end_step) continue;
    part.work_ns = part.end_ns - std::exchange(reached.end_ns, part.end_ns);
    reached.end_step = part.end_step;
    left_ns -= static_cast<double>(part.work_ns) * (kWhole - part.kept) / kWhole;
    const auto& needs = needs_[part.interval];
    for (; reached.needs < needs.size() && needs[reached.needs] < part.end_step; ++reached.needs) {
      const uint32_t receive = needs[reached.needs];
      const uint32_t kept = part.kept + choice[receive];
      if (kept >= kWhole) continue;
      const Step& step = execution_.steps[receive];
      for (const uint32_t send : execution_.senders_of(step)) {
        const uint32_t interval = decided_.interval_of[send];
        if (send < reached_[interval].end_step) continue;
        queue.emplace(kept, static_cast<uint32_t>(seen.size()));
        seen.push_back({kept, interval, send + 1, execution_.steps[send].at_ns - decided_.intervals[interval].start_ns,
                        receive, static_cast<uint32_t>(parts_.size()), 0});
      }
    }
    parts_.push_back(part);
  }
}

// Of so many parts, those that are left when parts that nothing else needs are taken away, latest first, until their
// work exceeds the limit by less than that of any of these.
std::vector<bool> LargeSets::fewest(size_t count, uint64_t spare_ns) const {
  std::vector<bool> taken(count, true), needed(count);
  for (size_t i = count; i-- > 1;) {
    if (!needed[i] && parts_[i].work_ns < spare_ns) {
      taken[i] = false;
      spare_ns -= parts_[i].work_ns;
    } else {
      needed[parts_[i].next] = true;
    }
  }
  return taken;
}

// `taken`: of the first parts, those whose work counts.
Excess LargeSets::excess_of(const std::vector<bool>& taken, uint64_t limit_ns) const {
  std::vector<uint64_t> work_ns(taken.size());  // of a part and of those whose way leads through it
  std::map<uint32_t, uint64_t> avoided_ns;      // by receive
  uint64_t sum_ns = 0;
  for (size_t i = taken.size(); i-- > 0;) {
    if (taken[i]) work_ns[i] += parts_[i].work_ns, sum_ns += parts_[i].work_ns;
    if (i == 0 || work_ns[i] == 0) continue;
    work_ns[parts_[i].next] += work_ns[i];
    avoided_ns[parts_[i].receive] += work_ns[i];
  }
  const auto too_much_ns = static_cast<double>(sum_ns - limit_ns);
  Excess excess;
  for (const auto& [receive, ns] : avoided_ns) {
    excess.terms.push_back({receive, std::min(1.0, static_cast<double>(ns) / too_much_ns)});
  }
  return excess;
}

}  // namespace redrive
