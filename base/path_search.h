// Looks for programs as a shell does.
#pragma once

#include <string>

namespace redrive {

// Whether this process may execute the file.
bool is_executable_file(const std::string& path);
// The path of a program in the directories of PATH, by the rules of execvp(3): an empty directory is the current one,
// and if no file with this name may be executed, the first that is there counts. Empty if there is none.
std::string find_in_path(const std::string& name);

}  // namespace redrive
