// Where traces live and what they are called.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {
namespace {

constexpr char kLatest[] = "latest";

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool is_trace(const std::string& path) { return disk().exists(TraceFiles{path}.journal()); }

// N of "NAME-N", 0 for any other name.
uint64_t number_of(const std::string& text, const std::string& name) {
  if (!text.starts_with(name + "-")) return 0;
  const char* first = text.data() + name.size() + 1;
  const char* last = text.data() + text.size();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(first, last, number);
  return error == std::errc() && end == last ? number : 0;
}

std::vector<std::string> directories_in(const std::string& home) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(home, error), end; !error && it != end; it.increment(error)) {
    const std::string entry = it->path().filename();
    if (entry != kLatest && is_directory(it->path())) names.push_back(entry);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string trace_home() {
  if (const auto home = environment("REDRIVE_TRACE_DIR"); !home.empty()) return home;
  if (const auto data = environment("XDG_DATA_HOME"); !data.empty()) return data + "/redrive";
  return environment("HOME") + "/.local/share/redrive";
}

Result<std::string> new_trace_directory(const std::string& program) {
  const std::string home = trace_home();
  std::error_code error;
  std::filesystem::create_directories(home, error);
  if (error) return Error{"cannot make directory " + home + ": " + error.message()};
  std::string name = std::filesystem::path(program).filename();
  if (name.empty() || name == "." || name == "..") name = "trace";
  uint64_t highest = 0;
  for (const auto& entry : directories_in(home)) highest = std::max(highest, number_of(entry, name));
  return home + "/" + name + "-" + std::to_string(highest + 1);
}

// A symbolic link cannot be changed, so one is made beside it and renamed over it: `latest` always names a trace.
Result<void> set_latest(const std::string& directory) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(directory, error);
  if (error) return Error{"cannot find " + directory + ": " + error.message()};
  const std::filesystem::path home = trace_home();
  std::filesystem::create_directories(home, error);
  if (error) return Error{"cannot make directory " + home.string() + ": " + error.message()};
  auto target = std::filesystem::relative(absolute, home, error);
  if (error || target.empty()) target = absolute;
  const std::string link = home / kLatest;
  const std::string fresh = link + "." + std::to_string(::getpid()) + ".tmp";
  ::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) != 0) return errno_error("cannot make link " + fresh);
  if (::rename(fresh.c_str(), link.c_str()) != 0) {
    const int reason = errno;
    ::unlink(fresh.c_str());
    return errno_error("cannot replace link " + link, reason);
  }
  return {};
}

Result<std::string> find_trace(const std::string& text) {
  const std::string home = trace_home();
  if (text.empty()) {
    std::error_code error;
    const auto latest = std::filesystem::canonical(home + "/" + kLatest, error);
    if (error) return Error{"no latest trace in " + home + ": record one with `redrive record`, or name a trace"};
    return latest.string();
  }
  if (is_trace(text)) return text;
  const std::string below = home + "/" + text;
  if (is_trace(below)) return below;
  if (is_directory(text)) return Error{text + " is no trace: it has no file 'journal'"};
  return Error{"no trace '" + text + "', neither as a path nor in " + home + "; `redrive ls` lists them"};
}

std::vector<std::string> list_traces() {
  const std::string home = trace_home();
  std::vector<std::string> names = directories_in(home);
  std::erase_if(names, [&](const std::string& name) { return !is_trace(home + "/" + name); });
  return names;
}

}  // namespace redrive
