#include "base/procfs.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/brief_file.h"
#include "base/text.h"

namespace redrive {
namespace {

// The entries of a directory that are numbers.
std::vector<int> numbers_in(const std::string& directory) {
  std::vector<int> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (const auto number = parse_number(it->path().filename().string())) numbers.push_back(static_cast<int>(*number));
  }
  return numbers;
}

}  // namespace

Result<void> check_procfs() {
  std::error_code failure;
  const std::string self = std::filesystem::read_symlink("/proc/self", failure).string();
  if (self == std::to_string(getpid())) return {};
  // In a namespace that /proc does not show, the link leads nowhere.
  struct statfs mounted {};
  constexpr decltype(mounted.f_type) kProcfs = PROC_SUPER_MAGIC;
  if (failure && (statfs("/proc", &mounted) != 0 || mounted.f_type != kProcfs)) {
    return Error{"/proc is not mounted; mount -t proc proc /proc"};
  }
  return Error{"/proc is not that of this PID namespace; mount -t proc proc /proc"};
}

std::string proc_path(pid_t pid, std::string_view name) { return fmt::format("/proc/{}/{}", pid, name); }

std::string descriptor_path(pid_t pid, uint64_t descriptor) {
  return fmt::format("/proc/{}/fd/{}", pid, static_cast<int>(descriptor));
}

std::string own_descriptor_path(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

ProcValues::ProcValues(const std::string& path) : lines_("\n" + read_briefly(path)) {}

std::string_view ProcValues::text(std::string_view name) const {
  const std::string start = fmt::format("\n{}:", name);
  const size_t at = lines_.find(start);
  if (at == std::string::npos) return {};
  const size_t from = std::min(lines_.find_first_not_of(" \t", at + start.size()), lines_.size());
  const size_t end = std::min(lines_.find('\n', from), lines_.size());
  return std::string_view(lines_).substr(from, end - from);
}

uint64_t ProcValues::number(std::string_view name, int base) const {
  const std::string_view value = text(name);
  uint64_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number, base);
  return number;
}

ProcValues proc_status(pid_t pid) { return ProcValues(proc_path(pid, "status")); }

std::string proc_stat_field(pid_t pid, int number) {
  const std::string line = read_briefly(proc_path(pid, "stat"));
  // The command's name, the second field, may hold anything.
  size_t at = line.rfind(')');
  if (at == std::string::npos) return {};
  for (int field = 2; field < number && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at == std::string::npos) return {};
  return line.substr(at + 1, line.find_first_of(" \n", at + 1) - at - 1);
}

std::string proc_namespace(pid_t pid, std::string_view kind) {
  std::error_code gone;
  return std::filesystem::read_symlink(proc_path(pid, fmt::format("ns/{}", kind)), gone);
}

uint64_t foreign_ipc_namespace(pid_t pid) {
  struct stat own {};
  struct stat theirs {};
  const bool known =
      stat(proc_path(getpid(), "ns/ipc").c_str(), &own) == 0 && stat(proc_path(pid, "ns/ipc").c_str(), &theirs) == 0;
  return known && theirs.st_ino != own.st_ino ? theirs.st_ino : 0;
}

std::vector<int> own_descriptors() { return numbers_in("/proc/self/fd"); }

std::vector<pid_t> proc_threads(pid_t pid) { return numbers_in(proc_path(pid, "task")); }

}  // namespace redrive
