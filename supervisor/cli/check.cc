// redrive check: verifies every byte of a trace.
#include "supervisor/cli/check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/notice.h"
#include "base/text.h"
#include "base/units.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/host.h"
#include "supervisor/cli/words.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/graph.h"

namespace redrive {

namespace {

const char* how_it_ended(const Trace& trace) {
  if (trace.finished()) return "";
  return trace.recording()
             ? "; it is still being recorded; what was written so far is intact"
             : "; it was not completed (the recorder was killed, or could not write); what was written is intact";
}

std::string summary(const Trace& trace) {
  uint64_t intervals = 0;
  uint64_t events = 0;
  for (const auto& unit : trace.units()) {
    intervals += trace.intervals(unit.unit).size();
    events += trace.event_count(unit.unit);
  }
  return fmt::format("{}: clean: {}, {}, {}, {}{}", printable(trace.directory()), counted(trace.units().size(), "unit"),
                     counted(intervals, "interval"), counted(events, "event"), format_size(trace.size_on_disk()),
                     how_it_ended(trace));
}

// Makes the certificate again. Returns how the trace's own differs.
Result<std::optional<std::string>> check_certificate(const Trace& trace, const Certificate& kept) {
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(trace));
  TRY(graph.read_all());
  ReplayCosts costs = costs_of(trace, kept.jobs);
  costs.pace = kept.pace;
  ASSIGN_OR_RETURN(const auto replays, predict_all(graph.rdg(), costs));
  const Certificate made = certify(replays, trace.settings().bound_s, costs);
  if (is_same_promise(kept, made)) return std::optional<std::string>();
  return std::optional(fmt::format("{}: the certificate says {}, {} late; by the trace it is {}, {} late",
                                   TraceFiles{trace.directory()}.certificate(), describe_basis(kept), kept.over.size(),
                                   describe_basis(made), made.over.size()));
}

int print_json_report(const std::string& directory, const std::vector<std::string>& damage, bool finished) {
  print_json({{"directory", directory}, {"clean", damage.empty()}, {"finished", finished}, {"damage", damage}});
  return static_cast<int>(damage.empty() ? Status::ok : Status::damaged);
}

Result<int> check(const CheckOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  const auto opened = Trace::open(directory);
  if (!opened) {
    if (options.json && opened.error().status == Status::damaged) {
      return print_json_report(directory, {opened.error().message}, false);
    }
    return opened.error();
  }
  const Trace& trace = *opened.value();
  auto damage = check_trace(trace);
  ASSIGN_OR_RETURN(const bool catalog_changed, is_catalog_changed(trace));
  if (catalog_changed) notice("catalog.sqlite was changed; redrive catalog makes it again");
  std::optional<Certificate> certificate;
  if (damage.empty()) {
    ASSIGN_OR_RETURN(certificate, kept_certificate(trace));
  }
  if (certificate) {
    ASSIGN_OR_RETURN(const auto wrong, check_certificate(trace, *certificate));
    if (wrong) damage.push_back(*wrong);
  }
  if (options.json) return print_json_report(directory, damage, trace.finished());
  for (const auto& line : damage) fmt::print("{}\n", printable(line));
  if (damage.empty()) {
    fmt::print("{}\n", summary(trace));
    if (certificate && !certificate->is_kept() && !certify_sum(trace))
      fmt::print("{}\n", describe_over(trace, *certificate));
    return 0;
  }
  return Error{fmt::format("{}: {} damaged", directory, counted(damage.size(), "place")), Status::damaged};
}

constexpr CommandText kCheckText{"check",
                                 "redrive check [--json] [TRACE] | --host",
                                 "verify every byte of a trace, or check whether this host can record",
                                 "",
                                 {kTraceWord}};

class CheckCommand : public CommandWith<CheckOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    arguments.json(options_.json);
    arguments.words();
    arguments.flag("--host", options_.host, "say whether this host can record, and if not, why");
  }

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(options_.trace, only_trace(arguments));
    if (options_.host && arguments.has_words()) return usage("--host takes no TRACE");
    return {};
  }

  Result<int> run() override {
    if (!options_.host) return check(options_);
    TRY(check_host(options_.json));
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> make_check_command() { return std::make_unique<CheckCommand>(kCheckText); }

}  // namespace redrive
