// The command line: words in, one command out, ready to run. It decides nothing that needs a trace, and prints nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/cli/command.h"

namespace redrive {

inline constexpr char kVersion[] = "0.1.0";

// The texts that --help, --version and --completion print, with status 0.
struct PrintText {
  std::string text;
};

// `words` does not contain the program's name. Every error has Status::usage and one line.
Result<std::unique_ptr<Command>> parse_command_line(std::vector<std::string> words);

struct CommandDescription {
  std::string name;
  std::string synopsis;  // "redrive ls [--json] [TRACE]"
  std::string summary;
  std::vector<Names> names;  // of the words that it takes
  std::vector<OptionDescription> options;
};
std::vector<CommandDescription> describe_commands();

}  // namespace redrive
