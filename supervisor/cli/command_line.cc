#include "supervisor/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <thread>

#include "base/text.h"
#include "base/units.h"
#include "logstore/policy/policy.h"
#include "supervisor/cli/completion.h"

namespace redrive {

namespace {

// `summary` begins a list's line and, with a full stop, the command's help. `words` says what the synopsis' words are.
struct CommandText {
  const char* name;
  const char* synopsis;
  const char* summary;
  const char* details;
  const char* words;
};
constexpr char kTrace[] = "TRACE: a directory, or a name from 'redrive ls'; the latest if left out\n";
constexpr char kTraceAndUnit[] =
    "TRACE: a directory, or a name from 'redrive ls'; the latest if left out\n"
    "UNIT:  a number or a name from 'redrive ls TRACE'\n"
    "I, J:  intervals of the unit, from 0 on\n";
constexpr std::array<CommandText, 10> kCommands{{
    {"record",
     "redrive record [-o DIR] [--bound D | --virtual] [--tuning RULE] [--policy P] [--critical-path C] "
     "[--checkpoint-period T] [--set-bound N] [--multiplicity M] [--approximate] [--cores J] [--processors N] "
     "[--processors-seen N] [--interception TIER] [--transport T] [--wait] [--] CMD ...",
     "run a command and record it with everything it starts",
     "Options end at the first word that is not one of these. The exit status is the command's.\n"
     "The trace is made in $REDRIVE_TRACE_DIR, or else in ~/.local/share/redrive, if -o does not say where.\n",
     "D, C, T: durations such as 500ms, 2s or 10m\n"},
    {"ls", "redrive ls [-n N] [--since TIME] [--failed] [--json] [PATTERN] | TRACE",
     "list the traces, newest first, or the units and intervals of one",
     "A PATTERN such as 'make-*' selects traces by their names.\n",
     "TRACE: a directory, or a name from 'redrive ls'\n"
     "TIME:  2h (ago), today, yesterday, 2026-11-22, or 2026-11-22 18:30\n"},
    {"replay",
     "redrive replay [--verify] [--output] [--jobs N] [--until EVENT] [--total-order] [--interception TIER] [--json] "
     "[TRACE] UNIT[:I[-J]] | --all [--once] [TRACE] | "
     "--break UNIT@EVENT ... [--memory UNIT:ADDRESS+LENGTH ...] [--inspect] [TRACE]",
     "re-drive intervals of a unit, or all units up to a distributed breakpoint",
     "Without I, all intervals of the unit.\n", kTraceAndUnit},
    {"plan", "redrive plan [--jobs N] [--until EVENT] [--json] [TRACE] UNIT:I | --break UNIT@EVENT ... [TRACE]",
     "show what a replay would have to execute, and how long it would take", "", kTraceAndUnit},
    {"dump", "redrive dump [--json] [TRACE] [UNIT[:I[-J]]]", "print the recorded events",
     "A single word is a TRACE if there is such a trace, and else a UNIT of the latest one.\n", kTraceAndUnit},
    {"stats", "redrive stats [--json] [TRACE]", "count messages, bytes and checkpoints, whole and per unit and channel",
     "", kTrace},
    {"evaluate",
     "redrive evaluate [--policy P,...] [--critical-path C,...] [--checkpoint-period T,...] [--skew S,...] "
     "[--set-bound N,...] [--multiplicity M,...] [--approximate] [--cores J,...] [--measure] [--seed X] "
     "[--json | --csv] "
     "[TRACE] | --synthetic PATTERN [--units U] [--messages K] ...",
     "compare policies on a recorded execution, or on a synthetic one",
     "A row for each policy and each combination of the values given of the parameters that it has.\n"
     "With T or S, checkpoints are placed anew; else they are where they were recorded.\n",
     "TRACE: a directory, or a name from 'redrive ls'; the latest if left out\n"},
    {"prepare",
     "redrive prepare [--bound D] [--tuning RULE] [--policy P] [--set-bound N] [--multiplicity M] [--approximate] "
     "[--cores J] [--isolate UNIT,...] [--jobs N] [--interception TIER] [--json] [TRACE]",
     "make a trace with virtual checkpoints keep a bound, or change the bound",
     "Re-drives what is needed to store checkpoints and messages that the bound needs and the trace lacks.\n"
     "It can be interrupted, and goes on where it was.\n",
     "TRACE: a directory, or a name from 'redrive ls'; the latest if left out\n"
     "UNIT:  a number or a name from 'redrive ls TRACE'\n"},
    {"check", "redrive check [--json] [TRACE] | --host",
     "verify every byte of a trace, or whether this host can record", "", kTrace},
    {"rm", "redrive rm TRACE ...", "remove traces", "If one of the words is no trace, nothing is removed.\n",
     "TRACE: a directory, or a name from 'redrive ls'\n"},
}};

const CommandText* find_text(const std::string& command) {
  const auto* found =
      std::find_if(kCommands.begin(), kCommands.end(), [&](const auto& text) { return command == text.name; });
  return found == kCommands.end() ? nullptr : found;
}

const CommandText& text_of(const std::string& command) {
  const CommandText* text = find_text(command);
  CHECK(text != nullptr);
  return *text;
}

constexpr uint64_t kMaxJobs = 4096;
constexpr uint64_t kMaxPolicyNumber = 1'000'000;

// Usage, what it does, options, words: in this order for each command.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(28); }
  std::string make_description(const CLI::App*) const override { return ""; }
  std::string make_usage(const CLI::App* app, std::string) const override {
    if (app->get_parent() == nullptr) {
      return fmt::format("usage: redrive COMMAND ...\n\n{}\n", app->get_description());
    }
    const CommandText& text = text_of(app->get_name());
    std::string summary = text.summary;
    summary[0] = static_cast<char>(std::toupper(summary[0]));
    return fmt::format("usage: {}\n\n{}.\n{}", text.synopsis, summary, text.details);
  }
  std::string make_positionals(const CLI::App*) const override { return ""; }
  std::string make_option_name(const CLI::Option* option, bool) const override {
    return fmt::format("{}", fmt::join(CLI::detail::split(option->get_name(false, true), ','), ", "));
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_footer(const CLI::App* app) const override {
    if (app->get_parent() == nullptr) {
      return "'redrive COMMAND --help' says more of a command, redrive(1) all there is to say.\n";
    }
    return text_of(app->get_name()).words;
  }
};

// The parser: CLI11's tree and the variables that it fills.
class Parser {
 public:
  Parser();
  Result<Command> parse(std::vector<std::string> words);
  std::vector<CommandDescription> describe() const;

 private:
  void add_record();
  void add_replay();
  void add_listings();
  void add_duration(CLI::App* command, const char* name, const char* value, const char* help,
                    const std::function<void(double)>& set);
  void add_interception(CLI::App* command, bool& in_process);
  void add_evaluate();
  void add_synthetic(CLI::App* evaluate);
  void add_prepare();
  void add_tuning(CLI::App* command, TuningRule& rule);
  void add_policy(CLI::App* command, const std::string& standard, std::string& policy, PolicyParameters& parameters);
  void add_choice(CLI::App* command, const char* name, const char* value, const std::string& help,
                  const std::vector<std::string>& choices, const std::function<void(const std::string&)>& set);
  void add_jobs(CLI::App* command, const char* help);
  void add_until(CLI::App* command);
  void add_break(CLI::App* command, const char* help);
  static void add_flag(CLI::App* command, const char* name, bool& flag, const char* help) {
    command->add_flag(name, flag, help)->disable_flag_override();  // no --flag=value
  }
  void add_json(CLI::App* command) { add_flag(command, "--json", json_, "write JSON"); }
  void take_words(CLI::App* command) { command->add_option("words", words_); }

  Result<Command> finish(const std::string& command);
  Result<Command> finish_record();
  Result<Command> finish_prepare();
  Result<void> check_policy(const std::string& command, const std::string& name,
                            const PolicyParameters& parameters) const;
  Result<Command> finish_replay();
  Result<Command> finish_break();
  Result<Command> finish_plan();
  Result<Command> finish_dump();
  Result<Command> finish_evaluate();
  Result<std::string> only_trace(const std::string& command) const;

  CLI::App app_{"Records unmodified multi-process programs and re-drives any interval of any process."};
  std::vector<std::string> words_;  // positionals
  RecordOptions record_;
  ReplayOptions replay_;
  PrepareOptions prepare_;
  EvaluateOptions evaluate_;
  ListOptions list_;
  SyntheticOptions synthetic_;
  int jobs_ = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::optional<uint64_t> until_;
  std::vector<PlaceSpec> breaks_;
  bool json_ = false;
  bool host_ = false;
  std::map<const CLI::Option*, std::vector<std::string>> choices_;  // of options that take one of a few words
};

Error usage(const std::string& command, const std::string& what) {
  return Error{fmt::format("{}: {} (redrive {} --help)", command, what, command), Status::usage};
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// A number from `least` to `most`, or what is wrong with it.
uint64_t read_number(const char* option, const std::string& text, uint64_t least, uint64_t most) {
  const auto number = parse_number(text);
  if (!number || *number < least || *number > most) {
    throw CLI::ValidationError(option, fmt::format("'{}' is not a number from {} to {}", text, least, most));
  }
  return *number;
}

double read_duration(const char* option, const std::string& text) {
  const auto seconds = parse_duration(text);
  if (!seconds) throw CLI::ValidationError(option, seconds.error().message);
  if (seconds.value() <= 0) throw CLI::ValidationError(option, "must be more than 0");
  return seconds.value();
}

void add_number(CLI::App* command, const char* option, const char* value, uint64_t least, uint64_t most,
                const std::string& help, const std::function<void(uint64_t)>& set) {
  const auto read = [option, least, most, set](const std::string& text) {
    set(read_number(option, text, least, most));
  };
  command->add_option_function<std::string>(option, read, help)->type_name(value);
}

// An option with values between commas.
void add_list(CLI::App* command, const char* option, const char* value, const std::string& help,
              const std::function<void(const std::string&)>& add) {
  const auto read = [add](const std::string& text) {
    for (const auto& word : CLI::detail::split(text, ',')) add(word);
  };
  command->add_option_function<std::string>(option, read, help)->type_name(value);
}

// An option that may be given several times, with one value each.
void add_each(CLI::App* command, const char* option, const char* value, const char* help,
              const std::function<void(const std::string&)>& add) {
  // An option of a vector would take every word that follows.
  const CLI::callback_t read = [add](const CLI::results_t& texts) {
    for (const auto& text : texts) add(text);
    return true;
  };
  command->add_option(option, read, help)->type_name(value)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

Parser::Parser() {
  app_.name("redrive");
  app_.formatter(std::make_shared<HelpFormatter>());
  app_.set_version_flag("--version", std::string("redrive ") + kVersion, "print the version");
  app_.set_help_flag("-h,--help", "print this help");
  app_.add_option("--completion", "print what a shell needs to complete command lines: bash, zsh, fish")
      ->type_name("SHELL");
  app_.require_subcommand(1);
  for (const auto& text : kCommands) app_.add_subcommand(text.name, text.summary)->group("Commands");
  add_record();
  add_replay();
  add_listings();
  add_evaluate();
  add_prepare();
}

void Parser::add_duration(CLI::App* command, const char* name, const char* value, const char* help,
                          const std::function<void(double)>& set) {
  const auto read = [name, set](const std::string& text) { set(read_duration(name, text)); };
  command->add_option_function<std::string>(name, read, help)->type_name(value);
}

// An option whose value is one of a few words.
void Parser::add_choice(CLI::App* command, const char* name, const char* value, const std::string& help,
                        const std::vector<std::string>& choices, const std::function<void(const std::string&)>& set) {
  const auto read = [name, choices, set](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      throw CLI::ValidationError(name, fmt::format("there is no '{}': {}", text, fmt::join(choices, ", ")));
    }
    set(text);
  };
  choices_[command->add_option_function<std::string>(name, read, help)->type_name(value)] = choices;
}

void Parser::add_tuning(CLI::App* command, TuningRule& rule) {
  add_choice(command, "--tuning", "RULE",
             "C from the bound: promise keeps it for every replay, paper takes 1.25 of it (promise)",
             {"promise", "paper"},
             [&rule](const std::string& text) { rule = text == "paper" ? TuningRule::paper : TuningRule::promise; });
}

void Parser::add_record() {
  CLI::App* record = app_.get_subcommand("record");
  record->add_option("-o", record_.directory, "the directory to make for the trace; it must not exist")
      ->type_name("DIR");
  add_duration(record, "--bound", "D", "replays of one interval shall take no longer (10s)",
               [this](double s) { record_.bound_s = s; });
  add_tuning(record, record_.tuning);
  add_duration(record, "--critical-path", "C", "longest chain of re-executed CPU time allowed (0.3 of the bound)",
               [this](double s) { record_.critical_path_s = s; });
  add_duration(record, "--checkpoint-period", "T", "longest CPU time between checkpoints of a unit (C/2)",
               [this](double s) { record_.checkpoint_period_s = s; });
  add_policy(record, record_.policy, record_.policy, record_.parameters);
  add_flag(record, "--virtual", record_.virtual_checkpoints,
           "note checkpoints and keep no messages; redrive prepare does the rest");
  add_number(record, "--processors", "N", 1, CPU_SETSIZE, "processors that the programs may run on (all)",
             [this](uint64_t processors) { record_.processors = static_cast<unsigned>(processors); });
  add_number(record, "--processors-seen", "N", 1, CPU_SETSIZE, "processors that the programs find (those there are)",
             [this](uint64_t processors) { record_.processors_seen = static_cast<unsigned>(processors); });
  add_interception(record, record_.in_process);
  add_flag(record, "--wait", record_.wait, "wait for what the program leaves behind, too");
  const auto transport = [this](const std::string& text) {
    if (text != "sockets" && text != "as-is") {
      throw CLI::ValidationError("--transport", fmt::format("there is no '{}': sockets, as-is", text));
    }
    record_.transport = text == "sockets" ? Transport::sockets : Transport::as_is;
  };
  record
      ->add_option_function<std::string>("--transport", transport,
                                         "how MPI's processes talk: sockets, as-is: as they do otherwise (sockets)")
      ->type_name("T");
}

// `standard`: the policy if none is given.
void Parser::add_policy(CLI::App* command, const std::string& standard, std::string& policy,
                        PolicyParameters& parameters) {
  std::vector<std::string> names;
  for (const auto& known : policies()) names.emplace_back(known.name);
  const auto help = fmt::format("which messages to keep: {} ({})", fmt::join(names, ", "), standard);
  add_choice(command, "--policy", "P", help, names, [&policy](const std::string& text) { policy = text; });
  const auto number = [&](Parameter parameter, const char* value, const char* text) {
    const PolicyNumber& known = policy_number(parameter);
    add_number(command, known.option, value, 1, kMaxPolicyNumber, fmt::format("{} ({})", text, parameters.*known.value),
               [&parameters, &known](uint64_t given) { parameters.*known.value = static_cast<uint32_t>(given); });
  };
  number(kSetBound, "N", "replay-set: most intervals of a replay set");
  number(kMultiplicity, "M", "critical-path-multiplicity: most intervals of one unit");
  add_flag(command, "--approximate", parameters.approximate, "... remember the first and last of a unit only");
  number(kCores, "J", "makespan: intervals executed at once in a replay");
}

void Parser::add_prepare() {
  CLI::App* prepare = app_.get_subcommand("prepare");
  add_duration(prepare, "--bound", "D", "replays of one interval shall take no longer (the trace's, or 10s)",
               [this](double s) { prepare_.bound_s = s; });
  add_tuning(prepare, prepare_.tuning);
  add_policy(prepare, fmt::format("the trace's, or {}", kDefaultPolicy), prepare_.policy, prepare_.parameters);
  add_list(prepare, "--isolate", "UNIT,...", "units that shall replay without the others",
           [this](const std::string& word) { prepare_.isolate.push_back(word); });
  add_jobs(prepare, "intervals executed at once (one per processor)");
  add_interception(prepare, prepare_.in_process);
  add_json(prepare);
  take_words(prepare);
}

Result<Command> Parser::finish_prepare() {
  ASSIGN_OR_RETURN(prepare_.trace, only_trace("prepare"));
  TRY(check_policy("prepare", prepare_.policy, prepare_.parameters));
  prepare_.jobs = jobs_;
  prepare_.json = json_;
  return Command{prepare_};
}

// An option of a policy that was not chosen says that something else was meant.
Result<void> Parser::check_policy(const std::string& command, const std::string& name,
                                  const PolicyParameters& parameters) const {
  unsigned known = 0;
  if (!name.empty()) {
    ASSIGN_OR_RETURN(const PolicyInfo* policy, find_policy(name));
    known = policy->parameters;
  }
  const auto wrong = [&](const std::string& option) {
    return usage(command, name.empty() ? fmt::format("{} wants --policy", option)
                                       : fmt::format("{}: policy {} has no such parameter", option, name));
  };
  for (const PolicyNumber& number : policy_numbers()) {
    if (app_.get_subcommand(command)->count(number.option) > 0 && !(known & number.parameter)) {
      return wrong(number.option);
    }
  }
  if (parameters.approximate && !(known & kApproximate)) return wrong("--approximate");
  return {};
}

Result<Command> Parser::finish_record() {
  if (record_.command.empty()) return usage("record", "the command to record is missing");
  const CLI::App* record = app_.get_subcommand("record");
  if (record_.virtual_checkpoints) {
    for (const char* option : {"--bound", "--policy", "--critical-path", "--tuning"}) {
      if (record->count(option) > 0) return usage("record", fmt::format("{} is chosen later: redrive prepare", option));
    }
    record_.policy = "none";
  }
  TRY(check_policy("record", record_.policy, record_.parameters));
  return Command{record_};
}

void Parser::add_evaluate() {
  CLI::App* evaluate = app_.get_subcommand("evaluate");
  add_list(evaluate, "--policy", "P,...", "the policies to compare (all)", [this](const std::string& word) {
    const auto policy = find_policy(word);
    if (!policy) throw CLI::ValidationError("--policy", policy.error().message);
    evaluate_.policies.push_back(word);
  });
  const auto durations = [&](const char* option, const char* value, const char* help, std::vector<double>& out) {
    add_list(evaluate, option, value, help,
             [option, &out](const std::string& word) { out.push_back(read_duration(option, word)); });
  };
  const auto numbers = [&](const char* option, const char* value, const char* help, std::vector<uint32_t>& out) {
    add_list(evaluate, option, value, help, [option, &out](const std::string& word) {
      out.push_back(static_cast<uint32_t>(read_number(option, word, 1, kMaxPolicyNumber)));
    });
  };
  durations("--critical-path", "C,...", "longest critical path allowed (as recorded)", evaluate_.critical_path_s);
  durations("--checkpoint-period", "T,...", "longest CPU time between checkpoints of a unit (as recorded)",
            evaluate_.checkpoint_period_s);
  durations("--skew", "S,...", "first checkpoints at random times up to S (all at T)", evaluate_.skew_s);
  numbers("--set-bound", "N,...", "replay-set: most intervals of a replay set (16)", evaluate_.set_bound);
  numbers("--multiplicity", "M,...", "critical-path-multiplicity: most intervals of one unit (2)",
          evaluate_.multiplicity);
  add_flag(evaluate, "--approximate", evaluate_.approximate, "... remember the first and last of a unit only");
  numbers("--cores", "J,...", "intervals executed at once (as recorded, or one per processor)", evaluate_.cores);
  add_flag(evaluate, "--measure", evaluate_.measure,
           "re-drive every interval, for policies that keep what the trace holds");
  add_synthetic(evaluate);
  add_json(evaluate);
  add_flag(evaluate, "--csv", evaluate_.csv, "write comma-separated values");
  take_words(evaluate);
}

void Parser::add_synthetic(CLI::App* evaluate) {
  add_choice(evaluate, "--synthetic", "PATTERN",
             fmt::format("instead of a trace: {}", fmt::join(synthetic_patterns(), ", ")), synthetic_patterns(),
             [this](const std::string& text) { synthetic_.pattern = text; });
  add_number(evaluate, "--units", "U", 2, 65536, fmt::format("... of so many units ({})", synthetic_.units),
             [this](uint64_t number) { synthetic_.units = static_cast<uint32_t>(number); });
  add_number(evaluate, "--messages", "K", 1, 100'000'000,
             fmt::format("... with so many messages ({})", synthetic_.messages),
             [this](uint64_t number) { synthetic_.messages = number; });
  add_number(evaluate, "--seed", "X", 0, UINT64_MAX, "of what is random (1)",
             [this](uint64_t number) { evaluate_.seed = synthetic_.seed = number; });
}

Result<Command> Parser::finish_evaluate() {
  const CLI::App* evaluate = app_.get_subcommand("evaluate");
  if (json_ && evaluate_.csv) return usage("evaluate", "--json or --csv, not both");
  evaluate_.json = json_;
  ASSIGN_OR_RETURN(evaluate_.trace, only_trace("evaluate"));
  evaluate_.jobs = jobs_;
  if (!synthetic_.pattern.empty()) {
    if (!words_.empty()) return usage("evaluate", "--synthetic takes no TRACE");
    evaluate_.synthetic = synthetic_;
  } else if (evaluate->count("--units") + evaluate->count("--messages") > 0) {
    return usage("evaluate", "--units and --messages go with --synthetic");
  }
  return Command{evaluate_};
}

void Parser::add_interception(CLI::App* command, bool& in_process) {
  add_choice(command, "--interception", "TIER", "how system calls are seen: in-process, stops (in-process)",
             {"in-process", "stops"}, [&in_process](const std::string& text) { in_process = text == "in-process"; });
}

void Parser::add_jobs(CLI::App* command, const char* help) {
  add_number(command, "--jobs", "N", 1, kMaxJobs, help, [this](uint64_t jobs) { jobs_ = static_cast<int>(jobs); });
}

void Parser::add_until(CLI::App* command) {
  const auto read = [this](const std::string& text) {
    until_ = parse_number(text);
    if (!until_) throw CLI::ValidationError("--until", fmt::format("'{}' is not an event number", text));
  };
  command->add_option_function<std::string>("--until", read, "stop before this event of the one interval asked for")
      ->type_name("EVENT");
}

void Parser::add_break(CLI::App* command, const char* help) {
  add_each(command, "--break", "UNIT@EVENT", help, [this](const std::string& text) {
    const auto place = parse_place_spec(text);
    if (!place) throw CLI::ValidationError("--break", place.error().message);
    breaks_.push_back(*place);
  });
}

void Parser::add_replay() {
  CLI::App* replay = app_.get_subcommand("replay");
  add_flag(replay, "--all", replay_.all, "every interval of every unit");
  add_flag(replay, "--once", replay_.once,
           "with --all: execute every interval once, all together, not each with its set");
  add_flag(replay, "--verify", replay_.verify, "compare registers and memory with the next checkpoint");
  add_flag(replay, "--output", replay_.output, "show what the unit wrote to standard output and error, and no table");
  add_jobs(replay, "intervals executed at once (one per processor)");
  add_until(replay);
  add_flag(replay, "--total-order", replay_.total_order, "receives of all units happen in the recorded order");
  add_break(replay, "stop all units where this one stands before EVENT, and show them; may be repeated");
  const auto memory = [this](const std::string& text) {
    const auto spec = parse_memory_spec(text);
    if (!spec) throw CLI::ValidationError("--memory", spec.error().message);
    replay_.memory.push_back(*spec);
  };
  add_each(replay, "--memory", "UNIT:ADDRESS+LENGTH", "with --break: show this memory", memory);
  add_flag(replay, "--inspect", replay_.inspect, "with --break: read commands from standard input there");
  add_interception(replay, replay_.in_process);
  add_json(replay);
  take_words(replay);

  CLI::App* plan = app_.get_subcommand("plan");
  add_jobs(plan, "predict for so many intervals executed at once (one per processor)");
  add_until(plan);
  add_break(plan, "plan the distributed breakpoint where this unit stands before EVENT; may be repeated");
  add_json(plan);
  take_words(plan);
}

void Parser::add_listings() {
  for (const char* name : {"ls", "dump", "stats", "check"}) {
    CLI::App* command = app_.get_subcommand(name);
    add_json(command);
    take_words(command);
  }
  CLI::App* list = app_.get_subcommand("ls");
  add_number(list, "-n", "N", 1, UINT32_MAX, "no more than so many traces",
             [this](uint64_t number) { list_.most = number; });
  const auto since = [this](const std::string& text) {
    const auto time = parse_time(text, std::chrono::system_clock::now());
    if (!time) throw CLI::ValidationError("--since", time.error().message);
    list_.since = time.value();
  };
  list->add_option_function<std::string>("--since", since, "traces begun at this time or later")->type_name("TIME");
  add_flag(list, "--failed", list_.failed, "traces of programs that ended with a status other than 0");
  add_flag(app_.get_subcommand("check"), "--host", host_, "tell whether this host can record, and if not, why");
  take_words(app_.get_subcommand("rm"));
}

// Cuts the recorded command off `words`: all from the first word that is neither an option nor the value of one. CLI11
// would take a misspelt option for the command's name.
std::vector<std::string> split_off_command(const CLI::App& record, std::vector<std::string>& words) {
  auto at = words.begin() + 1;
  while (at != words.end() && is_option(*at) && *at != "--") {
    const CLI::Option* option = record.get_option_no_throw(*at);
    const bool has_value = option != nullptr && option->get_items_expected_max() > 0;
    at += has_value && at + 1 != words.end() ? 2 : 1;
  }
  std::vector<std::string> command(at, words.end());
  words.erase(at, words.end());
  if (!command.empty() && command.front() == "--") command.erase(command.begin());
  return command;
}

Result<Command> Parser::parse(std::vector<std::string> words) {
  if (words.empty()) return Error{"which command? (redrive --help lists them)", Status::usage};
  const std::string name = words.front();
  if (name == "--completion") {
    ASSIGN_OR_RETURN(const std::string script, completion_script(words.size() == 2 ? words[1] : "", describe()));
    return Command{PrintText{script}};
  }
  if (is_option(name)) {
    if (name != "--help" && name != "-h" && name != "--version") {
      return Error{fmt::format("there is no option '{}' here (redrive --help)", name), Status::usage};
    }
  } else if (find_text(name) == nullptr) {
    return Error{fmt::format("there is no command '{}' (redrive --help lists them)", name), Status::usage};
  }
  if (name == "record") record_.command = split_off_command(*app_.get_subcommand("record"), words);

  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app_.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return Command{PrintText{app_.help()}};
  } catch (const CLI::CallForVersion& version) {
    return Command{PrintText{std::string(version.what()) + "\n"}};
  } catch (const CLI::ExtrasError& error) {
    const std::string text = error.what();  // "The following argument was not expected: --x"
    return usage(name, fmt::format("there is no option '{}'", text.substr(text.find(": ") + 2)));
  } catch (const CLI::ParseError& error) {
    return usage(name, error.what());
  }
  return finish(name);
}

Result<std::string> Parser::only_trace(const std::string& command) const {
  if (words_.size() > 1) return usage(command, fmt::format("one TRACE is enough: '{}' is too much", words_[1]));
  return words_.empty() ? std::string() : words_[0];
}

Result<Command> Parser::finish(const std::string& command) {
  if (command == "replay") return finish_replay();
  if (command == "plan") return finish_plan();
  if (command == "dump") return finish_dump();
  if (command == "evaluate") return finish_evaluate();
  if (command == "record") return finish_record();
  if (command == "prepare") return finish_prepare();
  if (command == "rm") {
    if (words_.empty()) return usage(command, "name the traces to remove");
    return Command{RemoveOptions{words_}};
  }
  ASSIGN_OR_RETURN(const std::string trace, only_trace(command));
  if (command == "ls") {
    list_.json = json_;
    if (!words_.empty()) list_.trace = trace;
    return Command{list_};
  }
  if (command == "stats") return Command{StatsOptions{trace, json_}};
  CHECK(command == "check");
  if (!host_) return Command{CheckOptions{trace, json_}};
  if (!words_.empty()) return usage(command, "--host takes no TRACE");
  return Command{CheckHostOptions{json_}};
}

Result<Command> Parser::finish_replay() {
  replay_.jobs = jobs_;
  replay_.until = until_;
  replay_.json = json_;
  if (!breaks_.empty()) return finish_break();
  if (!replay_.memory.empty() || replay_.inspect) return usage("replay", "--memory and --inspect go with --break");
  if (replay_.all) {
    if (until_) return usage("replay", "--until wants one interval, not --all");
    if (words_.size() > 1) return usage("replay", "--all takes a TRACE and no UNIT");
    if (replay_.once && replay_.output) return usage("replay", "--output or --once, not both");
    if (!words_.empty()) replay_.trace = words_[0];
    return Command{replay_};
  }
  if (replay_.once) return usage("replay", "--once goes with --all");
  if (words_.empty() || words_.size() > 2) return usage("replay", "wants [TRACE] UNIT[:I[-J]], or --all");
  ASSIGN_OR_RETURN(const UnitSpec spec, parse_unit_spec(words_.back()));
  if (until_ && !spec.single()) return usage("replay", "--until wants one interval: UNIT:I");
  if (words_.size() == 2) replay_.trace = words_[0];
  replay_.unit_text = spec.unit;
  replay_.first_interval = spec.first_interval;
  replay_.last_interval = spec.last_interval;
  return Command{replay_};
}

Result<Command> Parser::finish_break() {
  if (replay_.all || replay_.once || until_ || replay_.output) {
    return usage("replay", "--break goes without --all, --once, --until and --output");
  }
  if (words_.size() > 1) return usage("replay", "--break takes a TRACE and no UNIT");
  if (replay_.inspect && json_) return usage("replay", "--inspect or --json, not both");
  if (!words_.empty()) replay_.trace = words_[0];
  replay_.breaks = breaks_;
  return Command{replay_};
}

Result<Command> Parser::finish_plan() {
  if (!breaks_.empty()) {
    if (until_) return usage("plan", "--break goes without --until");
    if (words_.size() > 1) return usage("plan", "--break takes a TRACE and no UNIT");
    return Command{PlanOptions{words_.empty() ? "" : words_[0], {}, jobs_, std::nullopt, breaks_, json_}};
  }
  if (words_.empty() || words_.size() > 2) return usage("plan", "wants [TRACE] UNIT:I");
  ASSIGN_OR_RETURN(const UnitSpec spec, parse_unit_spec(words_.back()));
  if (!spec.single()) return usage("plan", fmt::format("'{}' does not name one interval: write UNIT:I", words_.back()));
  return Command{PlanOptions{words_.size() == 2 ? words_[0] : "", spec, jobs_, until_, {}, json_}};
}

Result<Command> Parser::finish_dump() {
  if (words_.size() > 2) return usage("dump", "wants [TRACE] [UNIT[:I[-J]]]");
  DumpOptions dump;
  dump.json = json_;
  if (words_.size() == 1) dump.trace_or_unit = words_[0];
  if (words_.size() == 2) {
    dump.trace = words_[0];
    ASSIGN_OR_RETURN(dump.what, parse_unit_spec(words_[1]));
  }
  return Command{dump};
}

std::vector<CommandDescription> Parser::describe() const {
  std::vector<CommandDescription> all;
  for (const auto& text : kCommands) {
    CommandDescription description{text.name, text.synopsis, text.summary, {}};
    for (const CLI::Option* option : app_.get_subcommand(text.name)->get_options()) {
      const bool takes_value = option->get_items_expected_max() > 0;
      OptionDescription described{"",
                                  takes_value ? option->get_type_name() : "",
                                  option->get_description(),
                                  option->get_items_expected_max(),
                                  {}};
      if (const auto known = choices_.find(option); known != choices_.end()) described.choices = known->second;
      for (const auto& name : option->get_snames()) (description.options.emplace_back(described)).name = "-" + name;
      for (const auto& name : option->get_lnames()) (description.options.emplace_back(described)).name = "--" + name;
    }
    std::erase_if(description.options,
                  [](const auto& option) { return option.name == "-h" || option.name == "--help"; });
    all.push_back(description);
  }
  return all;
}

}  // namespace

Result<Command> parse_command_line(std::vector<std::string> words) { return Parser().parse(std::move(words)); }

std::vector<CommandDescription> describe_commands() { return Parser().describe(); }

}  // namespace redrive
