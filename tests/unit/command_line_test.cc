#include "supervisor/cli/command_line.h"

#include "base/units.h"
#include "supervisor/cli/catalog.h"
#include "supervisor/cli/check.h"
#include "supervisor/cli/checkpoint.h"
#include "supervisor/cli/dump.h"
#include "supervisor/cli/evaluate.h"
#include "supervisor/cli/follow.h"
#include "supervisor/cli/list.h"
#include "supervisor/cli/live.h"
#include "supervisor/cli/plan.h"
#include "supervisor/cli/prepare.h"
#include "supervisor/cli/record.h"
#include "supervisor/cli/remove.h"
#include "supervisor/cli/replay.h"
#include "supervisor/cli/service.h"
#include "supervisor/cli/set.h"
#include "supervisor/cli/start.h"
#include "supervisor/cli/stats.h"
#include "supervisor/cli/stop.h"
#include "tests/unit/unit_test.h"

namespace redrive::command_line_test {

namespace {

template <typename T>
T parsed(std::vector<std::string> words) {
  const auto command = parse_command_line(std::move(words));
  REQUIRE_MESSAGE(command, command.error().message);
  const auto* const wanted = dynamic_cast<const CommandWith<T>*>(command.value().get());
  REQUIRE(wanted);
  return wanted->options();
}

void check_usage_error(std::vector<std::string> words, const std::string& mentions = "") {
  const auto command = parse_command_line(std::move(words));
  REQUIRE_FALSE(command);
  CHECK_EQ(command.error().status, Status::usage);
  CHECK_MESSAGE(command.error().message.find('\n') == std::string::npos, command.error().message);
  CHECK_MESSAGE(command.error().message.find(mentions) != std::string::npos, command.error().message);
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("durations carry their unit") {
  CHECK_EQ(parse_duration("500ms").value(), doctest::Approx(0.5));
  CHECK_EQ(parse_duration("2s").value(), doctest::Approx(2));
  CHECK_EQ(parse_duration("1.5m").value(), doctest::Approx(90));
  CHECK_EQ(parse_duration("1h").value(), doctest::Approx(3600));
  CHECK_EQ(parse_duration("100us").value(), doctest::Approx(1e-4));
  for (const char* wrong : {"", "s", "2", "-1s", "2 s", "2sec", "0x2s", "nans", "infs", "1e3s", "2S", "ms500"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_duration(wrong));
  }
}

TEST_CASE("sizes") {
  CHECK_EQ(parse_size("500").value(), 500);
  CHECK_EQ(parse_size("1.5K").value(), 1536);
  CHECK_EQ(parse_size("2G").value(), uint64_t{2} << 30);
  CHECK_EQ(parse_size("1T").value(), uint64_t{1} << 40);
  for (const char* wrong : {"", "K", "-1K", "2g", "2GB", "much", "1e300T", "99999999999T"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_size(wrong));
  }
}

TEST_CASE("durations and sizes are shown with three digits") {
  CHECK_EQ(format_duration(0), "0 s");
  CHECK_EQ(format_duration(1.234e-5), "12.3 us");
  CHECK_EQ(format_duration(0.00048), "480 us");
  CHECK_EQ(format_duration(0.9999), "1.00 s");
  CHECK_EQ(format_duration(125), "2 min 5 s");
  CHECK_EQ(format_duration(7260), "2 h 1 min");
  CHECK_EQ(format_size(1023), "1023 B");
  CHECK_EQ(format_size(1536), "1.50 KiB");
  CHECK_EQ(format_size(uint64_t{1} << 30), "1.00 GiB");
}

TEST_CASE("record takes its own options and leaves the command's alone") {
  const auto plain = parsed<RecordOptions>({"record", "ls", "-l", "--bound", "x"});
  CHECK_EQ(plain.command, Words{"ls", "-l", "--bound", "x"});
  CHECK_EQ(plain.policy, kDefaultPolicy);
  CHECK_EQ(plain.bound_s, 10);
  CHECK_FALSE(plain.critical_path_s);

  const auto full = parsed<RecordOptions>({"record", "-o", "dir", "--bound", "2s", "--policy=all", "--critical-path",
                                           "800ms", "--checkpoint-period", "400ms", "--", "-odd", "--name"});
  CHECK_EQ(full.directory, "dir");
  CHECK_EQ(full.bound_s, 2);
  CHECK_EQ(full.policy, "all");
  CHECK_EQ(full.critical_path_s.value(), doctest::Approx(0.8));
  CHECK_EQ(full.checkpoint_period_s.value(), doctest::Approx(0.4));
  CHECK_EQ(full.command, Words{"-odd", "--name"});

  CHECK_EQ(plain.processors, 0);
  CHECK_EQ(parsed<RecordOptions>({"record", "--processors", "3", "true"}).processors, 3);
  CHECK(plain.tuning == TuningRule::promise);
  CHECK(parsed<RecordOptions>({"record", "--tuning", "paper", "true"}).tuning == TuningRule::paper);
  CHECK(parsed<PrepareOptions>({"prepare", "--tuning", "paper"}).tuning == TuningRule::paper);
  check_usage_error({"record", "--tuning", "best", "true"}, "best");
  CHECK_FALSE(plain.independent_checkpoints);
  CHECK(parsed<RecordOptions>({"record", "--placement", "independent", "true"}).independent_checkpoints);
  check_usage_error({"record", "--placement", "random", "true"}, "random");
  CHECK(plain.transport == Transport::sockets);
  CHECK(parsed<RecordOptions>({"record", "--transport", "as-is", "true"}).transport == Transport::as_is);
  check_usage_error({"record", "--transport", "smoke", "true"}, "smoke");
  check_usage_error({"record", "--virtual", "--tuning", "paper", "true"}, "prepare");
  CHECK_EQ(parsed<RecordOptions>({"record", "-odir", "true"}).directory, "dir");
  CHECK_EQ(parsed<RecordOptions>({"record", "sh", "-c", "--", "x"}).command, Words{"sh", "-c", "--", "x"});
  CHECK_EQ(parsed<RecordOptions>({"record", "--", "--"}).command, Words{"--"});
}

TEST_CASE("record refuses nonsense before it runs anything") {
  check_usage_error({"record"}, "command");
  check_usage_error({"record", "--"}, "command");
  check_usage_error({"record", "--nonsense", "true"}, "--nonsense");
  check_usage_error({"record", "--bound"}, "--bound");
  check_usage_error({"record", "--bound", "fast", "true"}, "fast");
  check_usage_error({"record", "--bound", "10", "true"}, "10");
  check_usage_error({"record", "--bound", "0s", "true"}, "--bound");
  check_usage_error({"record", "--policy", "best", "true"}, "critical-path");
  check_usage_error({"record", "--processors", "0", "true"}, "'0'");
  check_usage_error({"record", "--processors", "many", "true"}, "many");
}

TEST_CASE("record takes a policy's parameters, and only that policy's") {
  const auto record = parsed<RecordOptions>({"record", "--policy", "replay-set", "--set-bound", "5", "true"});
  CHECK_EQ(record.parameters.set_bound, 5);
  CHECK(parsed<RecordOptions>({"record", "--policy", "critical-path-multiplicity", "--approximate", "true"})
            .parameters.approximate);
  check_usage_error({"record", "--set-bound", "5", "true"}, kDefaultPolicy);
  check_usage_error({"record", "--policy", "makespan", "--cores", "0", "true"}, "'0'");
  check_usage_error({"record", "--policy", "makespan", "--cores", "many", "true"}, "many");
  check_usage_error({"record", "--approximate", "true"}, "--approximate");
}

TEST_CASE("virtual recordings choose nothing, prepare does") {
  const auto plain = parsed<PrepareOptions>({"prepare"});
  CHECK(plain.trace.empty());
  CHECK_FALSE(plain.bound_s);
  CHECK(plain.policy.empty());
  const auto full = parsed<PrepareOptions>({"prepare", "--bound", "2s", "--policy", "makespan", "--cores", "4",
                                            "--isolate", "1,jacobi.2", "--jobs", "3", "--json", "run-1"});
  CHECK(full.trace == "run-1");
  CHECK(full.bound_s == 2);
  CHECK(full.policy == "makespan");
  CHECK(full.parameters.cores == 4);
  CHECK(full.isolate == std::vector<std::string>{"1", "jacobi.2"});
  CHECK(full.jobs == 3);
  CHECK(full.json);
  check_usage_error({"prepare", "--cores", "4"}, "--policy");
  check_usage_error({"prepare", "--policy", "all", "--cores", "4"}, "--cores");
  check_usage_error({"prepare", "a", "b"}, "'b'");
  CHECK(parsed<RecordOptions>({"record", "--virtual", "--checkpoint-period", "50ms", "true"}).virtual_checkpoints);
  check_usage_error({"record", "--virtual", "--bound", "2s", "true"}, "prepare");
  check_usage_error({"record", "--virtual", "--policy", "all", "true"}, "prepare");
}

TEST_CASE("evaluate takes lists") {
  const auto sweep = parsed<EvaluateOptions>({"evaluate", "--policy", "mrt,all", "--critical-path", "0.5s,1s",
                                              "--cores", "1,2,4", "--skew", "10ms", "--csv", "run-1"});
  CHECK_EQ(sweep.policies, Words{"mrt", "all"});
  CHECK_EQ(sweep.critical_path_s, std::vector{0.5, 1.0});
  CHECK_EQ(sweep.cores, std::vector<uint32_t>{1, 2, 4});
  CHECK_EQ(sweep.skew_s, std::vector{0.01});
  CHECK_EQ(sweep.trace, "run-1");
  CHECK(sweep.csv);
  CHECK(!sweep.optimal);
  CHECK(parsed<EvaluateOptions>({"evaluate", "--optimal"}).optimal);
  const auto made = parsed<EvaluateOptions>({"evaluate", "--synthetic", "ring", "--units", "3", "--seed", "4"});
  CHECK_EQ(made.synthetic->units, 3);
  CHECK_EQ(made.synthetic->seed, 4);
  CHECK_GE(made.jobs, 1);
  check_usage_error({"evaluate", "--policy", "best"}, "best");
  check_usage_error({"evaluate", "--policy", ""});
  check_usage_error({"evaluate", "--critical-path", "1s,fast"}, "fast");
  check_usage_error({"evaluate", "--critical-path", "1s,,2s"});
  check_usage_error({"evaluate", "--cores", "2,0"}, "'0'");
  check_usage_error({"evaluate", "--synthetic", "star"}, "star");
  check_usage_error({"evaluate", "--synthetic", "ring", "run-1"}, "TRACE");
  check_usage_error({"evaluate", "--synthetic", "ring", "--units", "1"}, "'1'");
  check_usage_error({"evaluate", "--units", "3"}, "--synthetic");
  check_usage_error({"evaluate", "--json", "--csv"}, "combined");
  check_usage_error({"evaluate", "a", "b"}, "'b'");
}

TEST_CASE("the first word is a command") {
  check_usage_error({});
  check_usage_error({"frobnicate"}, "frobnicate");
  check_usage_error({"--frobnicate", "ls"}, "--frobnicate");
  check_usage_error({""});
  CHECK_EQ(parsed<PrintText>({"--version"}).text, std::string("redrive ") + kVersion + "\n");
  CHECK(parsed<PrintText>({"--help"}).text.find("usage: redrive") != std::string::npos);
  CHECK(parsed<PrintText>({"record", "--help"}).text.find("--checkpoint-period") != std::string::npos);
}

TEST_CASE("replay finds trace, unit and intervals by position") {
  auto replay = parsed<ReplayOptions>({"replay", "jacobi.2:4-6", "--verify", "--jobs", "3"});
  CHECK_EQ(replay.trace, "");
  CHECK_EQ(replay.unit_text, "jacobi.2");
  CHECK_EQ(replay.first_interval, 4U);
  CHECK_EQ(replay.last_interval, 6U);
  CHECK(replay.verify);
  CHECK_EQ(replay.jobs, 3);

  replay = parsed<ReplayOptions>({"replay", "run-1", "3:7", "--until", "120", "--json"});
  CHECK_EQ(replay.trace, "run-1");
  CHECK_EQ(replay.unit_text, "3");
  CHECK_EQ(replay.first_interval, 7U);
  CHECK_EQ(replay.last_interval, 7U);
  CHECK_EQ(replay.until, 120U);
  CHECK(replay.json);
  CHECK(parsed<ReplayOptions>({"replay", "3", "--output"}).output);

  CHECK_EQ(parsed<ReplayOptions>({"replay", "ls"}).unit_text, "ls");  // a program may have the name of a command
  CHECK_EQ(parsed<ReplayOptions>({"replay", "rm", "stats:1"}).trace, "rm");
  CHECK_FALSE(parsed<ReplayOptions>({"replay", "3"}).first_interval);
  CHECK(parsed<ReplayOptions>({"replay", "--all"}).trace.empty());
  CHECK_EQ(parsed<ReplayOptions>({"replay", "--all", "run-1"}).trace, "run-1");
  CHECK_GE(parsed<ReplayOptions>({"replay", "3"}).jobs, 1);
  CHECK(parsed<ReplayOptions>({"replay", "--restore-engine", "criu", "3"}).by_criu);
  for (const char* const engine : {"auto", "own"}) {
    CHECK_FALSE(parsed<ReplayOptions>({"replay", "--restore-engine", engine, "3"}).by_criu);
  }
}

TEST_CASE("replay takes a distributed breakpoint, and what to show there") {
  const auto replay = parsed<ReplayOptions>({"replay", "run-1", "--break", "jacobi.2@120", "--break", "3@7", "--memory",
                                             "3:0x1f+16", "--memory", "a:b:9+0x10", "--inspect", "--verify"});
  CHECK_EQ(replay.trace, "run-1");
  REQUIRE_EQ(replay.breaks.size(), 2);
  CHECK_EQ(replay.breaks[0].unit, "jacobi.2");
  CHECK_EQ(replay.breaks[0].event, 120U);
  CHECK_EQ(replay.breaks[1].unit, "3");
  REQUIRE_EQ(replay.memory.size(), 2);
  CHECK_EQ(replay.memory[0].address, 0x1fU);
  CHECK_EQ(replay.memory[0].length, 16U);
  CHECK_EQ(replay.memory[1].unit, "a:b");
  CHECK_EQ(replay.memory[1].address, 9U);
  CHECK_EQ(replay.memory[1].length, 16U);
  CHECK(replay.inspect);
  CHECK(parsed<ReplayOptions>({"replay", "--total-order", "3"}).total_order);
}

TEST_CASE("no option takes the words that follow its value") {
  const auto replay =
      parsed<ReplayOptions>({"replay", "--break", "3@7", "--memory", "3:1+1", "--break", "4@1", "run-1"});
  CHECK_EQ(replay.breaks.size(), 2);
  CHECK_EQ(replay.memory.size(), 1);
  CHECK_EQ(replay.trace, "run-1");
  CHECK_EQ(parsed<PlanOptions>({"plan", "--break", "3@7", "run-1"}).trace, "run-1");
  for (const auto& command : describe_commands()) {
    for (const auto& option : command.options) {
      CAPTURE(command.name);
      CAPTURE(option.name);
      CHECK_EQ(option.most_values, option.value.empty() ? 0 : 1);
    }
  }
}

TEST_CASE("ls takes filters") {
  const auto list = parsed<ListOptions>({"ls", "-n", "5", "--since", "2h", "--failed", "make-*"});
  CHECK_EQ(list.most, 5U);
  CHECK(list.failed);
  CHECK_EQ(list.trace, "make-*");
  CHECK(list.filters());
  CHECK_FALSE(parsed<ListOptions>({"ls"}).filters());
  CHECK(parsed<ListOptions>({"ls", "--checkpoints", "run-1"}).checkpoints);
  check_usage_error({"ls", "--checkpoints", "--failed"}, "--checkpoints");
  check_usage_error({"ls", "-n", "none"}, "none");
  check_usage_error({"ls", "--since", "soon"}, "soon");
}

TEST_CASE("times are given as durations, days or clock times") {
  using std::chrono::system_clock;
  setenv("TZ", "UTC", 1);
  tzset();
  const auto now = system_clock::from_time_t(1'795'375'400);  // 2026-11-22 19:23:20
  const auto at = [&](const char* text) { return system_clock::to_time_t(parse_time(text, now).value()); };
  CHECK_EQ(at("2h"), 1'795'375'400 - 7200);
  CHECK_EQ(at("today"), 1'795'305'600 + 0);
  CHECK_EQ(at("yesterday"), 1'795'305'600 - 86400);
  CHECK_EQ(at("2026-11-21 01:02"), 1'795'305'600 - 86400 + 3720);
  CHECK_EQ(at("18:30:05"), 1'795'305'600 + 66605);
  for (const char* wrong : {"", "soon", "2026-13-01", "2026-02-30", "2026-11-31 10:00", "2026-11-22x", "25:00"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_time(wrong, now));
  }
}

TEST_CASE("completions know every command, option and choice") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    CAPTURE(shell);
    const std::string script = parsed<PrintText>({"--completion", shell}).text;
    for (const auto& command : describe_commands()) {
      CHECK(script.find(command.name) != std::string::npos);
      for (const auto& option : command.options) {
        CAPTURE(option.name);
        const std::string name = option.name.substr(option.name.find_first_not_of('-'));
        CHECK(script.find(name) != std::string::npos);
        for (const auto& choice : option.choices) CHECK(script.find(choice) != std::string::npos);
      }
    }
  }
  check_usage_error({"--completion"}, "bash, zsh, fish");
  check_usage_error({"--completion", "csh"}, "csh");
}

TEST_CASE("a whole recording is replayed once only if all of it is") {
  const auto replay = parsed<ReplayOptions>({"replay", "--all", "--once", "--verify", "t"});
  CHECK(replay.once);
  CHECK(replay.all);
  CHECK_EQ(replay.trace, "t");
  CHECK_FALSE(parsed<ReplayOptions>({"replay", "--all"}).once);
  check_usage_error({"replay", "--once", "3"});
  check_usage_error({"replay", "--once", "--break", "3@1"});
  check_usage_error({"replay", "--all", "--once", "--output"});
  check_usage_error({"replay", "--all", "--follow", "--output"}, "--output cannot be combined with --once or --follow");
  check_usage_error({"replay", "3", "--output", "--json"}, "--output and --json");
  check_usage_error({"replay", "--all", "--once", "--until", "3"});
}

TEST_CASE("live takes a message that comes first, and other places with it") {
  const auto live = parsed<LiveOptions>({"live", "run-1", "--deliver", "a@b.2@120=jacobi.3", "--break", "3@7"});
  CHECK_EQ(live.trace, "run-1");
  REQUIRE(live.delivery);
  CHECK_EQ(live.delivery->place.unit, "a@b.2");
  CHECK_EQ(live.delivery->place.event, 120U);
  CHECK_EQ(live.delivery->sender, "jacobi.3");
  CHECK_EQ(live.breaks.size(), 1);
  CHECK(parsed<LiveOptions>({"live", "--deliver", "1@120=3"}).trace.empty());
  for (const char* what : {"1@120", "1@120=", "=3", "1=3", "@120=3", "1@x=3", ""}) {
    CAPTURE(what);
    check_usage_error({"live", "--deliver", what});
  }
  check_usage_error({"live", "--deliver", "1@120=3", "--stopped"});
  check_usage_error({"live", "--deliver", "1@120=3", "run-1", "1@120"});
}

TEST_CASE("replay and plan refuse breakpoints and memory that cannot be meant") {
  for (const char* memory :
       {"3", "3:", "3:0x", "3:1", "3:1+", "3:+1", ":1+1", "3:1+0", "3:1+99999999999", "3:1+1+1", ""}) {
    CAPTURE(memory);
    check_usage_error({"replay", "--break", "3@1", "--memory", memory});
  }
  for (const char* place : {"3", "@1", "3@", "3@-1", "3@0x1", ""}) {
    CAPTURE(place);
    check_usage_error({"replay", "--break", place});
    check_usage_error({"plan", "--break", place});
  }
  check_usage_error({"replay", "--break", "3@1", "--all"});
  check_usage_error({"replay", "run-1", "3", "--break", "3@1"});
  check_usage_error({"replay", "--inspect", "3"});
  check_usage_error({"plan", "--break", "3@1", "--until", "4"});
}

TEST_CASE("replay and plan refuse what cannot be meant") {
  check_usage_error({"replay"});
  check_usage_error({"replay", "a", "b", "c"});
  check_usage_error({"replay", "--all", "trace", "3"});
  check_usage_error({"replay", "--all", "--until", "3"});
  check_usage_error({"replay", "3", "--until", "5"});
  check_usage_error({"replay", "3:1-2", "--until", "5"});
  check_usage_error({"replay", "3:1", "--until", "-5"});
  check_usage_error({"replay", "3:1", "--jobs", "0"});
  check_usage_error({"replay", "3:1", "--jobs", "many"}, "many");
  check_usage_error({"replay", "3:1", "--json=no"}, "json");
  for (const char* unit : {":1", "3:", "3:x", "3:-1", "3:2-1", "3:1-", "3:99999999999", ""}) {
    CAPTURE(unit);
    check_usage_error({"replay", unit});
  }
  check_usage_error({"plan", "3"}, "UNIT:I");
  check_usage_error({"plan", "3:1-2"}, "UNIT:I");
  CHECK_EQ(parsed<PlanOptions>({"plan", "run-1", "3:1"}).trace, "run-1");
}

TEST_CASE("listings take at most a trace") {
  CHECK_FALSE(parsed<ListOptions>({"ls"}).trace);
  CHECK_EQ(parsed<ListOptions>({"ls", "--json", "run-1"}).trace, "run-1");
  CHECK_EQ(parsed<StatsOptions>({"stats"}).trace, "");
  CHECK(parsed<StatsOptions>({"stats", "run-1", "--json"}).json);
  CHECK_EQ(parsed<CheckOptions>({"check", "run-1"}).trace, "run-1");
  CHECK(parsed<CheckOptions>({"check", "--host", "--json"}).host);
  CHECK_EQ(parsed<DumpOptions>({"dump", "x"}).trace_or_unit, "x");
  CHECK_EQ(parsed<DumpOptions>({"dump", "run-1", "3:2"}).what->unit, "3");
  CHECK_EQ(parsed<CatalogOptions>({"catalog"}).trace, "");
  CHECK_EQ(parsed<CatalogOptions>({"catalog", "run-1"}).trace, "run-1");
  CHECK_EQ(parsed<RemoveOptions>({"rm", "a", "b"}).traces, Words{"a", "b"});
  check_usage_error({"rm"});
  check_usage_error({"ls", "a", "b"});
  check_usage_error({"check", "a", "--host"});
  check_usage_error({"dump", "a", "b", "c"});
  check_usage_error({"dump", "a", "3:x"});
  check_usage_error({"stats", "--nonsense"}, "--nonsense");
}

TEST_CASE("start takes a name, and then what record takes") {
  const auto plain =
      parsed<StartOptions>({"start", "--output", "log", "web", "--bound", "2s", "--", "nginx", "-g", "x"});
  CHECK_EQ(plain.name, "web");
  CHECK_EQ(plain.output, "log");
  CHECK_EQ(plain.record, Words{"--bound", "2s", "--", "nginx", "-g", "x"});
  CHECK_EQ(parsed<StartOptions>({"start", "a", "ls", "-l"}).record, Words{"ls", "-l"});
  check_usage_error({"start"}, "name");
  check_usage_error({"start", "a"}, "command");
  check_usage_error({"start", "a/b", "true"}, "a/b");
  check_usage_error({"start", "a", "--nonsense", "true"}, "--nonsense");
  check_usage_error({"start", "a", "--bound", "fast", "true"}, "fast");
  check_usage_error({"start", "a", "--help"}, "command");
  check_usage_error({"start", "a", "--session", "b", "true"}, "--session");
  check_usage_error({"start", "a", "--output", "b", "true"}, "--output");
  CHECK_EQ(parsed<RecordOptions>({"record", "--session", "a", "--output", "b", "true"}).session, "a");
  check_usage_error({"record", "--session", "a b", "true"}, "a b");
}

TEST_CASE("commands for sessions take one session") {
  for (const char* command : {"status", "checkpoint", "follow", "set", "stop"}) {
    CAPTURE(command);
    check_usage_error({command}, "no session");
    check_usage_error({command, "a", "b"}, "'b'");
  }
  CHECK_EQ(parsed<StopOptions>({"stop", "a"}).timeout_s, 10);
  CHECK_EQ(parsed<StopOptions>({"stop", "--timeout", "1m", "bob/a"}).session, "bob/a");
  CHECK_EQ(parsed<SetOptions>({"set", "a", "--bound", "2s"}).bound_s, 2);
  check_usage_error({"set", "a"}, "--bound");
  CHECK_EQ(parsed<FollowOptions>({"follow", "--every", "100ms", "--count", "3", "a"}).count, 3);
  check_usage_error({"ps", "a"}, "'a'");
}

TEST_CASE("checkpoint takes a session, or a place of a trace and a directory") {
  CHECK_EQ(parsed<CheckpointOptions>({"checkpoint", "a@1:2"}).session, "a@1:2");
  const auto interval = parsed<CheckpointOptions>({"checkpoint", "-o", "d", "t", "jacobi.2:4"});
  CHECK(interval.session.empty());
  CHECK_EQ(interval.directory, "d");
  CHECK_EQ(interval.trace, "t");
  CHECK_EQ(interval.interval->unit, "jacobi.2");
  CHECK_EQ(interval.interval->first_interval, 4);
  const auto event = parsed<CheckpointOptions>({"checkpoint", "-o", "d", "--format", "core", "--file-pages", "3@120"});
  CHECK(event.trace.empty());
  CHECK(event.file_pages);
  CHECK_EQ(event.place->unit, "3");
  CHECK_EQ(event.place->event, 120);
  CHECK_FALSE(event.interval);
  const auto all = parsed<CheckpointOptions>({"checkpoint", "-o", "d", "--break", "1@2", "--break", "2@3", "t"});
  CHECK_EQ(all.breaks.size(), 2);
  CHECK_EQ(all.trace, "t");
  const auto images = parsed<CheckpointOptions>({"checkpoint", "-o", "d", "--format", "criu", "3@120"});
  CHECK(images.format == CheckpointOptions::Format::criu);
  CHECK_FALSE(images.live);
  const auto live = parsed<CheckpointOptions>({"checkpoint", "-o", "d", "--live", "t", "3:1"});
  CHECK(live.format == CheckpointOptions::Format::criu);
  CHECK(live.live);
  check_usage_error({"checkpoint", "-o", "d", "--live", "--format", "core", "3:1"}, "--live");
  check_usage_error({"checkpoint", "-o", "d", "--format", "criu", "--file-pages", "3:1"}, "--file-pages");
  check_usage_error({"checkpoint", "--live", "name"}, "-o DIR");
  check_usage_error({"checkpoint", "-o", "d"}, "UNIT@EVENT");
  check_usage_error({"checkpoint", "-o", "", "1:0"}, "empty");
  check_usage_error({"checkpoint", "-o", "d", "t", "1"}, "'1'");
  check_usage_error({"checkpoint", "-o", "d", "t", "1:2-3"}, "'1:2-3'");
  check_usage_error({"checkpoint", "-o", "d", "a", "b", "1:2"}, "UNIT@EVENT");
  check_usage_error({"checkpoint", "-o", "d", "--break", "1@2", "t", "1:2"}, "--break");
  check_usage_error({"checkpoint", "-o", "d", "--format", "elf", "1:2"}, "--format");
  check_usage_error({"checkpoint", "t", "1:2"}, "-o DIR");
  check_usage_error({"checkpoint", "--break", "1@2", "t"}, "--break needs -o");
  check_usage_error({"checkpoint", "--file-pages", "t"}, "--file-pages needs -o");
}

TEST_CASE("service takes a unit, and then options of record") {
  const auto enable = parsed<ServiceOptions>({"service", "--root", "/image/", "enable", "nginx", "--bound", "2s"});
  CHECK(enable.enable);
  CHECK_EQ(enable.root, "/image");
  CHECK_EQ(enable.unit, "nginx.service");
  CHECK_EQ(enable.record, Words{"--bound", "2s"});
  CHECK_FALSE(parsed<ServiceOptions>({"service", "disable", "nginx.service"}).enable);
  check_usage_error({"service"}, "enable or disable");
  check_usage_error({"service", "enable"}, "no unit");
  check_usage_error({"service", "enable", "x.timer"}, "x.timer");
  check_usage_error({"service", "enable", "/a/b.service"}, "path");
  check_usage_error({"service", "enable", "x", "ls"}, "ls");
  check_usage_error({"service", "enable", "x", "-o", "dir"}, "-o");
}

TEST_CASE("what is wrong with an option is said in whole words, of what was typed") {
  check_usage_error({"replay", "--all", ""}, "an argument is empty");
  check_usage_error({"rm", "--", ""}, "an argument is empty");
  check_usage_error({"ls", "-n", "1", "-n", "2"}, "-n: give it once");
  check_usage_error({"snapshot", "one", "-o"}, "-o: its value is missing");
  check_usage_error({"replay", "--break", "1@2", "--memory", "sh"}, "'sh' does not name memory");
  check_usage_error({"dump", "--since", "2026-02-30 00:00"}, "is not a time");
  check_usage_error({"dump", "--since", "2026-02-30"}, "is not a time");
  CHECK(parse_command_line({"dump", "--since", "2028-02-29 00:00"}));
}

TEST_CASE("evaluate refuses options without an effect") {
  check_usage_error({"evaluate", "--synthetic", "ring", "--measure"}, "--measure needs a TRACE");
  check_usage_error({"evaluate", "--set-bound", "3", "--policy", "all"}, "--set-bound");
  check_usage_error({"evaluate", "--approximate", "--policy", "all,replay-set"}, "--approximate");
  check_usage_error({"evaluate", "--seed", "3"}, "--seed needs");
  CHECK(parse_command_line({"evaluate", "--seed", "3", "--skew", "1s"}));
  CHECK(parse_command_line({"evaluate", "--set-bound", "3", "--cores", "2", "--policy", "all,replay-set"}));
}

}  // namespace redrive::command_line_test
