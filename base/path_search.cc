#include "base/path_search.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace redrive {

bool is_executable_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string find_in_path(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/local/bin:/usr/bin:/bin";
  std::string not_executable;
  for (;;) {
    const size_t end = rest.find(':');
    const std::string directory(rest.substr(0, end));
    const std::string candidate = directory.empty() ? "./" + name : directory + "/" + name;
    if (is_executable_file(candidate)) return candidate;
    const bool there = access(candidate.c_str(), F_OK) == 0 || errno == EACCES;
    if (there && not_executable.empty()) not_executable = candidate;
    if (end == std::string_view::npos) return not_executable;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace redrive
