#include "supervisor/cli/bound_keeping.h"

#include <fmt/format.h>
#include <sys/wait.h>

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
#include "supervisor/plan/pace.h"
#include "supervisor/plan/repair.h"
#include "supervisor/replay/taking.h"

namespace redrive {
namespace {

constexpr double kNearlyLate = 1. / 3;  // of the bound: replays are measured before it is said that they are in time
constexpr size_t kMostProved = 8;       // of the slowest, once the trace was repaired
constexpr double kMeasured_s = 3, kProved_s = 2;  // about how long what is measured, or proved, may take together
constexpr double kAgain = 1.1;  // what takes so much longer than predicted is measured again: the machine may be busy
constexpr int kTries = 2, kTriesAtKnownPace = 4;  // of each, at most
constexpr double kRepaired = 0.8;  // of the bound: what takes longer is repaired, because predictions have errors
// How often it is repaired: what was predicted of the repair may be wrong by as much as a checkpoint's place, and by
// what replays then take.
constexpr int kMostRepairs = 3;

// As many of the first as take so long together, and at least one.
void keep_short(std::vector<PredictedReplay>& replays, double together_s) {
  double sum_s = 0;
  const auto enough = std::find_if(replays.begin(), replays.end(),
                                   [&](const auto& replay) { return (sum_s += replay.predicted_s) > together_s; });
  if (enough != replays.end()) replays.erase(std::max(enough, replays.begin() + 1), replays.end());
}

bool is_too_slow(double seconds, const PredictedReplay& replay) { return seconds > kAgain * replay.predicted_s; }

// The slowest.
std::vector<PredictedReplay> worth_proving(std::vector<PredictedReplay> replays) {
  std::sort(replays.begin(), replays.end(), [](const auto& a, const auto& b) { return a.predicted_s > b.predicted_s; });
  if (replays.size() > kMostProved) replays.resize(kMostProved);
  return replays;
}

// How long it takes a user, whose redrive has not re-driven anything before. `until`: as in plan().
Result<double> replay_s(const Trace& trace, const PredictedReplay& replay, std::optional<EventIndex> until,
                        const BoundKeeping& how) {
  const std::string place = fmt::format("{}:{}", replay.unit, replay.interval);
  std::vector<std::string> words{"replay",         "--json",
                                 "--jobs",         fmt::to_string(how.jobs),
                                 "--interception", how.in_process ? "in-process" : "stops"};
  if (until) words.insert(words.end(), {"--until", fmt::to_string(*until)});
  words.insert(words.end(), {std::filesystem::absolute(trace.directory()).string(), place});
  ASSIGN_OR_RETURN(auto started, start_redrive(words, 0));
  std::string said, shown;
  const int ended = wait_for_redrive(std::move(started), said, [&](std::string_view text) { shown += text; });
  const auto report = nlohmann::json::parse(said, nullptr, false);
  if (!report.is_object()) {
    return Error{fmt::format("redrive replay {} {} ends without a result{}{}", shell_quoted(trace.directory()), place,
                             shown.empty() ? "" : ": ", shown.substr(0, shown.find('\n')))};
  }
  const auto& interval = report.at("intervals").at(0);
  if (!interval.at("divergence").is_null()) {
    return Error{
        fmt::format("its replay diverges: see redrive replay --verify {} {}", shell_quoted(trace.directory()), place),
        Status::divergence};
  }
  if (!interval.at("error").is_null()) {
    const bool damaged = WIFEXITED(ended) && WEXITSTATUS(ended) == static_cast<int>(Status::damaged);
    return Error{interval.at("error").get<std::string>(), damaged ? Status::damaged : Status::failed};
  }
  return interval.at("seconds").get<double>();
}

class Keeping {
 public:
  explicit Keeping(const BoundKeeping& how) : how_(how), progress_(how.progress), pace_(how.known_pace) {}

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
    if (pace_.measured > 0) costs.pace = pace_;
    return costs;
  }

  Result<Certificate> certify(const Trace& trace, DependenceGraph& graph, bool repaired) {
    ASSIGN_OR_RETURN(auto replays, predict_all(graph.rdg(), costs(trace)));
    const double bound_s = trace.settings().bound_s;
    const bool nearly_late = std::any_of(replays.begin(), replays.end(), [&](const PredictedReplay& replay) {
      return replay.predicted_s > kNearlyLate * bound_s;
    });
    if (nearly_late && (measured_.empty() || repaired)) {
      TRY(measure(trace, graph.rdg(), std::move(replays)));
      ASSIGN_OR_RETURN(replays, predict_all(graph.rdg(), costs(trace)));
    }
    return redrive::certify(replays, bound_s, costs(trace));
  }

  // Once the trace was repaired, the slowest replays are measured, too: others than before. What those took still says
  // what replays take. If one of them takes longer than predicted, the others can wait until the trace is repaired
  // again.
  Result<void> measure(const Trace& trace, const Rdg& graph, std::vector<PredictedReplay> replays) {
    const bool first = measured_.empty();
    auto chosen = first ? worth_measuring(std::move(replays), costs(trace).jobs) : worth_proving(std::move(replays));
    keep_short(chosen, first ? kMeasured_s : kProved_s);
    if (first) TRY(measure_start(trace, graph, *std::ranges::max_element(chosen, {}, &PredictedReplay::predicted_s)));
    for (const auto& replay : chosen) {
      TRY(measure(trace, replay));
      if (!first && is_too_slow(measured_.back().seconds, replay)) break;
    }
    pace_ = fit_pace(measured_);
    return {};
  }

  // What it takes to begin, and to start one interval: nothing of it is executed.
  Result<void> measure_start(const Trace& trace, const Rdg& graph, const PredictedReplay& replay) {
    const EventIndex first = graph.units.at(replay.unit)[replay.interval].first_event;
    const auto planned = plan(graph, replay.unit, replay.interval, first);
    return planned.plan ? measure(trace, predict(*planned.plan, costs(trace)), first) : Result<void>();
  }

  Result<void> measure(const Trace& trace, const PredictedReplay& replay, std::optional<EventIndex> until = {}) {
    progress_.show(fmt::format("measuring the replay of {}:{}", replay.unit, replay.interval));
    auto seconds = replay_s(trace, replay, until, how_);
    const int most = pace_.measured == 0 ? kTries : kTriesAtKnownPace;
    for (int tries = 1; tries < most && seconds && is_too_slow(*seconds, replay); ++tries) {
      const auto again = replay_s(trace, replay, until, how_);
      if (again) seconds = std::min(*seconds, *again);
    }
    if (!seconds) {
      return Error{fmt::format("unit {} ({}), interval {}: {}", replay.unit, trace.unit_name(replay.unit),
                               replay.interval, seconds.error().message),
                   seconds.error().status};
    }
    measured_.push_back({starts(replay.intervals, costs(trace).jobs), static_cast<double>(replay.messages),
                         replay.executing_s, replay.restoring_s, *seconds});
    return {};
  }

  Missing lacking(const Trace& trace, const DependenceGraph& graph) const {
    progress_.show("choosing what has to be kept for the bound");
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
  std::vector<MeasuredReplay> measured_;
  Pace pace_;  // of these
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
