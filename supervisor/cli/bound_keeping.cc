#include "supervisor/cli/bound_keeping.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/progress.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/graph.h"
#include "supervisor/plan/repair.h"
#include "supervisor/replay/taking.h"

namespace redrive {
namespace {

constexpr double kNearlyLate = 0.5;  // of the bound: replays are measured before it is said that they are in time
constexpr size_t kMeasured = 3;      // replays
constexpr double kLeastMeasured_s = 0.05, kMostMeasured_s = 0.5;  // of the predicted times of these, if there are such
constexpr size_t kMostProved = 8;                                 // of the slowest, once the trace was repaired
constexpr double kProved_s = 2;                                   // about how long these may take together
constexpr double kAgain = 1.1;  // what takes so much longer than predicted is measured again: the machine may be busy
constexpr double kRepaired = 0.9;  // of the bound: what is repaired shall be in time although predictions have errors
// How often it is repaired: what was predicted of the repair may be wrong by as much as a checkpoint's place, and by
// what replays then take.
constexpr int kMostRepairs = 3;

// Some that take long enough to be measured, and not longer than needed, of different units if there are several.
std::vector<PredictedReplay> worth_measuring(std::vector<PredictedReplay> replays) {
  std::erase_if(replays, [](const PredictedReplay& replay) { return replay.predicted_s < kLeastMeasured_s; });
  // The longest of those that are short enough come first, then the others, the shortest first.
  std::sort(replays.begin(), replays.end(), [](const auto& a, const auto& b) {
    const bool short_a = a.predicted_s <= kMostMeasured_s, short_b = b.predicted_s <= kMostMeasured_s;
    if (short_a != short_b) return short_a;
    return short_a ? a.predicted_s > b.predicted_s : a.predicted_s < b.predicted_s;
  });
  std::vector<PredictedReplay> chosen;
  for (const bool new_unit : {true, false}) {
    for (const auto& replay : replays) {
      const bool known = std::any_of(chosen.begin(), chosen.end(), [&](const auto& other) {
        return other.unit == replay.unit && (new_unit || other.interval == replay.interval);
      });
      if (!known && chosen.size() < kMeasured) chosen.push_back(replay);
    }
  }
  return chosen;
}

// The slowest.
std::vector<PredictedReplay> worth_proving(std::vector<PredictedReplay> replays) {
  std::sort(replays.begin(), replays.end(), [](const auto& a, const auto& b) { return a.predicted_s > b.predicted_s; });
  if (replays.size() > kMostProved) replays.resize(kMostProved);
  double sum_s = 0;
  const auto enough = std::find_if(replays.begin(), replays.end(),
                                   [&](const auto& replay) { return (sum_s += replay.predicted_s) > kProved_s; });
  if (enough != replays.end()) replays.erase(std::max(enough, replays.begin() + 1), replays.end());
  return replays;
}

// Without its pace, and as if all times of events were exact.
double recorded_s(const PredictedReplay& replay, double pace) {
  return (replay.predicted_s - replay.clock_error_s) / pace;
}

Result<double> replay_s(const SetRun& run, const PredictedReplay& replay) {
  const ReplayerOptions from_now_on;
  ASSIGN_OR_RETURN(const auto outcome, redrive(run, replay.unit, replay.interval, from_now_on));
  if (!outcome.divergence) return outcome.seconds;
  return Error{fmt::format("its replay diverges: see redrive replay --verify {} {}:{}", run.trace.directory(),
                           replay.unit, replay.interval),
               Status::divergence};
}

class Keeping {
 public:
  explicit Keeping(const BoundKeeping& how) : how_(how), progress_(how.progress) {}

  Result<std::optional<Certificate>> run(const Trace& given) {
    if (!given.settings().keeps_bound()) return std::optional<Certificate>();
    if (auto sum = certify_sum(given)) return sum;
    const Trace* trace = &given;
    std::shared_ptr<Trace> repaired;
    for (int repairs = 0;; ++repairs) {
      ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(*trace));
      progress_.show("planning the replays of all intervals");
      TRY(graph.read_all());
      ASSIGN_OR_RETURN(const Certificate certificate, certify(*trace, graph, repairs > 0));
      Missing missing;
      if (!certificate.is_kept() && how_.repairs && repairs < kMostRepairs) missing = lacking(*trace, graph);
      if (missing.empty()) {
        TRY(keep_certificate(*trace, certificate));
        return std::optional(certificate);
      }
      TRY(add(*trace, graph, missing));
      ASSIGN_OR_RETURN(repaired, Trace::open(given.directory()));
      trace = repaired.get();
    }
  }

 private:
  ReplayCosts costs(const Trace& trace) const {
    ReplayCosts costs = costs_of(trace, static_cast<uint32_t>(how_.jobs));
    if (pace_) costs.pace = *pace_;
    return costs;
  }

  Result<Certificate> certify(const Trace& trace, DependenceGraph& graph, bool repaired) {
    auto replays = predict_all(graph.rdg(), costs(trace));
    const double bound_s = trace.settings().bound_s;
    const bool nearly_late = std::any_of(replays.begin(), replays.end(), [&](const PredictedReplay& replay) {
      return replay.predicted_s > kNearlyLate * bound_s;
    });
    if (nearly_late && (!pace_ || repaired)) {
      TRY(measure(trace, graph, repaired ? worth_proving(replays) : worth_measuring(replays)));
      replays = predict_all(graph.rdg(), costs(trace));
    }
    return redrive::certify(replays, bound_s, costs(trace));
  }

  // The pace is the slowest of all that were measured.
  Result<void> measure(const Trace& trace, DependenceGraph& graph, const std::vector<PredictedReplay>& replays) {
    const double before = pace_.value_or(Pace{}).times;
    with_replays(trace, graph);
    for (const auto& replay : replays) {
      progress_.show(fmt::format("measuring the replay of {}:{}", replay.unit, replay.interval));
      auto seconds = replay_s(*run_, replay);
      if (seconds && *seconds > kAgain * replay.predicted_s) {
        const auto again = replay_s(*run_, replay);
        if (again) seconds = std::min(*seconds, *again);
      }
      if (!seconds) {
        return Error{fmt::format("unit {} ({}), interval {}: {}", replay.unit, trace.unit_name(replay.unit),
                                 replay.interval, seconds.error().message),
                     seconds.error().status};
      }
      note_pace(*seconds / recorded_s(replay, before));
    }
    if (!pace_) pace_.emplace();
    return {};
  }

  void note_pace(double times) {
    const Pace known = pace_.value_or(Pace{1, times, times, 0});
    pace_ = Pace{std::max(known.times, times), std::min(known.least, times), std::max(known.most, times),
                 known.measured + 1};
  }

  Missing lacking(const Trace& trace, const DependenceGraph& graph) const {
    const Repair repair = choose_repair(graph.rdg(), kRepaired * trace.settings().bound_s, costs(trace));
    Missing missing;
    missing.payloads = repair.payloads;
    for (const UnitId born : repair.births) missing.images.emplace(born, 0);
    return missing;
  }

  Result<void> add(const Trace& trace, DependenceGraph& graph, const Missing& missing) {
    with_replays(trace, graph);
    TRY(take(*run_, missing, trace.settings(), [&](const Taken& taken) {
      progress_.show(fmt::format("keeping the bound: {} of {} messages, {} of {} images", taken.payloads,
                                 missing.payloads.size(), taken.images, missing.images.size()));
    }));
    return {};
  }

  void with_replays(const Trace& trace, DependenceGraph& graph) {
    if (processors_.empty()) {
      trap_own_instructions();
      processors_ = usable_processors(how_.jobs);
      if (how_.in_process) tier_ = make_tier();
    }
    run_.emplace(SetRun{trace, graph, processors_, tier_.get()});
  }

  const BoundKeeping how_;
  const ProgressLine progress_;
  std::optional<Pace> pace_;
  std::vector<int> processors_;
  std::unique_ptr<ReplayTier> tier_;
  std::optional<SetRun> run_;
};

}  // namespace

Result<std::optional<Certificate>> keep_bound(const Trace& trace, const BoundKeeping& how) {
  return Keeping(how).run(trace);
}

}  // namespace redrive
