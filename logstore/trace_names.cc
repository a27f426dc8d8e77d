// Where traces are kept and what they are called.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "logstore/home.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {
namespace {

constexpr char kLatest[] = "latest";

bool is_trace(const std::string& path) {
  const TraceFiles files{named_directory(path)};
  return disk().exists(files.journal()) || disk().exists(files.volumes());
}

// N of "NAME-N", 0 for any other name.
uint64_t number_of(const std::string& text, const std::string& name) {
  if (!text.starts_with(name + "-")) return 0;
  const char* first = text.data() + name.size() + 1;
  const char* last = text.data() + text.size();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(first, last, number);
  return error == std::errc() && end == last ? number : 0;
}

// None if there is no such directory.
Result<std::vector<std::string>> directories_in(const std::string& home) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(home, error), end; !error && it != end; it.increment(error)) {
    const std::string entry = it->path().filename();
    if (entry != kLatest && is_directory(it->path().string())) names.push_back(entry);
  }
  if (error && error != std::errc::no_such_file_or_directory) return Error{home + ": " + error.message()};
  std::sort(names.begin(), names.end());
  return names;
}

// The longest part of a program's name that a trace is called by. More follows: "-12.removing".
std::string shortened(std::string name) {
  constexpr size_t kLongest = 200;
  if (name.size() <= kLongest) return name;
  size_t size = kLongest;
  while (size > 0 && (static_cast<unsigned char>(name[size]) & 0xc0) == 0x80) --size;  // not within a character
  name.resize(size);
  return name;
}

constexpr char kElsewhere[] = "; set REDRIVE_TRACE_DIR, or name a directory";

}  // namespace

std::string trace_home() { return home_for(kTraceHome); }

Error no_trace_home() {
  return Error{std::string("nowhere to keep traces: HOME is not set and this user has no home directory") + kElsewhere};
}

Result<std::string> make_trace_home() {
  const std::string home = trace_home();
  if (home.empty()) return no_trace_home();
  std::error_code error;
  std::filesystem::create_directories(home, error);
  if (error) return Error{"cannot make directory " + home + ": " + error.message() + kElsewhere};
  return home;
}

Result<Fd> lock_trace_names() {
  ASSIGN_OR_RETURN(const std::string home, make_trace_home());
  Fd lock(open(home.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return errno_error(home);
  while (flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return lock;
}

Result<std::string> new_trace_directory(const std::string& program) {
  ASSIGN_OR_RETURN(const std::string home, make_trace_home());
  std::string name = shortened(std::filesystem::path(program).filename());
  if (name.empty() || name == "." || name == "..") name = "trace";
  ASSIGN_OR_RETURN(const auto entries, directories_in(home));
  uint64_t highest = 0;
  for (const auto& entry : entries) highest = std::max(highest, number_of(entry, name));
  return fmt::format("{}/{}-{}", home, name, highest + 1);
}

// A symbolic link cannot be changed, so another one is made and renamed over it. `latest` always names a trace.
Result<void> set_latest(const std::string& directory) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(directory, error);
  if (error) return Error{"cannot find " + directory + ": " + error.message()};
  ASSIGN_OR_RETURN(const std::filesystem::path home, make_trace_home());
  auto target = std::filesystem::relative(absolute, home, error);
  if (error || target.empty()) target = absolute;
  const std::string link = home / kLatest;
  const std::string fresh = fmt::format("{}.{}.tmp", link, ::getpid());
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
  if (!text.empty() && is_trace(text)) return text;
  const std::string home = trace_home();
  if (home.empty()) return no_trace_home();
  if (text.empty()) {
    std::error_code error;
    const auto latest = std::filesystem::canonical(home + "/" + kLatest, error);
    if (error) return Error{"no latest trace in " + home + ": record one with `redrive record`, or name a trace"};
    return latest.string();
  }
  const std::string below = home + "/" + text;
  if (is_trace(below)) return below;
  if (is_directory(text)) return Error{text + " is not a redrive trace (it has no 'journal')"};
  return Error{"no trace '" + text + "', neither as a path nor in " + home + "; `redrive ls` lists the traces"};
}

Result<std::vector<std::string>> list_traces() {
  const std::string home = trace_home();
  if (home.empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(std::vector<std::string> names, directories_in(home));
  std::erase_if(names,
                [&](const std::string& name) { return name.ends_with(kRemoving) || !is_trace(home + "/" + name); });
  return names;
}

}  // namespace redrive
