#include "supervisor/plan/repair.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace redrive {
namespace {

constexpr uint64_t kBytesOfReceive = 16;       // that a kept payload takes beside its own
constexpr uint64_t kBytesOfBirth = 256 << 10;  // of a forked child's image: most of its pages are stored already
constexpr size_t kMostTried = 48;              // cuts, whenever one is chosen
constexpr uint64_t kMostPlans = 100'000;       // after that, intervals are cut off from all others at once
constexpr double kAboutAsFew = 1.25;           // times the fewest bytes
constexpr double kAim = 0.5;  // of the bound, where several cuts take as few bytes: others in a chain then fit as well

// All that one run of a plan receives from another one, and its birth if that is a fork by the other.
struct Cut {
  std::vector<Rdg::Dependence*> dependences;
  Rdg::Interval* born = nullptr;
  UnitId receiver = 0;
  uint64_t bytes = 0;
};

class Repairing {
 public:
  Repairing(Rdg graph, double bound_s, const ReplayCosts& costs)
      : graph_(std::move(graph)), bound_s_(bound_s), costs_(costs) {}

  Repair run() {
    for (const auto& [unit, intervals] : graph_.units) {
      for (IntervalIndex i = 0; i < intervals.size(); ++i) repair(unit, i);
    }
    return std::move(repair_);
  }

 private:
  // Nothing if the interval cannot be planned.
  std::optional<Plan> plan_of(UnitId unit, IntervalIndex interval) {
    ++plans_;
    return planner_.plan(unit, interval).plan;
  }
  double predicted_s(const Plan& plan) const { return predict(plan, costs_).predicted_s; }

  void repair(UnitId unit, IntervalIndex interval) {
    for (;;) {
      const auto planned = plan_of(unit, interval);
      if (!planned || predicted_s(*planned) <= bound_s_) return;
      std::vector<Cut> cuts = cuts_of(*planned);
      if (plans_ > kMostPlans) {
        std::erase_if(cuts, [&](const Cut& cut) { return cut.receiver != unit; });
        for (Cut& cut : cuts) keep(cut);
      } else if (Cut* const best = choose(cuts, *planned)) {
        keep(*best);
        continue;
      }
      return;
    }
  }

  // The runs of a plan by the place where each begins; their places in the replay set.
  using Runs = std::map<std::pair<UnitId, IntervalIndex>, size_t>;

  // The one that executes an event.
  std::optional<size_t> run_of(const Runs& runs, EventRef event) const {
    const auto interval = graph_.interval_of(event);
    if (!interval) return std::nullopt;
    const auto after = runs.upper_bound({event.unit, *interval});
    if (after == runs.begin() || std::prev(after)->first.first != event.unit) return std::nullopt;
    return std::prev(after)->second;
  }

  std::vector<Cut> cuts_of(const Plan& plan) {
    Runs runs;
    for (size_t r = 0; r < plan.replay_set.size(); ++r) {
      runs[{plan.replay_set[r].unit, plan.replay_set[r].start}] = r;
    }
    std::map<std::pair<size_t, size_t>, Cut> cuts;  // by receiving and sending run
    for (size_t r = 0; r < plan.replay_set.size(); ++r) {
      const PlannedInterval& run = plan.replay_set[r];
      Rdg::Interval& start = graph_.units.at(run.unit)[run.start];
      if (start.birth) {
        if (const auto parent = run_of(runs, *start.birth)) {
          Cut& cut = cuts[{r, *parent}];
          cut.born = &start;
          cut.bytes += kBytesOfBirth;
        }
      }
      const auto found = graph_.unlogged.find(run.unit);
      if (found == graph_.unlogged.end()) continue;
      auto& unlogged = found->second;
      for (size_t i = first_at(unlogged, start.first_event); i < unlogged.size(); ++i) {
        Rdg::Dependence& dependence = unlogged[i];
        if (dependence.receiver.event >= run.requisite_event) break;
        if (dependence.is_kept) continue;
        const auto sender = run_of(runs, dependence.sender);
        if (!sender || *sender == r) continue;
        Cut& cut = cuts[{r, *sender}];
        cut.dependences.push_back(&dependence);
        cut.bytes += dependence.bytes + kBytesOfReceive;
      }
    }
    std::vector<Cut> all;
    for (auto& [between, cut] : cuts) {
      cut.receiver = plan.replay_set[between.first].unit;
      all.push_back(std::move(cut));
    }
    return all;
  }

  // Null if none makes the replay shorter.
  Cut* choose(std::vector<Cut>& cuts, const Plan& planned) {
    // Evenly spread ones if there are too many. The first ones are those of the interval itself.
    const size_t stride = (cuts.size() + kMostTried - 1) / kMostTried;
    const double now_s = predicted_s(planned);
    struct Tried {
      Cut* cut;
      double left_s;
    };
    std::vector<Tried> enough;
    Tried best{nullptr, now_s};
    double best_worth = 0;
    for (size_t c = 0; c < cuts.size(); c += std::max<size_t>(stride, 1)) {
      const double left_s = without(cuts[c], planned);
      if (left_s <= bound_s_) enough.push_back({&cuts[c], left_s});
      const double worth = (now_s - left_s) / static_cast<double>(cuts[c].bytes);
      if (worth > best_worth) {
        best_worth = worth;
        best = {&cuts[c], left_s};
      }
    }
    if (enough.empty()) return best.cut;
    const auto fewest =
        std::min_element(enough.begin(), enough.end(), [](auto& a, auto& b) { return a.cut->bytes < b.cut->bytes; });
    const double most_bytes = kAboutAsFew * static_cast<double>(fewest->cut->bytes);
    std::erase_if(enough, [&](const Tried& tried) { return static_cast<double>(tried.cut->bytes) > most_bytes; });
    const auto distance = [&](const Tried& tried) { return std::abs(tried.left_s - kAim * bound_s_); };
    return std::min_element(enough.begin(), enough.end(), [&](auto& a, auto& b) { return distance(a) < distance(b); })
        ->cut;
  }

  // How long the replay would take.
  double without(Cut& cut, const Plan& planned) {
    std::optional<EventRef> birth;
    if (cut.born) birth = std::exchange(cut.born->birth, std::nullopt);
    for (Rdg::Dependence* const dependence : cut.dependences) dependence->is_kept = true;
    const auto left = plan_of(planned.unit, planned.interval);
    for (Rdg::Dependence* const dependence : cut.dependences) dependence->is_kept = false;
    if (cut.born) cut.born->birth = birth;
    return left ? predicted_s(*left) : predicted_s(planned);
  }

  void keep(const Cut& cut) {
    if (cut.born) {
      cut.born->birth.reset();
      repair_.births.insert(cut.receiver);
    }
    for (const Rdg::Dependence* const dependence : cut.dependences) {
      if (!repair_.payloads.insert(dependence->receiver).second) continue;
      auto& unlogged = graph_.unlogged.at(cut.receiver);
      const EventIndex event = dependence->receiver.event;
      for (size_t i = first_at(unlogged, event); i < unlogged.size() && unlogged[i].receiver.event == event; ++i) {
        unlogged[i].is_kept = true;
      }
    }
  }

  Rdg graph_;
  Planner planner_{graph_};
  const double bound_s_;
  const ReplayCosts& costs_;
  uint64_t plans_ = 0;
  Repair repair_;
};

}  // namespace

Repair choose_repair(Rdg graph, double bound_s, const ReplayCosts& costs) {
  return Repairing(std::move(graph), bound_s, costs).run();
}

}  // namespace redrive
