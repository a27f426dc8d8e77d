#include "supervisor/evaluation/schedule.h"

#include <algorithm>
#include <cmath>

namespace redrive {
namespace {

using What = Execution::What;
using Step = Execution::Step;

// A place in an interval that a run must pass: a send that others need, or a receive that was not kept.
uint64_t point(uint32_t interval, uint32_t step) { return uint64_t{interval} << 32 | step; }

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames{"list", "cyclic", "frontier"};
  return kNames;
}

Schedule::Schedule(const Execution& execution, const Decided& decided)
    : execution_(execution),
      decided_(decided),
      first_steps_(decided.intervals.size(), static_cast<uint32_t>(execution.steps.size())),
      done_(execution.steps.size()),
      sent_ns_(execution.steps.size()) {
  for (auto i = static_cast<uint32_t>(execution.steps.size()); i > 0; --i)
    first_steps_[decided.interval_of[i - 1]] = i - 1;
}

std::optional<uint64_t> Schedule::time_ns(ScheduleKind kind, uint32_t cores, const std::vector<Member>& members) {
  if (kind == ScheduleKind::frontier) return frontier_ns(members);
  begin(members);
  const uint64_t time_ns = kind == ScheduleKind::list ? list_ns(cores) : cyclic_ns();
  return finished_ == runs_.size() ? std::optional(time_ns) : std::nullopt;
}

uint64_t Schedule::list_ns(uint32_t cores) {
  using Finish = std::pair<uint64_t, uint32_t>;  // when, run
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> running;
  uint64_t now_ns = 0;
  for (;;) {
    for (; running.size() < cores && !ready_.empty(); ready_.pop_front()) {
      running.emplace(now_ns + to_next_point_ns(ready_.front()), ready_.front());
    }
    if (running.empty()) return now_ns;
    const auto [at_ns, run] = running.top();
    running.pop();
    now_ns = at_ns;
    if (pass(run)) running.emplace(now_ns + to_next_point_ns(run), run);
  }
}

uint64_t Schedule::cyclic_ns() {
  std::unordered_map<uint32_t, uint32_t> of_unit;
  for (Run& run : runs_) run.processor = of_unit.try_emplace(run.processor, of_unit.size()).first->second;
  processors_.assign(of_unit.size(), {});
  double now_ns = 0;
  for (;;) {
    for (; !ready_.empty(); ready_.pop_front()) {
      const uint32_t run = ready_.front(), number = runs_[run].processor;
      Processor& processor = processors_[number];
      advance(processor, now_ns);
      processor.runs.emplace(processor.executed_ns + static_cast<double>(to_next_point_ns(run)), run);
      expect(number);
    }
    if (due_.empty()) return static_cast<uint64_t>(std::llround(now_ns));
    const Due due = due_.top();
    due_.pop();
    Processor& processor = processors_[due.processor];
    if (due.changes != processor.changes) continue;
    now_ns = due.at_ns;
    advance(processor, now_ns);
    const uint32_t run = processor.runs.top().second;
    processor.runs.pop();
    if (pass(run)) processor.runs.emplace(processor.executed_ns + static_cast<double>(to_next_point_ns(run)), run);
    expect(due.processor);
  }
}

void Schedule::advance(Processor& processor, double now_ns) {
  if (!processor.runs.empty()) {
    processor.executed_ns += (now_ns - processor.now_ns) / static_cast<double>(processor.runs.size());
  }
  processor.now_ns = now_ns;
}

void Schedule::expect(uint32_t number) {
  Processor& processor = processors_[number];
  ++processor.changes;
  if (processor.runs.empty()) return;
  const double left_ns = std::max(0.0, processor.runs.top().first - processor.executed_ns);
  due_.push({processor.now_ns + left_ns * static_cast<double>(processor.runs.size()), number, processor.changes});
}

// Steps are in an order in which they may have happened, so one pass over them executes them in time.
std::optional<uint64_t> Schedule::frontier_ns(const std::vector<Member>& members) {
  std::unordered_map<uint32_t, Progress> units;
  uint32_t first_step = UINT32_MAX;
  for (const Member& member : members) {
    const auto [unit, is_new] = units.try_emplace(decided_.intervals[member.interval].unit);
    if (!is_new && unit->second.first < member.interval) continue;
    unit->second.first = member.interval;
    unit->second.at_ns = decided_.intervals[member.interval].start_ns;
  }
  for (const auto& [unit, progress] : units) first_step = std::min(first_step, first_steps_[progress.first]);
  const uint32_t wanted = members.front().interval;
  Progress& target = units.at(decided_.intervals[wanted].unit);
  sends_.clear();
  for (uint32_t i = first_step; i < execution_.steps.size() && !target.waits; ++i, ++visits_) {
    const Step& step = execution_.steps[i];
    const auto unit = units.find(step.unit);
    if (unit == units.end() || unit->second.waits || decided_.interval_of[i] < unit->second.first) continue;
    if (&unit->second == &target && (decided_.interval_of[i] > wanted || step.what == What::end)) break;
    execute(i, unit->second);
  }
  for (const uint32_t send : sends_) done_[send] = false;
  if (target.waits) return std::nullopt;
  return target.now_ns + decided_.intervals[wanted].end_ns - target.at_ns;
}

void Schedule::execute(uint32_t i, Progress& unit) {
  const Step& step = execution_.steps[i];
  unit.now_ns += step.at_ns - unit.at_ns;
  unit.at_ns = step.at_ns;
  if ((step.what == What::receive || step.what == What::birth) && !decided_.kept[i]) {
    unit.waits = missing_of(i).has_value();
    for (const uint32_t sender : execution_.senders_of(step)) unit.now_ns = std::max(unit.now_ns, sent_ns_[sender]);
  }
  if (step.what != What::send || unit.waits) return;
  done_[i] = true;
  sends_.push_back(i);
  sent_ns_[i] = unit.now_ns;
}

void Schedule::begin(const std::vector<Member>& members) {
  for (const uint32_t send : sends_) done_[send] = false;
  sends_.clear();
  points_.clear();
  runs_.clear();
  waiters_.clear();
  finished_ = 0;
  for (const Member& member : members) {
    for (const uint32_t receive : member.needs) {
      points_.push_back(point(member.interval, receive));
      for (const uint32_t sender : execution_.senders_of(execution_.steps[receive])) add_send(sender);
    }
    if (const auto birth = decided_.intervals[member.interval].birth) add_send(*birth);
  }
  std::sort(points_.begin(), points_.end());
  points_.erase(std::unique(points_.begin(), points_.end()), points_.end());
  for (const Member& member : members) {
    const auto first = std::lower_bound(points_.begin(), points_.end(), point(member.interval, 0));
    const auto last = std::lower_bound(first, points_.end(), point(member.interval + 1, 0));
    const auto number = static_cast<uint32_t>(runs_.size());
    const Decided::Interval& interval = decided_.intervals[member.interval];
    runs_.push_back({static_cast<size_t>(first - points_.begin()), static_cast<size_t>(last - points_.begin()), 0,
                     member.cpu_ns, interval.start_ns, interval.unit});
    if (interval.birth) {
      waiters_[*interval.birth].push_back(number);
    } else {
      ready_.push_back(number);
    }
  }
}

void Schedule::add_send(uint32_t send) {
  points_.push_back(point(decided_.interval_of[send], send));
  sends_.push_back(send);
}

// The CPU time of the run up to there, which counts as executed from now on. 0 for a run that looks again at a receive
// or a birth that it has waited for.
uint64_t Schedule::to_next_point_ns(uint32_t number) {
  Run& run = runs_[number];
  uint64_t to_ns = run.cpu_ns;
  if (run.next < run.end) to_ns = execution_.steps[static_cast<uint32_t>(points_[run.next])].at_ns - run.start_ns;
  return to_ns - std::exchange(run.reached_ns, to_ns);
}

// Whether the run continues at once.
bool Schedule::pass(uint32_t number) {
  Run& run = runs_[number];
  if (run.next == run.end) {
    ++finished_;
    return false;
  }
  const auto step = static_cast<uint32_t>(points_[run.next]);
  if (execution_.steps[step].what == What::send) {
    done_[step] = true;
    if (const auto waiting = waiters_.find(step); waiting != waiters_.end()) {
      ready_.insert(ready_.end(), waiting->second.begin(), waiting->second.end());
    }
  } else if (const auto missing = missing_of(step)) {
    waiters_[*missing].push_back(number);
    return false;
  }
  ++run.next;
  return true;
}

std::optional<uint32_t> Schedule::missing_of(uint32_t receive) const {
  for (const uint32_t sender : execution_.senders_of(execution_.steps[receive])) {
    if (!done_[sender]) return sender;
  }
  return std::nullopt;
}

}  // namespace redrive
