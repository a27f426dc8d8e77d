#include "logstore/trace_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "logstore/trace_files.h"
#include "logstore/volume.h"

namespace redrive {
namespace {

constexpr int kTries = 10;  // to copy volumes before they are removed

// Copies the files of a volume. `shared`: they do not change any more, so that the copies may be other names of them.
Result<void> copy_volume(Storage& storage, const std::string& from, const std::string& to, bool shared) {
  const auto copy_files = [&](const std::string& below) -> Result<void> {
    TRY(storage.make_directory(to + below));
    ASSIGN_OR_RETURN(auto names, storage.list(from + below));
    // The journal comes first: it says what this is if the copy is interrupted.
    std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name == "journal"; });
    for (const auto& name : names) {
      if (name.ends_with(".tmp")) continue;
      const std::string file = fmt::format("{}/{}", below, name);
      if (!shared || !storage.link(from + file, to + file)) TRY(copy_file(storage, from + file, to + file));
    }
    return {};
  };
  TRY(copy_files(""));
  for (const std::string name : kTraceDirectories) {
    if (storage.exists(from + "/" + name)) TRY(copy_files("/" + name));
  }
  return {};
}

// The volumes to copy.
struct Found {
  std::vector<uint64_t> numbers;
  bool removed = false;  // one was removed
};

Result<Found> find_volumes(Storage& storage, const TraceFiles& files, bool complete_only) {
  Found found;
  ASSIGN_OR_RETURN(found.numbers, list_volumes(storage, files));
  found.removed = !found.numbers.empty() && found.numbers.front() > 1;
  if (!complete_only) return found;
  std::erase_if(found.numbers, [&](uint64_t number) {
    const auto volume = Volume::open(files.volume(number), storage, true);
    found.removed |= !volume && !storage.exists(files.volume(number));
    return !volume || !(*volume)->end;
  });
  return found;
}

// Copies volumes from the newest back to the first that has left the window meanwhile. Returns how many were copied.
Result<size_t> copy_newest(Storage& storage, const TraceFiles& from, const TraceFiles& to,
                           const std::vector<uint64_t>& numbers) {
  size_t copied = 0;
  for (auto it = numbers.rbegin(); it != numbers.rend(); ++it) {
    const uint64_t number = *it;
    const auto done = copy_volume(storage, from.volume(number), to.volume(number), copied > 0);
    if (!storage.exists(from.volume(number))) {
      TRY(remove_tree(storage, to.volume(number)));
      break;
    }
    if (!done) return done.error();
    ++copied;
  }
  return copied;
}

Result<void> copy_volumes(Storage& storage, const TraceFiles& from, const TraceFiles& to, bool complete_only) {
  TRY(storage.make_directory(to.volumes()));
  for (int tries = 0; tries < kTries; ++tries) {
    ASSIGN_OR_RETURN(const Found found, find_volumes(storage, from, complete_only));
    if (found.numbers.empty() && !found.removed) return Error{from.directory + " has no complete part yet"};
    ASSIGN_OR_RETURN(const size_t copied, copy_newest(storage, from, to, found.numbers));
    if (copied > 0) return {};
  }
  return Error{from.directory + ": its parts are removed before they can be copied (keep more: see --keep)"};
}

// Copies the files that volumes name, after these. One that is not there any more is of a volume that has left the
// window.
Result<void> copy_named_files(Storage& storage, const TraceFiles& from, const TraceFiles& to) {
  TRY(storage.make_directory(to.files()));
  ASSIGN_OR_RETURN(const auto copies, storage.list(from.files()));
  for (const auto& name : copies) {
    if (storage.link(from.copy(name), to.copy(name))) continue;
    const auto copied = copy_file(storage, from.copy(name), to.copy(name));
    if (!copied && storage.exists(from.copy(name))) return copied.error();
  }
  return {};
}

Result<void> copy_all(Storage& storage, const TraceFiles& from, const TraceFiles& to, bool complete_only) {
  TRY(copy_volumes(storage, from, to, complete_only));
  return copy_named_files(storage, from, to);
}

}  // namespace

Result<void> copy_window(const std::string& from, const std::string& to, bool complete_only, Storage& storage) {
  const TraceFiles files{from};
  if (!storage.exists(files.volumes())) return Error{from + " was not recorded with --keep: it is a trace as it is"};
  const std::string whole = (std::filesystem::path(to) / "").parent_path();
  if (storage.exists(whole)) return already_exists(whole);
  // Until all is there, it is called like what is left of a removed trace: `rm` removes it.
  const std::string part = whole + kRemoving;
  TRY(storage.make_directory(part));
  auto copied = copy_all(storage, files, TraceFiles{part}, complete_only);
  if (copied) copied = storage.rename(part, whole);
  if (!copied) (void)static_cast<bool>(remove_tree(storage, part));
  return copied;
}

}  // namespace redrive
