#include "supervisor/cli/bound_keeping.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/own_process.h"
#include "supervisor/cli/progress.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/graph.h"
#include "supervisor/plan/repair.h"
#include "supervisor/replay/taking.h"

namespace redrive {
namespace {

constexpr double kNearlyLate = 1. / 3;  // of the bound: replays are measured before it is said that they are in time
constexpr size_t kMeasured = 5;         // replays
constexpr size_t kMeasuredStarts = 2;   // replays that consist of starting intervals
constexpr double kLeastMeasured_s = 0.05, kMostMeasured_s = 0.5;  // of the predicted times of these, if there are such
constexpr size_t kMostProved = 8;                                 // of the slowest, once the trace was repaired
constexpr double kTogether_s = 2;  // about how long what is measured, or proved, may take together
constexpr double kAgain = 1.1;  // what takes so much longer than predicted is measured again: the machine may be busy
constexpr double kMostError = 0.1;  // of the pace
constexpr double kRepaired = 0.95;  // of the bound: what takes longer is repaired, because predictions have errors
// How often it is repaired: what was predicted of the repair may be wrong by as much as a checkpoint's place, and by
// what replays then take.
constexpr int kMostRepairs = 3;

// As many of the first as may be re-driven together, and at least one.
void keep_short(std::vector<PredictedReplay>& replays) {
  double sum_s = 0;
  const auto enough = std::find_if(replays.begin(), replays.end(),
                                   [&](const auto& replay) { return (sum_s += replay.predicted_s) > kTogether_s; });
  if (enough != replays.end()) replays.erase(std::max(enough, replays.begin() + 1), replays.end());
}

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
  keep_short(chosen);
  return chosen;
}

// Those with the least work for each interval, among those of many; none if each has only one.
std::vector<PredictedReplay> mostly_starts(std::vector<PredictedReplay> replays) {
  uint64_t most = 0;
  for (const auto& replay : replays) most = std::max(most, replay.intervals);
  std::erase_if(replays,
                [&](const PredictedReplay& replay) { return replay.intervals < 2 || 2 * replay.intervals < most; });
  std::sort(replays.begin(), replays.end(), [](const auto& a, const auto& b) {
    return a.work_s * static_cast<double>(b.intervals) < b.work_s * static_cast<double>(a.intervals);
  });
  if (replays.size() > kMeasuredStarts) replays.resize(kMeasuredStarts);
  keep_short(replays);
  return replays;
}

// The slowest.
std::vector<PredictedReplay> worth_proving(std::vector<PredictedReplay> replays) {
  std::sort(replays.begin(), replays.end(), [](const auto& a, const auto& b) { return a.predicted_s > b.predicted_s; });
  if (replays.size() > kMostProved) replays.resize(kMostProved);
  keep_short(replays);
  return replays;
}

// How long it takes a user, whose redrive has not re-driven anything before.
Result<double> replay_s(const Trace& trace, const PredictedReplay& replay, const BoundKeeping& how) {
  const std::string place = fmt::format("{}:{}", replay.unit, replay.interval);
  ASSIGN_OR_RETURN(auto started, start_redrive({"replay", "--json", "--jobs", fmt::to_string(how.jobs),
                                                "--interception", how.in_process ? "in-process" : "stops",
                                                std::filesystem::absolute(trace.directory()).string(), place},
                                               0));
  std::string said, shown;
  wait_for_redrive(std::move(started), said, [&](std::string_view text) { shown += text; });
  const auto report = nlohmann::json::parse(said, nullptr, false);
  if (!report.is_object()) {
    return Error{fmt::format("redrive replay {} {} ends without a result{}{}", trace.directory(), place,
                             shown.empty() ? "" : ": ", shown.substr(0, shown.find('\n')))};
  }
  const auto& interval = report.at("intervals").at(0);
  if (!interval.at("divergence").is_null()) {
    return Error{fmt::format("its replay diverges: see redrive replay --verify {} {}", trace.directory(), place),
                 Status::divergence};
  }
  if (!interval.at("error").is_null()) return Error{interval.at("error").get<std::string>()};
  return interval.at("seconds").get<double>();
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
      const bool in_time = certificate.slowest.predicted_s <= kRepaired * certificate.bound_s;
      if (!in_time && how_.repairs && repairs < kMostRepairs) missing = lacking(*trace, graph);
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
      TRY(repaired ? prove(trace, replays) : measure(trace, replays));
      replays = predict_all(graph.rdg(), costs(trace));
    }
    return redrive::certify(replays, bound_s, costs(trace));
  }

  // What every replay takes is measured with the shortest one, what intervals take to be started with replays that do
  // little else, and then the pace with others.
  Result<void> measure(const Trace& trace, const std::vector<PredictedReplay>& replays) {
    Pace& pace = pace_.emplace();
    const auto more_s = [&](const PredictedReplay& replay, double seconds) {
      return std::max(seconds - exact_s(replay) - overhead_s(replay, costs(trace)), 0.0);
    };
    const auto shortest = std::ranges::min(replays, {}, &PredictedReplay::predicted_s);
    TRY(replay_each(trace, {shortest},
                    [&](const PredictedReplay& replay, double seconds) { pace.begin_s = more_s(replay, seconds); }));
    double start_s = 0;
    TRY(replay_each(trace, mostly_starts(replays), [&](const PredictedReplay& replay, double seconds) {
      start_s = std::max(start_s, more_s(replay, seconds) / starts(replay, costs(trace).jobs));
    }));
    pace.start_s = start_s;
    TRY(replay_each(trace, worth_measuring(replays), [&](const PredictedReplay& replay, double seconds) {
      note_measured(pace, std::max(seconds - overhead_s(replay, costs(trace)), 0.0) / exact_s(replay));
    }));
    // Others may take longer than the slowest of these, by about as much as these differ.
    const double error = std::min((pace.most - pace.least) / 2, kMostError * pace.most);
    pace.times = std::max(1.0, pace.most + error);
    return {};
  }

  // If one of the slowest replays takes longer than predicted, all of the prediction is longer from then on.
  Result<void> prove(const Trace& trace, const std::vector<PredictedReplay>& replays) {
    Pace& pace = *pace_;
    double longer = 1;
    TRY(replay_each(trace, worth_proving(replays), [&](const PredictedReplay& replay, double seconds) {
      longer = std::max(longer, seconds / exact_s(replay));
      note_measured(pace, pace.times * seconds / exact_s(replay));
    }));
    pace.times *= longer;
    pace.start_s *= longer;
    pace.begin_s *= longer;
    return {};
  }

  // Without what is added because times of events are not exact.
  static double exact_s(const PredictedReplay& replay) { return replay.predicted_s - replay.clock_error_s; }

  static void note_measured(Pace& pace, double times) {
    if (pace.measured++ == 0) pace.least = pace.most = times;
    pace.least = std::min(pace.least, times);
    pace.most = std::max(pace.most, times);
  }

  template <typename Note>
  Result<void> replay_each(const Trace& trace, const std::vector<PredictedReplay>& replays, const Note& note) {
    for (const auto& replay : replays) {
      progress_.show(fmt::format("measuring the replay of {}:{}", replay.unit, replay.interval));
      auto seconds = replay_s(trace, replay, how_);
      if (seconds && *seconds > kAgain * replay.predicted_s) {
        const auto again = replay_s(trace, replay, how_);
        if (again) seconds = std::min(*seconds, *again);
      }
      if (!seconds) {
        return Error{fmt::format("unit {} ({}), interval {}: {}", replay.unit, trace.unit_name(replay.unit),
                                 replay.interval, seconds.error().message),
                     seconds.error().status};
      }
      note(replay, *seconds);
    }
    return {};
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

bool keep_bound_or_say(const BoundKeeping& how, const Trace& trace) {
  const auto certificate = keep_bound(trace, how);
  if (!certificate) {
    notice("whether the bound of {} is kept is not known: {}", format_duration(trace.settings().bound_s),
           certificate.error().message);
    return false;
  }
  if ((*certificate)->is_kept()) return true;
  notice("{}", describe_over(trace, **certificate));
  return false;
}

}  // namespace redrive
