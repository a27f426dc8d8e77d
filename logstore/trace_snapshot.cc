#include "logstore/trace_snapshot.h"

#include <fmt/format.h>

#include <algorithm>

#include "logstore/trace_files.h"
#include "logstore/volume.h"

namespace redrive {
namespace {

// Copies the files of a volume. `shared`: they do not change any more, so that the copies may be other names of them.
Result<void> copy_volume(const std::string& from, const std::string& to, bool shared) {
  const auto copy_files = [&](const std::string& below) -> Result<void> {
    TRY(disk().make_directory(to + below));
    ASSIGN_OR_RETURN(const auto names, disk().list(from + below));
    for (const auto& name : names) {
      if (name.ends_with(".tmp")) continue;
      const std::string file = fmt::format("{}/{}", below, name);
      if (!shared || !disk().link(from + file, to + file)) TRY(copy_file(disk(), from + file, to + file));
    }
    return {};
  };
  TRY(copy_files(""));
  for (const std::string name : kTraceDirectories) {
    if (disk().exists(from + "/" + name)) TRY(copy_files("/" + name));
  }
  return {};
}

Result<std::vector<uint64_t>> volumes_of(const TraceFiles& files, bool complete_only) {
  ASSIGN_OR_RETURN(auto numbers, list_volumes(disk(), files));
  if (!complete_only) return numbers;
  std::erase_if(numbers, [&](uint64_t number) {
    const auto volume = Volume::open(files.volume(number), disk(), true);
    return !volume || !(*volume)->end;
  });
  return numbers;
}

Result<void> copy_volumes(const TraceFiles& from, const TraceFiles& to, bool complete_only) {
  ASSIGN_OR_RETURN(const auto numbers, volumes_of(from, complete_only));
  if (numbers.empty()) return Error{from.directory + " has no complete part yet"};
  TRY(disk().make_directory(to.volumes()));
  for (const uint64_t number : numbers) {
    const bool last = number == numbers.back();
    const auto copied = copy_volume(from.volume(number), to.volume(number), !last);
    if (copied) continue;
    if (disk().exists(from.volume(number))) return copied.error();
    TRY(remove_tree(disk(), to.volume(number)));  // it has left the window meanwhile
  }
  // After the volumes that name them. A copy that is not there any more is of a volume that has left the window.
  TRY(disk().make_directory(to.files()));
  ASSIGN_OR_RETURN(const auto copies, disk().list(from.files()));
  for (const auto& name : copies) {
    if (disk().link(from.copy(name), to.copy(name))) continue;
    const auto copied = copy_file(disk(), from.copy(name), to.copy(name));
    if (!copied && disk().exists(from.copy(name))) return copied.error();
  }
  return {};
}

}  // namespace

Result<void> copy_window(const std::string& from, const std::string& to, bool complete_only) {
  const TraceFiles files{from}, copy{to};
  if (!disk().exists(files.volumes())) return Error{from + " was not recorded with --keep: it is a trace as it is"};
  TRY(disk().make_directory(to));
  const auto copied = copy_volumes(files, copy, complete_only);
  if (!copied) (void)static_cast<bool>(remove_tree(disk(), to));
  return copied;
}

}  // namespace redrive
