#include "supervisor/record/tracees/proc_file.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/procfs.h"
#include "base/text.h"

namespace redrive {

std::optional<ProcFile> ProcFile::behind(pid_t tid, uint64_t descriptor, std::string_view name) {
  const std::string link = descriptor_path(tid, descriptor);
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink(link, error);
  if (error || path.filename() != name) return {};
  // .../PID/NAME or .../PID/task/TID/NAME
  const std::vector<std::string> parts(path.begin(), path.end());
  const size_t count = parts.size();
  if (count < 2) return {};
  const bool of_thread = count >= 4 && parts[count - 3] == "task";
  const auto process = parse_number(parts[count - (of_thread ? 4 : 2)]);
  const auto thread = parse_number(parts[count - 2]);
  struct statfs system {};
  struct stat file {
  }, own{};
  if (!process || !thread || statfs(link.c_str(), &system) != 0 || system.f_type != PROC_SUPER_MAGIC) return {};
  if (stat(link.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return {};
  const bool ours = stat("/proc", &own) == 0 && own.st_dev == file.st_dev;
  return ProcFile{static_cast<pid_t>(*process), static_cast<pid_t>(*thread), ours};
}

}  // namespace redrive
