// redrive follow: shows what a session records while it does.
#include "supervisor/cli/follow.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.h"
#include "base/units.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/session_text.h"
#include "supervisor/cli/words.h"

namespace redrive {
namespace {

using Json = nlohmann::ordered_json;

// What has happened between two looks at a session.
struct UnitRates {
  UnitActivity now;
  uint64_t events = 0, served_calls = 0, stopped_calls = 0;
  bool is_new = false;  // since the look before
};
struct ActivityReport {
  double seconds = 0;
  std::vector<UnitRates> units;
  std::vector<TalkActivity> talks;  // messages and bytes since the look before; none without any

  double per_second(uint64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};

// A unit's counts fall when two units become one.
uint64_t grown(uint64_t before, uint64_t now) { return now - std::min(before, now); }

ActivityReport report_of(const SessionActivity& before, const SessionActivity& now) {
  ActivityReport report;
  report.seconds = static_cast<double>(now.at_us - before.at_us) * 1e-6;
  std::map<uint32_t, const UnitActivity*> units;
  for (const auto& unit : before.units) units[unit.unit] = &unit;
  for (const auto& unit : now.units) {
    const auto known = units.find(unit.unit);
    const UnitActivity then = known != units.end() ? *known->second : UnitActivity{};
    report.units.push_back({unit, grown(then.events, unit.events), grown(then.served_calls, unit.served_calls),
                            grown(then.stopped_calls, unit.stopped_calls), known == units.end()});
  }
  std::map<std::pair<uint32_t, uint32_t>, const TalkActivity*> talks;
  for (const auto& talk : before.talks) talks[{talk.from, talk.to}] = &talk;
  for (const auto& talk : now.talks) {
    const auto known = talks.find({talk.from, talk.to});
    const TalkActivity then = known != talks.end() ? *known->second : TalkActivity{};
    const TalkActivity since{talk.from, talk.to, grown(then.messages, talk.messages), grown(then.bytes, talk.bytes)};
    if (since.messages + since.bytes > 0) report.talks.push_back(since);
  }
  return report;
}

void print_as_json(const ActivityReport& report) {
  Json units = Json::array(), talks = Json::array();
  for (const auto& unit : report.units) {
    units.push_back({{"unit", unit.now.unit},
                     {"name", unit.now.name},
                     {"pid", unit.now.process},
                     {"interval", unit.now.interval},
                     {"events", unit.now.events},
                     {"new", unit.is_new},
                     {"events_per_s", report.per_second(unit.events)},
                     {"served_calls_per_s", report.per_second(unit.served_calls)},
                     {"stopped_calls_per_s", report.per_second(unit.stopped_calls)}});
  }
  for (const auto& talk : report.talks) {
    talks.push_back({{"from", talk.from},
                     {"to", talk.to},
                     {"messages_per_s", report.per_second(talk.messages)},
                     {"bytes_per_s", report.per_second(talk.bytes)}});
  }
  print_json({{"seconds", report.seconds}, {"units", units}, {"talks", talks}});
}

void print_as_text(const ActivityReport& report) {
  const auto rate = [&](uint64_t count) { return fmt::format("{:.0f}", report.per_second(count)); };
  std::map<uint32_t, std::string> names;
  Columns units({"UNIT", "PROGRAM", ">PID", ">INTERVAL", ">EVENTS/S", ">SERVED/S", ">STOPPED/S"});
  for (const auto& unit : report.units) {
    names[unit.now.unit] = fmt::format("{} ({})", unit.now.unit, unit.now.name);
    units.add({fmt::format("{}", unit.now.unit), unit.now.name, fmt::format("{}", unit.now.process),
               fmt::format("{}", unit.now.interval), rate(unit.events), rate(unit.served_calls),
               rate(unit.stopped_calls)});
  }
  const auto name = [&](uint32_t unit) {
    const auto known = names.find(unit);
    return known != names.end() ? known->second : fmt::format("{} (ended)", unit);
  };
  Columns talks({"FROM", "TO", ">MESSAGES/S", ">BYTES/S"});
  for (const auto& talk : report.talks) {
    talks.add({name(talk.from), name(talk.to), rate(talk.messages), rate(talk.bytes)});
  }
  units.print();
  if (!report.talks.empty()) {
    fmt::print("\n");
    talks.print();
  }
  fmt::print("\n");
}

Result<int> follow(const SessionName& session, const FollowOptions& options) {
  const SessionClient client(session);
  ASSIGN_OR_RETURN(SessionActivity before, client.activity());
  for (uint64_t shown = 0; !options.count || shown < *options.count; ++shown) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
    auto now = client.activity();
    // The session has ended, or its program has.
    if (!now) return shown == 0 && options.count ? Result<int>(now.error()) : Result<int>(0);
    const ActivityReport report = report_of(before, *now);
    options.json ? print_as_json(report) : print_as_text(report);
    std::fflush(stdout);
    before = std::move(*now);
  }
  return 0;
}

constexpr CommandText kFollowText{
    "follow",
    "redrive follow [--json] [--every D] [--count N] NAME",
    "show what a session records while it does",
    "Reports, every second, how many events each unit makes, how many of its system calls are served in process and "
    "how\n"
    "many stop it, and which unit receives how much from which other one. Ends when the session's program has ended.\n",
    {kSessionWord, kDurationWord}};

class FollowCommand : public SessionCommand<FollowOptions> {
 public:
  using SessionCommand::SessionCommand;

  void declare(Arguments& arguments) override {
    arguments.json(options_.json);
    arguments.duration("--every", "D", "time between reports (1s)", [this](double s) { options_.interval_s = s; });
    arguments.number("--count", "N", 1, UINT32_MAX, "end after this many reports",
                     [this](uint64_t count) { options_.count = count; });
    arguments.words();
  }

 private:
  Result<int> run_on(const SessionName& session) override { return follow(session, options_); }
};

}  // namespace

std::unique_ptr<Command> make_follow_command() { return std::make_unique<FollowCommand>(kFollowText); }

}  // namespace redrive
