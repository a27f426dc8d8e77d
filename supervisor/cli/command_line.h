// The command line: words in, one Command out. It decides nothing that needs a trace, and prints nothing.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "supervisor/cli/commands.h"

namespace redrive {

inline constexpr char kVersion[] = "0.1.0";

// --help and --version: what to print, with status 0.
struct PrintText {
  std::string text;
};
struct CheckHostOptions {
  bool json = false;
};

using Command =
    std::variant<PrintText, RecordOptions, ListOptions, ReplayOptions, PlanOptions, DumpOptions, StatsOptions,
                 EvaluateOptions, PrepareOptions, CheckOptions, CheckHostOptions, RemoveOptions>;

// `words` without the program's name. Every error is Status::usage and one line.
Result<Command> parse_command_line(std::vector<std::string> words);

// What the parser knows: completions are made of it, and a test compares the man page and --help with it.
struct OptionDescription {
  std::string name;   // "-o", "--bound"; never --help
  std::string value;  // "DIR", "D"; empty if it takes none
  std::string help;
  int most_values = 0;               // words that it may take each time it is given
  std::vector<std::string> choices;  // its values, if there are only these
};
struct CommandDescription {
  std::string name;
  std::string synopsis;  // "redrive ls [--json] [TRACE]"
  std::string summary;
  std::vector<OptionDescription> options;
};
std::vector<CommandDescription> describe_commands();

}  // namespace redrive
