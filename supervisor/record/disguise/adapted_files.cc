#include "supervisor/record/disguise/adapted_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/fd.h"
#include "base/procfs.h"
#include "base/text.h"

namespace redrive {
namespace {

constexpr char kProcessors[] = "/sys/devices/system/cpu/";

// The contents of a file; empty if it is not in procfs or sysfs.
std::string kernel_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct statfs system {};
  if (!file || fstatfs(file.get(), &system) != 0) return {};
  if (system.f_type != PROC_SUPER_MAGIC && system.f_type != SYSFS_MAGIC) return {};
  std::string text;
  char block[16384];
  for (ssize_t n = 0; (n = read(file.get(), block, sizeof block)) > 0;) text.append(block, static_cast<size_t>(n));
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The value in a line of a status file; empty if it has no such line.
std::string field(const std::string& status, const std::string& name) {
  const size_t at = ("\n" + status).find("\n" + name + ":\t");
  if (at == std::string::npos) return {};
  const size_t start = at + name.size() + 2;
  return status.substr(start, status.find('\n', start) - start);
}

// As the kernel writes them: "0-2,5", and "ff,ffffffff" with as many digits as the processors that it knows need.
std::string list_of(const cpu_set_t& set) {
  std::string text;
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &set)) continue;
    const size_t first = i;
    while (i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set)) ++i;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (i > first) text += fmt::format("-{}", i);
  }
  return text;
}

std::string mask_of(const cpu_set_t& set, size_t digits) {
  std::string text;
  for (size_t digit = digits; digit-- > 0;) {
    unsigned value = 0;
    for (size_t bit = 0; bit < 4; ++bit) value |= (CPU_ISSET(digit * 4 + bit, &set) ? 1U : 0U) << bit;
    text += fmt::format("{:x}", value);
    if (digit && digit % 8 == 0) text += ',';
  }
  return text;
}

size_t digits_for(const cpu_set_t& set, const std::string& mask) {
  auto digits = static_cast<size_t>(std::count_if(mask.begin(), mask.end(), [](char c) { return c != ','; }));
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) digits = std::max(digits, i / 4 + 1);
  }
  return digits;
}

// proc_pid_status(5), of a thread that is recorded.
std::string adapted_status(const AdaptedFiles::Subject& subject, const std::string& status, const std::string& own) {
  const Confinement& its = subject.confinement;
  std::string text;
  for (const std::string& line : lines_of(status)) {
    const std::string name = line.substr(0, line.find(':'));
    std::optional<std::string> value;
    if (name == "TracerPid") value = "0";
    if (name == "State" && field(status, name).starts_with("t")) {
      value = subject.is_stopped ? "T (stopped)" : "R (running)";
    }
    if (name == "NoNewPrivs") value = its.no_new_privileges() ? "1" : "0";
    if (name == "Seccomp") value = its.strict() ? "1" : its.filters() ? "2" : field(own, name);
    if (name == "Seccomp_filters")
      value = fmt::format("{}", parse_number(field(own, name)).value_or(0) + its.filters());
    if (name == "Cpus_allowed") {
      value = mask_of(subject.processors, digits_for(subject.processors, field(status, name)));
    }
    if (name == "Cpus_allowed_list") value = list_of(subject.processors);
    text += value ? name + ":\t" + *value : line;
    text += '\n';
  }
  return text;
}

// proc_stat(5): a line for each processor; those that do not exist have done nothing.
std::string adapted_stat(const std::string& stat, size_t processors) {
  std::string text;
  size_t next = 0;
  const auto add_others = [&] {
    for (; next < processors; ++next) text += fmt::format("cpu{} 0 0 0 0 0 0 0 0 0 0\n", next);
  };
  for (const std::string& line : lines_of(stat)) {
    const bool one = line.starts_with("cpu") && line.size() > 3 && line[3] != ' ';
    if (one && next++ >= processors) continue;
    if (!one && !line.starts_with("cpu")) add_others();
    text += line + "\n";
  }
  return text;
}

// proc_cpuinfo(5): a paragraph for each processor.
std::string adapted_cpuinfo(const std::string& cpuinfo, size_t processors) {
  std::vector<std::string> paragraphs;
  for (size_t at = 0; at < cpuinfo.size();) {
    const size_t end = std::min(cpuinfo.find("\n\n", at), cpuinfo.size());
    paragraphs.push_back(cpuinfo.substr(at, end - at));
    at = end + 2;
  }
  std::string text;
  for (size_t i = 0; i < processors && !paragraphs.empty(); ++i) {
    for (const std::string& line : lines_of(paragraphs[i % paragraphs.size()])) {
      text += line.starts_with("processor") ? fmt::format("processor\t: {}\n", i) : line + "\n";
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::optional<std::string> AdaptedFiles::contents(pid_t tid, uint64_t descriptor, const Find& find) const {
  const std::string file = descriptor_path(tid, descriptor);
  if (processors_.count()) {
    std::error_code error;
    const std::string path = std::filesystem::read_symlink(file, error);
    if (auto text = of_processors(file, path)) return text;
  }
  const auto status = ProcFile::behind(tid, descriptor, "status");
  const auto subject = status ? find(*status) : std::nullopt;
  if (!subject) return {};
  const std::string text = kernel_file(file);
  if (text.empty()) return {};
  return adapted_status(*subject, text, kernel_file(proc_path(getpid(), "status")));
}

// `path`: as the recorder sees it, which may have another root than the program.
std::optional<std::string> AdaptedFiles::of_processors(const std::string& file, const std::string& path) const {
  const size_t at = path.find(kProcessors);
  const std::string name = at == std::string::npos ? "" : path.substr(at + sizeof kProcessors - 1);
  const bool is_list = name == "online" || name == "present" || name == "possible";
  const bool is_stat = path.ends_with("/proc/stat"), is_cpuinfo = path.ends_with("/proc/cpuinfo");
  if (!is_list && !is_stat && !is_cpuinfo) return {};
  const std::string text = kernel_file(file);
  if (text.empty()) return {};
  if (is_stat) return adapted_stat(text, processors_.count());
  if (is_cpuinfo) return adapted_cpuinfo(text, processors_.count());
  return list_of(processors_.all()) + "\n";
}

}  // namespace redrive
