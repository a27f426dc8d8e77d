// redrive rm: removes traces, and nothing else.
#include "supervisor/cli/remove.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "base/beneath.h"
#include "base/text.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"
#include "supervisor/cli/words.h"

namespace redrive {

namespace {

namespace fs = std::filesystem;

constexpr char kJournal[] = "journal", kVolumes[] = "volumes";

// A damaged trace, and one that a newer redrive made, is a trace too: its journal identifies it.
bool has_journal(const fs::path& directory) {
  constexpr std::string_view kBegins = "redrive";
  Bytes first(kBegins.size());
  const auto journal = disk().open(TraceFiles{directory.string()}.journal());
  const auto got = journal ? journal.value()->read(0, first) : Result<size_t>(0);
  return got && got.value() == first.size() && std::equal(first.begin(), first.end(), kBegins.begin());
}

std::vector<fs::path> volumes_of(const fs::path& directory) {
  const std::string volumes = TraceFiles{directory.string()}.volumes();
  std::vector<fs::path> found;
  if (const auto names = disk().list_directories(volumes)) {
    for (const auto& name : *names) found.push_back(fs::path(volumes) / name);
  }
  return found;
}

// Whether a recorder was killed before it wrote anything into the journal, or made the first volume.
bool is_unbegun(const fs::path& directory) {
  const TraceFiles files{directory.string()};
  std::error_code failure;
  for (fs::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename();
    if (name != kJournal && !is_directory_of_trace(name)) return false;
  }
  const auto journal = disk().open(files.journal());
  if (journal) return journal.value()->size() == 0;
  const bool has_volumes = fs::is_directory(fs::symlink_status(files.volumes(), failure));
  return !disk().exists(files.journal()) && has_volumes && volumes_of(directory).empty();
}

bool is_trace(const fs::path& directory) {
  const auto volumes = volumes_of(directory);
  return has_journal(directory) || is_unbegun(directory) || std::any_of(volumes.begin(), volumes.end(), has_journal);
}

bool is_being_removed(const fs::path& directory) { return directory.string().ends_with(kRemoving); }

// A directory on the way to removal. What is in it may be a stranger's, so no link in it is followed, and what is
// listed and removed is in the directory that was opened, whatever its path leads to meanwhile.
class Doomed {
 public:
  explicit Doomed(Fd directory) : directory_(std::move(directory)) {}

  bool is_open() const { return static_cast<bool>(directory_); }
  Doomed below(const std::string& name) const {
    return Doomed(open_beneath(directory_.get(), name, O_RDONLY | O_DIRECTORY));
  }

  Result<std::vector<std::string>> names() const {
    std::vector<std::string> found;
    std::error_code failure;
    for (fs::directory_iterator it(path(), failure), end; !failure && it != end; it.increment(failure)) {
      found.push_back(it->path().filename());
    }
    if (failure) return Error{failure.message()};
    return found;
  }

  bool is_empty_file(const std::string& name) const {
    struct stat info {};
    return fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           info.st_size == 0;
  }
  // Removes a file, a link, or a directory with all that is in it, if there is one.
  Result<void> remove(const std::string& name) const {
    std::error_code failure;
    fs::remove_all(path() / name, failure);
    return failure ? Result<void>(Error{name + ": " + failure.message()}) : Result<void>();
  }

 private:
  fs::path path() const { return fmt::format("/proc/self/fd/{}", directory_.get()); }

  Fd directory_;
};

Doomed open_doomed(const fs::path& directory) {
  return Doomed(Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
}

// Whether nothing is in a trace that is being removed, or has only begun to be copied, but directories in which nothing
// is, and empty journals. `in_volumes`: it is a directory of volumes.
bool is_bare(const Doomed& doomed, bool in_volumes = false) {
  const auto names = doomed.names();
  return names && std::all_of(names->begin(), names->end(), [&](const std::string& name) {
           if (name == kJournal) return doomed.is_empty_file(name);
           if (in_volumes ? !parse_number(name) : !is_directory_of_trace(name)) return false;
           const Doomed below = doomed.below(name);
           return below.is_open() && is_bare(below, name == kVolumes);
         });
}

// What is left of this trace if somebody was killed while removing it; empty if there is nothing.
fs::path left_of(const fs::path& trace) {
  const fs::path left = trace.string() + kRemoving;
  const Doomed doomed = open_doomed(left);
  const bool ours = doomed.is_open() && (is_trace(left) || is_bare(doomed));
  return ours ? left : fs::path();
}

Result<void> remove_but(const Doomed& doomed, std::initializer_list<std::string> kept) {
  ASSIGN_OR_RETURN(const auto names, doomed.names());
  for (const std::string& name : names) {
    if (std::find(kept.begin(), kept.end(), name) == kept.end()) TRY(doomed.remove(name));
  }
  return {};
}

// Removes the journals last, because they identify what is left.
Result<void> clear(const Doomed& doomed) {
  TRY(remove_but(doomed, {kJournal, kVolumes}));
  if (const Doomed volumes = doomed.below(kVolumes); volumes.is_open()) {
    ASSIGN_OR_RETURN(const auto names, volumes.names());
    for (const std::string& name : names) {
      if (const Doomed volume = volumes.below(name); volume.is_open()) TRY(remove_but(volume, {kJournal}));
      TRY(volumes.remove(name));
    }
  }
  TRY(doomed.remove(kVolumes));
  return doomed.remove(kJournal);
}

Result<void> clear_away(const fs::path& directory) {
  const Doomed doomed = open_doomed(directory);
  if (!doomed.is_open()) return errno_error("cannot remove " + directory.string());
  if (const auto cleared = clear(doomed); !cleared) {
    return Error{fmt::format("cannot remove all of {}: {}", directory.string(), cleared.error().message)};
  }
  std::error_code failure;
  fs::remove(directory, failure);
  if (failure) return Error{fmt::format("cannot remove {}: {}", directory.string(), failure.message())};
  return {};
}

// Unlike a link that the user has made, `latest` stands for the trace that it leads to.
bool is_own_link(const fs::path& found) {
  std::error_code failure;
  const bool latest = found.filename() == "latest" && fs::equivalent(found.parent_path(), trace_home(), failure);
  return fs::is_symlink(found, failure) && !latest;
}

// What is to be removed: a trace, or a link to one.
Result<fs::path> removed_path(const std::string& text) {
  const Result<std::string> found_trace = find_trace(text);
  if (!found_trace) {
    for (const fs::path& trace : {fs::path(text), fs::path(trace_home()) / text}) {
      if (const fs::path left = left_of(trace); !text.empty() && !left.empty()) return left;
    }
    return found_trace.error();
  }
  const std::string& found = *found_trace;
  const fs::path name = (fs::absolute(found) / "").parent_path();  // without slashes at its end, which follow links
  if (is_own_link(name)) return name;
  std::error_code failure;
  const fs::path directory = fs::canonical(found, failure);
  if (failure) return Error{fmt::format("{}: {}", found, failure.message())};
  if (!is_trace(directory)) return Error{fmt::format("{} is not a trace: not removed", found)};
  if (const auto trace = Trace::open(directory); trace && trace.value()->recording()) {
    return Error{fmt::format("{} is being recorded: not removed", found)};
  }
  return directory;
}

// The most recent of the remaining traces becomes the latest.
Result<void> renew_latest() {
  std::string newest;
  int64_t newest_started = 0;
  ASSIGN_OR_RETURN(const auto names, list_traces());
  for (const auto& name : names) {
    const std::string directory = fs::path(trace_home()) / name;
    const auto trace = Trace::open(directory);
    if (!trace || trace.value()->settings().started_unix_ns <= newest_started) continue;
    newest = directory;
    newest_started = trace.value()->settings().started_unix_ns;
  }
  std::error_code failure;
  fs::remove(fs::path(trace_home()) / "latest", failure);
  return newest.empty() ? Result<void>() : set_latest(newest);
}

Result<int> remove(const RemoveOptions& options) {
  std::vector<fs::path> directories;
  for (const auto& text : options.traces) {  // all or nothing
    ASSIGN_OR_RETURN(const fs::path directory, removed_path(text));
    if (std::find(directories.begin(), directories.end(), directory) == directories.end())
      directories.push_back(directory);
  }
  std::error_code failure;
  const fs::path latest = fs::path(trace_home()) / "latest";
  for (const auto& directory : directories) {
    if (is_own_link(directory)) {
      fs::remove(directory, failure);
      if (failure) return Error{fmt::format("cannot remove {}: {}", directory.string(), failure.message())};
      continue;
    }
    if (is_being_removed(directory)) {
      TRY(clear_away(directory));
      continue;
    }
    // Rename the trace first: if we are interrupted, what is left is no longer a trace.
    if (const fs::path left = left_of(directory); !left.empty()) TRY(clear_away(left));
    const fs::path doomed = directory.string() + kRemoving;
    fs::rename(directory, doomed, failure);
    if (failure) {
      return Error{
          fmt::format("cannot remove {}, by way of {}: {}", directory.string(), doomed.string(), failure.message())};
    }
    TRY(clear_away(doomed));
  }
  if (fs::is_symlink(latest, failure) && !fs::exists(latest, failure)) TRY(renew_latest());
  return 0;
}

constexpr CommandText kRemoveText{
    "rm",
    "redrive rm TRACE ...",
    "remove traces",
    "If one of the arguments is not a trace, or is still being recorded, nothing is removed.\n",
    {kGivenTraceWord}};

class RemoveCommand : public CommandWith<RemoveOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override { arguments.words(); }

  Result<void> finish(const Arguments& arguments) override {
    if (!arguments.has_words()) return usage("name the traces to remove");
    options_.traces = arguments.given_words();
    return {};
  }

  Result<int> run() override { return remove(options_); }
};

}  // namespace

std::unique_ptr<Command> make_remove_command() { return std::make_unique<RemoveCommand>(kRemoveText); }

}  // namespace redrive
