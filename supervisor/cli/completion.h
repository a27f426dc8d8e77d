// Completion of redrive's command line in bash, zsh and fish: scripts made of what the parser knows.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/cli/command_line.h"

namespace redrive {

// `shell`: one of those three, or the error is Status::usage. Words that are no options complete as names of traces and
// units, those of record's command as that command does.
Result<std::string> completion_script(const std::string& shell, const std::vector<CommandDescription>& commands);

}  // namespace redrive
