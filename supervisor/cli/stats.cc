// redrive stats: messages, bytes and checkpoints of a trace, in total and per unit and channel.
#include "supervisor/cli/stats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/text.h"
#include "base/units.h"
#include "logstore/trace.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/join_text.h"
#include "supervisor/cli/words.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/graph.h"
#include "supervisor/plan/tally.h"

namespace redrive {

namespace {

using Json = nlohmann::ordered_json;

// Messages as they were sent. A send may be received in parts, together with others, or not at all.
struct Sent {
  uint64_t messages = 0;
  uint64_t bytes = 0;
  void add(const Sent& other) {
    messages += other.messages;
    bytes += other.bytes;
  }
};

struct UnitStats {
  UnitId unit = 0;
  std::string name;
  uint64_t intervals = 0;
  double cpu_s = 0;
  Tally tally;
  Interception calls;
  Sent sent;
};

// A channel that carried messages: what was received from it, what was sent into it, and by which units.
struct ChannelStats {
  Tally tally;
  Sent sent;
  std::set<UnitId> from, to;
};

struct Stats {
  Tally total;
  uint64_t intervals = 0;
  uint64_t checkpoints = 0;        // from which a replay can start
  uint64_t image_checkpoints = 0;  // ... of kind image
  double cpu_s = 0;
  double pause_s = 0;
  double longest_pause_s = 0;
  Interception calls;
  std::vector<UnitStats> units;
  Sent sent;
  std::map<uint64_t, ChannelStats> channels;
  std::optional<Certificate> certificate;
};

void count_intervals(const Trace& trace, UnitStats& unit, Stats& stats) {
  for (const auto& interval : trace.intervals(unit.unit)) {
    const double pause_s = seconds(interval.pause_ns);
    ++unit.intervals;
    unit.cpu_s += seconds(interval_extent(trace, unit.unit, interval.interval).cpu_ns);
    stats.checkpoints += startable(interval);
    stats.image_checkpoints += interval.kind == CheckpointKind::image && interval.has_image;
    stats.pause_s += pause_s;
    stats.longest_pause_s = std::max(stats.longest_pause_s, pause_s);
  }
  stats.intervals += unit.intervals;
  stats.cpu_s += unit.cpu_s;
}

using SentByUnit = std::map<UnitId, Sent>;

// What went into channels from which no unit received anything was for receivers outside this trace.
void count_sent(const std::map<uint64_t, SentByUnit>& sent, Stats& stats) {
  for (auto& [number, channel] : stats.channels) {
    const auto into = sent.find(number);
    if (into == sent.end()) continue;
    for (const auto& [unit, count] : into->second) {
      channel.from.insert(unit);
      channel.sent.add(count);
      stats.sent.add(count);
      for (auto& of : stats.units) {
        if (of.unit == unit) of.sent.add(count);
      }
    }
  }
}

Result<Stats> gather(const Trace& trace) {
  Stats stats;
  std::map<uint64_t, SentByUnit> sent;  // by channel
  for (const auto& record : trace.units()) {
    UnitStats unit{record.unit, trace.unit_name(record.unit), 0, 0, {}, {}, {}};
    for (const auto& calls : trace.interceptions()) {
      if (calls.unit == unit.unit) unit.calls = calls;
    }
    stats.calls.served += unit.calls.served;
    stats.calls.stopped += unit.calls.stopped;
    count_intervals(trace, unit, stats);
    TRY(trace.for_each_event(record.unit, 0, trace.event_count(record.unit), [&](EventIndex, const Event& event) {
      unit.tally.add(record.unit, event);
      if (event.receive && is_message(record.unit, *event.receive)) {
        ChannelStats& channel = stats.channels[event.receive->channel];
        channel.tally.add(record.unit, event);
        channel.to.insert(record.unit);
      }
      if (event.send) sent[event.send->channel][record.unit].add({event.repeat, event.repeat * event.send->length});
      return true;
    }));
    stats.total.add(unit.tally);
    stats.units.push_back(unit);
  }
  count_sent(sent, stats);
  ASSIGN_OR_RETURN(stats.certificate, certificate_of(trace));
  return stats;
}

Json message_counts(const Tally& tally, const Sent& sent) {
  return {{"messages", tally.messages},           {"logged_messages", tally.logged_messages},
          {"message_bytes", tally.message_bytes}, {"logged_bytes", tally.logged_bytes},
          {"sent_messages", sent.messages},       {"sent_bytes", sent.bytes}};
}

Json per_unit_json(const Stats& stats) {
  Json out = Json::array();
  for (const auto& unit : stats.units) {
    Json row = {{"unit", unit.unit},
                {"name", unit.name},
                {"intervals", unit.intervals},
                {"cpu_s", unit.cpu_s},
                {"events", unit.tally.events},
                {"input_bytes", unit.tally.input_bytes},
                {"served_calls", unit.calls.served},
                {"stopped_calls", unit.calls.stopped}};
    row.update(message_counts(unit.tally, unit.sent));
    out.push_back(row);
  }
  return out;
}

// The channels that carried messages. If the recorder did not get to name one, only its number is known.
std::map<uint64_t, ChannelRecord> describe_channels(const Trace& trace, const Stats& stats) {
  std::map<uint64_t, ChannelRecord> described;
  for (const auto& [number, unused] : stats.channels) described[number] = {number, "?", ""};
  for (const auto& record : trace.channels()) {
    if (const auto it = described.find(record.channel); it != described.end()) it->second = record;
  }
  return described;
}

Json per_channel_json(const Trace& trace, const Stats& stats) {
  Json out = Json::array();
  for (const auto& [number, channel] : describe_channels(trace, stats)) {
    const ChannelStats& its = stats.channels.at(number);
    Json row = {
        {"channel", number}, {"kind", channel.kind}, {"name", channel.name}, {"from", its.from}, {"to", its.to}};
    row.update(message_counts(its.tally, its.sent));
    out.push_back(row);
  }
  return out;
}

Json stopping_sites_json(const Trace& trace) {
  Json out = Json::array();
  for (const auto& site : trace.stopping_sites()) {
    out.push_back({{"file", site.file},
                   {"offset", site.offset},
                   {"instruction", site.instruction},
                   {"stops", site.stops},
                   {"patchable", site.patchable}});
  }
  return out;
}

Json refused_json(const Trace& trace) {
  Json out = Json::array();
  for (const auto& refusal : trace.refusals()) {
    out.push_back(
        {{"unit", refusal.unit}, {"what", refusal.what}, {"answer", refusal.answer}, {"count", refusal.count}});
  }
  return out;
}

Json joins_json(const Trace& trace) {
  Json out = Json::array();
  for (const auto& join : trace.joins()) {
    out.push_back({{"unit", join.unit},
                   {"joined", join.joined ? Json(join.joined) : Json(nullptr)},
                   {"event", join.event},
                   {"pid", join.pid},
                   {"object", join.object}});
  }
  return out;
}

Json unsure_json(const Trace& trace) {
  Json out = Json::array();
  for (const auto& unsure : trace.unsure()) {
    out.push_back({{"unit", unsure.unit}, {"event", unsure.event}, {"reason", unsure.reason}});
  }
  return out;
}

Json predicted_json(const PredictedReplay& replay) {
  return {{"unit", replay.unit},
          {"interval", replay.interval},
          {"replay_set_size", replay.intervals},
          {"memory_bytes", replay.memory_bytes},
          {"restore_s", replay.restore_s},
          {"clock_error_s", replay.clock_error_s},
          {"messages", replay.messages},
          {"cpu_s", replay.work_s},
          {"predicted_s", replay.predicted_s}};
}

Json over_bound_json(const std::optional<Certificate>& certificate) {
  Json out = Json::array();
  if (!certificate) return out;
  for (const auto& over : certificate->over) out.push_back(predicted_json(over));
  return out;
}

// Null if it is not known whether the bound is kept.
Json certificate_json(const std::optional<Certificate>& certificate) {
  if (!certificate) return nullptr;
  const PredictedReplay& slowest = certificate->slowest;
  const bool of_all = slowest.unit == 0;
  return {{"bound_s", certificate->bound_s},
          {"kept", certificate->is_kept()},
          {"jobs", certificate->jobs},
          {"intervals", certificate->intervals},
          {"slowest", of_all ? Json() : predicted_json(slowest)},
          {"together_s", of_all ? Json(slowest.predicted_s) : Json()},
          {"pace", certificate->pace.times},
          {"least_pace", certificate->pace.least},
          {"most_pace", certificate->pace.most},
          {"start_s", certificate->pace.start_s},
          {"begin_s", certificate->pace.begin_s},
          {"message_s", certificate->pace.message_s},
          {"measured", certificate->pace.measured}};
}

void print_stats_json(const Trace& trace, const Stats& stats) {
  const Settings& settings = trace.settings();
  Json out = {{"units", stats.units.size()}, {"intervals", stats.intervals}, {"events", stats.total.events}};
  out.update(message_counts(stats.total, stats.sent));
  out.update(Json{{"input_bytes", stats.total.input_bytes},
                  {"checkpoints", stats.checkpoints},
                  {"skipped_checkpoints", trace.end().skipped_checkpoints},
                  {"criu_images", trace.end().criu_images.made},
                  {"criu_failures", trace.end().criu_images.failed},
                  {"criu_error", trace.end().criu_images.first_error},
                  {"trace_bytes", trace.size_on_disk()},
                  {"policy", settings.policy},
                  {"critical_path_s", settings.critical_path_s},
                  {"checkpoint_period_s", settings.checkpoint_period_s},
                  {"bound_s", settings.bound_s},
                  {"refused", refused_json(trace)},
                  {"unsure", unsure_json(trace)},
                  {"joins", joins_json(trace)},
                  {"certificate", certificate_json(stats.certificate)},
                  {"over_bound", over_bound_json(stats.certificate)},
                  {"finished", trace.finished()},
                  {"recording", trace.recording()},
                  {"wall_s", trace.finished() ? Json(trace.end().wall_s) : Json()},
                  {"cpu_s", stats.cpu_s},
                  {"image_checkpoints", stats.image_checkpoints},
                  {"pause_s", stats.pause_s},
                  {"longest_pause_s", stats.longest_pause_s},
                  {"restore_cost_s", settings.restore_cost_s},
                  {"served_calls", stats.calls.served},
                  {"stopped_calls", stats.calls.stopped},
                  {"stopping_sites", stopping_sites_json(trace)},
                  {"per_unit", per_unit_json(stats)},
                  {"per_channel", per_channel_json(trace, stats)}});
  print_json(out);
}

std::string percentage(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// How long they take, as far as it is known.
std::string replays_text(const Trace& trace, const std::optional<Certificate>& certificate) {
  if (certificate) return describe_basis(*certificate);
  return trace.finished() ? "not known whether they keep the bound: see redrive prepare"
                          : "not known whether they keep the bound: the recording did not end";
}

std::string describe_policy(const Settings& settings) {
  const std::string period = format_duration(settings.checkpoint_period_s);
  if (settings.keeps_bound()) {
    return fmt::format("{}, bound {}, critical path {}, checkpoint period {}", settings.policy,
                       format_duration(settings.bound_s), format_duration(settings.critical_path_s), period);
  }
  const bool has_virtual_checkpoints = settings.critical_path_s == 0;
  return has_virtual_checkpoints ? fmt::format("none, virtual checkpoints every {}: see redrive prepare", period)
                                 : fmt::format("{}, no bound, checkpoint period {}", settings.policy, period);
}

void print_summary(const Trace& trace, const Stats& stats) {
  const Settings& settings = trace.settings();
  const Tally& total = stats.total;
  const double wall_s = trace.end().wall_s;
  const uint64_t bytes = trace.size_on_disk();
  const auto line = [](const char* what, const std::string& value) {
    fmt::print("{:<13}{}\n", what, printable(value));
  };
  line("trace", trace.directory());
  line("command", join_words(settings.command));
  line("recorded", trace.finished()    ? fmt::format("{} of wall time, {} to execute again", format_duration(wall_s),
                                                     format_duration(stats.cpu_s))
                   : trace.recording() ? "still being recorded"
                                       : "not completed: the recorder was killed, or could not write");
  line("size", wall_s > 0 ? fmt::format("{}, {}/s", format_size(bytes),
                                        format_size(static_cast<uint64_t>(static_cast<double>(bytes) / wall_s)))
                          : format_size(bytes));
  line("policy", describe_policy(settings));
  if (settings.keeps_bound()) line("replays", replays_text(trace, stats.certificate));
  line("units", fmt::format("{}, {}, {}", stats.units.size(), counted(stats.intervals, "interval"),
                            counted(total.events, "event")));
  line("sent", fmt::format("{} ({})", counted(stats.sent.messages, "message"), format_size(stats.sent.bytes)));
  line("received", fmt::format("{} ({}), {} logged ({}): {}", counted(total.messages, "message"),
                               format_size(total.message_bytes), total.logged_messages, format_size(total.logged_bytes),
                               percentage(total.logged_messages, total.messages)));
  line("input", format_size(total.input_bytes));
  if (!trace.interceptions().empty()) {
    line("calls", fmt::format("{} served in process, {} stopped ({})", stats.calls.served, stats.calls.stopped,
                              percentage(stats.calls.stopped, stats.calls.served + stats.calls.stopped)));
  }
  line("checkpoints", fmt::format("{}, {} of them images, {} skipped; pauses {}, longest {}", stats.checkpoints,
                                  stats.image_checkpoints, trace.end().skipped_checkpoints,
                                  format_duration(stats.pause_s), format_duration(stats.longest_pause_s)));
  const CriuImages& by_criu = trace.end().criu_images;
  if (by_criu.made + by_criu.failed > 0) {
    line("by CRIU", fmt::format("{}; {} by redrive in its place{}", counted(by_criu.made, "image"), by_criu.failed,
                                by_criu.first_error.empty() ? "" : " (" + by_criu.first_error + ")"));
  }
}

void print_tables(const Trace& trace, const Stats& stats) {
  const auto number = [](uint64_t value) { return fmt::format("{}", value); };
  Columns units({">UNIT", "NAME", ">INTERVALS", ">CPU", ">EVENTS", ">SENT", ">RECEIVED", ">LOGGED", ">SHARE", ">BYTES",
                 ">INPUT"});
  for (const auto& unit : stats.units) {
    units.add({number(unit.unit), unit.name, number(unit.intervals), format_duration(unit.cpu_s),
               number(unit.tally.events), number(unit.sent.messages), number(unit.tally.messages),
               number(unit.tally.logged_messages), percentage(unit.tally.logged_messages, unit.tally.messages),
               format_size(unit.tally.message_bytes), format_size(unit.tally.input_bytes)});
  }
  fmt::print("\n");
  units.print();

  if (stats.channels.empty()) return;
  const auto names = [&](const std::set<UnitId>& of) {
    std::vector<std::string> all;
    for (const UnitId unit : of) all.push_back(trace.unit_name(unit));
    return all.empty() ? std::string("?") : fmt::format("{}", fmt::join(all, ","));
  };
  Columns channels({">CHANNEL", "KIND", "FROM", "TO", ">SENT", ">RECEIVED", ">LOGGED", ">SHARE", ">BYTES", "NAME"});
  for (const auto& [id, channel] : describe_channels(trace, stats)) {
    const auto& [tally, sent, from, to] = stats.channels.at(id);
    channels.add({number(id), channel.kind, names(from), names(to), number(sent.messages), number(tally.messages),
                  number(tally.logged_messages), percentage(tally.logged_messages, tally.messages),
                  format_size(tally.message_bytes), channel.name});
  }
  fmt::print("\n");
  channels.print();
}

// Shows where threads stopped most often although they need not have.
void print_stopping_sites(const Trace& trace) {
  constexpr size_t kShown = 10;
  const auto& sites = trace.stopping_sites();
  if (sites.empty()) return;
  Columns columns({">STOPS", "INSTRUCTION", "JUMP", ">OFFSET", "FILE"});
  for (const auto& site : std::span(sites).first(std::min(kShown, sites.size()))) {
    columns.add({fmt::format("{}", site.stops), site.instruction, site.patchable ? "fits" : "-",
                 fmt::format("{:#x}", site.offset), site.file});
  }
  fmt::print("\n");
  columns.print();
}

void print_doubts(const Trace& trace, const std::optional<Certificate>& certificate) {
  if (!trace.refusals().empty()) {
    Columns refused({">UNIT", "REFUSED", "ANSWER", ">TIMES"});
    for (const auto& refusal : trace.refusals()) {
      refused.add({fmt::format("{}", refusal.unit), refusal.what, refusal.answer, fmt::format("{}", refusal.count)});
    }
    fmt::print("\n");
    refused.print();
  }
  if (!trace.unsure().empty()) {
    Columns unsure({">UNIT", ">EVENT", "UNSURE: A REPLAY FROM BEFORE THIS EVENT MAY DIVERGE"});
    for (const auto& doubt : trace.unsure()) {
      unsure.add({fmt::format("{}", doubt.unit), fmt::format("{}", doubt.event), doubt.reason});
    }
    fmt::print("\n");
    unsure.print();
  }
  const auto joins = describe_joins(trace);
  if (!joins.empty()) fmt::print("\n");
  for (const auto& join : joins) fmt::print("{}\n", join);
  if (certificate && !certificate->is_kept()) fmt::print("\n{}\n", describe_over(trace, *certificate));
}

Result<int> stats(const StatsOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  ASSIGN_OR_RETURN(const Stats stats, gather(*trace));
  if (options.json) {
    print_stats_json(*trace, stats);
  } else {
    print_summary(*trace, stats);
    print_tables(*trace, stats);
    print_stopping_sites(*trace);
    print_doubts(*trace, stats.certificate);
  }
  return 0;
}

constexpr CommandText kStatsText{"stats",
                                 "redrive stats [--json] [TRACE]",
                                 "show counts of messages, bytes and checkpoints, in total and per unit and channel",
                                 "",
                                 {kTraceWord}};

class StatsCommand : public CommandWith<StatsOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    arguments.json(options_.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(options_.trace, only_trace(arguments));
    return {};
  }

  Result<int> run() override { return stats(options_); }
};

}  // namespace

std::unique_ptr<Command> make_stats_command() { return std::make_unique<StatsCommand>(kStatsText); }

}  // namespace redrive
