// The command line: words in, one Command out. It decides nothing that needs a trace, and prints nothing.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "supervisor/commands.h"

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

// What the parser knows, for the test that the man page and --help say the same.
struct CommandDescription {
  std::string name;
  std::string synopsis;              // "redrive ls [--json] [TRACE]"
  std::vector<std::string> options;  // "-o", "--bound", ...; without --help
};
std::vector<CommandDescription> describe_commands();

}  // namespace redrive
