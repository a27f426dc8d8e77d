#include "supervisor/plan/repair.h"

#include <algorithm>
#include <utility>

#include "supervisor/plan/cuts.h"
#include "supervisor/plan/thinned.h"

namespace redrive {
namespace {

constexpr size_t kMostTried = 48;            // cuts of a kind, whenever one is chosen
constexpr size_t kMostDependences = 10'000;  // of the graph on which they are tried
constexpr uint64_t kMostWork = 200'000'000;  // messages in plans; after that, intervals are cut off from all others
constexpr size_t kMostCompared = 12;         // of those that suffice
constexpr size_t kMostOthers = 16;           // replays that are to become shorter as well

class Repairing {
 public:
  Repairing(Rdg graph, double bound_s, const ReplayCosts& costs)
      : graph_(std::move(graph)), thinned_(thinned(graph_, kMostDependences)), bound_s_(bound_s), costs_(costs) {}

  Repair run() {
    for (const auto& [unit, intervals] : graph_.units) {
      for (IntervalIndex i = 0; i < intervals.size(); ++i) repair(unit, i);
    }
    return std::move(repair_);
  }

 private:
  void repair(UnitId unit, IntervalIndex interval) {
    for (;;) {
      const auto planned = planned_by(planner_, unit, interval);
      if (!planned) return;
      const double now_s = predict(*planned, costs_).predicted_s;
      if (now_s <= bound_s_) return;
      const Links links(graph_, thinned_, *planned);
      const bool in_time = work_ <= kMostWork;
      const auto cut = !in_time ? links.around_wanted() : choose(links.cuts(), *planned, now_s);
      if (!cut) return;
      keep(*cut);
      if (!in_time) return;
    }
  }

  std::optional<Plan> planned_by(Planner& planner, UnitId unit, IntervalIndex interval) {
    auto plan = planner.plan(unit, interval).plan;
    if (plan) work_ += plan->messages + plan->replay_set.size();
    return plan;
  }

  struct Tried {
    const Cut* cut = nullptr;
    double left_s = 0;
  };

  // Nothing if none makes the replay shorter.
  std::optional<Cut> choose(const std::vector<std::vector<Cut>>& kinds, const Plan& planned, double now_s) {
    const PlanRequest wanted{planned.unit, planned.interval, std::nullopt};
    const double scale = now_s / thinned_s(wanted).value_or(now_s);
    std::vector<Tried> enough;
    const Cut* best = nullptr;
    double best_worth = 0;
    for (const auto& cuts : kinds) {
      // Evenly spread ones if there are too many. The first ones are those of the interval itself.
      for (size_t c = 0; c < cuts.size(); c += stride(cuts.size(), kMostTried)) {
        const double left_s = scale * without(cuts[c], wanted).value_or(now_s);
        if (left_s <= bound_s_) enough.push_back({&cuts[c], left_s});
        const double worth = (now_s - left_s) / static_cast<double>(cuts[c].bytes);
        if (worth <= best_worth) continue;
        best_worth = worth;
        best = &cuts[c];
      }
    }
    if (!enough.empty()) best = fewest_bytes(best_of(std::move(enough)), planned, scale);
    return best ? std::optional(*best) : std::nullopt;
  }

  static size_t stride(size_t count, size_t most) { return std::max<size_t>((count + most - 1) / most, 1); }

  // Without those that another one beats: it has no more bytes, and leaves no more time.
  static std::vector<Tried> best_of(std::vector<Tried> enough) {
    std::ranges::stable_sort(enough, {}, [](const Tried& tried) { return std::pair(tried.cut->bytes, tried.left_s); });
    std::vector<Tried> best;
    for (const Tried& tried : enough) {
      if (best.empty() || tried.left_s < best.back().left_s) best.push_back(tried);
    }
    return best;
  }

  // The one with the fewest bytes for what it takes away of the time by which the replays of the set's intervals exceed
  // the bound: a cut that costs more than another one may spare many others.
  const Cut* fewest_bytes(const std::vector<Tried>& enough, const Plan& planned, double scale) {
    std::vector<PlanRequest> late;
    const auto excess_s = [&](std::optional<double> seconds) {
      return std::max(scale * seconds.value_or(0) - bound_s_, 0.);
    };
    double now_s = 0;
    for (size_t i = 0; i < planned.replay_set.size(); i += stride(planned.replay_set.size(), kMostOthers)) {
      const PlannedInterval& each = planned.replay_set[i];
      const PlanRequest request{each.unit, i == 0 ? planned.interval : each.interval, std::nullopt};
      const double its_s = excess_s(thinned_s(request));
      if (its_s <= 0 && i > 0) continue;
      now_s += its_s;
      late.push_back(request);
    }
    const Cut* best = nullptr;
    double best_cost = 0;
    for (size_t c = 0; c < enough.size(); c += stride(enough.size(), kMostCompared)) {
      double left_s = 0;
      for (const PlanRequest& request : late) left_s += excess_s(without(*enough[c].cut, request));
      const double cost = static_cast<double>(enough[c].cut->bytes) / std::max(now_s - left_s, 1e-9);
      if (best && cost >= best_cost) continue;
      best_cost = cost;
      best = enough[c].cut;
    }
    return best;
  }

  // How long the replay would take, as the thinned graph has it.
  std::optional<double> without(const Cut& cut, const PlanRequest& wanted) {
    apply(cut, true);
    const auto left_s = thinned_s(wanted);
    apply(cut, false);
    return left_s;
  }

  std::optional<double> thinned_s(const PlanRequest& wanted) {
    const auto plan = planned_by(thinned_planner_, wanted.unit, wanted.interval);
    return plan ? std::optional(predict(*plan, costs_).predicted_s) : std::nullopt;
  }

  // To the thinned graph.
  void apply(const Cut& cut, bool is_kept) {
    for (const Link* const link : cut.links) {
      for (Rdg::Dependence* const each : link->thinned) {
        if (each->receiver.event >= cut.from) each->is_kept = is_kept;
      }
      if (!link->is_birth || cut.from > 0) continue;
      auto& birth = thinned_.units.at(link->receiver)[link->start].birth;
      birth = is_kept ? std::nullopt : graph_.units.at(link->receiver)[link->start].birth;
    }
  }

  void keep(const Cut& cut) {
    apply(cut, true);
    for (const Link* const link : cut.links) {
      if (link->is_birth && cut.from == 0) {
        graph_.units.at(link->receiver)[link->start].birth.reset();
        repair_.births.insert(link->receiver);
      }
      if (link->dependences.empty()) continue;
      auto& unlogged = graph_.unlogged.at(link->receiver);
      for (const Rdg::Dependence* const dependence : link->dependences) {
        const EventIndex event = dependence->receiver.event;
        if (event < cut.from || !repair_.payloads.insert(dependence->receiver).second) continue;
        for (size_t i = first_at(unlogged, event); i < unlogged.size() && unlogged[i].receiver.event == event; ++i) {
          unlogged[i].is_kept = true;
        }
      }
    }
  }

  Rdg graph_;
  Rdg thinned_;  // as many cuts are tried on it
  Planner planner_{graph_}, thinned_planner_{thinned_};
  const double bound_s_;
  const ReplayCosts& costs_;
  uint64_t work_ = 0;
  Repair repair_;
};

}  // namespace

Repair choose_repair(Rdg graph, double bound_s, const ReplayCosts& costs) {
  return Repairing(std::move(graph), bound_s, costs).run();
}

}  // namespace redrive
