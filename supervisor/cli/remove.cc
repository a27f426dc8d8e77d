// redrive rm: removes traces, and nothing else.
#include "supervisor/cli/remove.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "logstore/trace.h"
#include "logstore/trace_files.h"
#include "supervisor/cli/words.h"

namespace redrive {

namespace {

namespace fs = std::filesystem;

// A damaged trace, and one that a newer redrive made, is a trace too: its journal identifies it.
bool has_journal(const fs::path& directory) {
  constexpr std::string_view kBegins = "redrive";
  Bytes first(kBegins.size());
  const auto journal = disk().open(TraceFiles{directory.string()}.journal());
  const auto got = journal ? journal.value()->read(0, first) : Result<size_t>(0);
  return got && got.value() == first.size() && std::equal(first.begin(), first.end(), kBegins.begin());
}

std::vector<fs::path> volumes_of(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator it(TraceFiles{directory.string()}.volumes(), failure), end; !failure && it != end;
       it.increment(failure)) {
    found.push_back(it->path());
  }
  return found;
}

bool is_trace(const fs::path& directory) {
  const auto volumes = volumes_of(directory);
  return has_journal(directory) || std::any_of(volumes.begin(), volumes.end(), has_journal);
}

bool is_being_removed(const fs::path& directory) { return directory.string().ends_with(kRemoving); }

// What is left of this trace if somebody was killed while removing it; empty if there is nothing.
fs::path left_of(const fs::path& trace) {
  const fs::path left = trace.string() + kRemoving;
  std::error_code failure;
  const fs::path volumes = TraceFiles{left.string()}.volumes();
  const bool nothing = fs::is_empty(fs::is_directory(volumes, failure) ? volumes : left, failure);
  const bool ours = fs::is_directory(left, failure) && (is_trace(left) || nothing);
  return ours ? left : fs::path();
}

// Removes the journals last, because they identify what is left.
Result<void> clear_away(const fs::path& doomed) {
  const TraceFiles files{doomed.string()};
  std::error_code failure;
  std::vector<fs::path> others;
  for (fs::directory_iterator it(doomed, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path() != files.journal() && it->path() != files.volumes()) others.push_back(it->path());
  }
  for (const fs::path& other : others) {
    if (!failure) fs::remove_all(other, failure);
  }
  for (const fs::path& volume : volumes_of(doomed)) {
    if (!failure) TRY(clear_away(volume));
  }
  if (!failure) fs::remove_all(doomed, failure);
  if (failure) return Error{fmt::format("cannot remove all of {}: {}", doomed.string(), failure.message())};
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
    if (is_being_removed(directory)) {
      TRY(clear_away(directory));
      continue;
    }
    if (is_own_link(directory)) {
      fs::remove(directory, failure);
      if (failure) return Error{fmt::format("cannot remove {}: {}", directory.string(), failure.message())};
      continue;
    }
    // Rename the trace first: if we are interrupted, what is left is no longer a trace.
    if (const fs::path left = left_of(directory); !left.empty()) TRY(clear_away(left));
    const fs::path doomed = directory.string() + kRemoving;
    fs::rename(directory, doomed, failure);
    if (failure) return Error{fmt::format("cannot remove {}: {}", directory.string(), failure.message())};
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
