// Completion of redrive's command line in bash, zsh and fish: scripts made from the parser's description.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/cli/command_line.h"

namespace redrive {

// `shell`: one of those three, otherwise the error has Status::usage. Words that are not options complete as names of
// traces and units, and those of record's command as that command's arguments do.
Result<std::string> completion_script(const std::string& shell, const std::vector<CommandDescription>& commands);

}  // namespace redrive
