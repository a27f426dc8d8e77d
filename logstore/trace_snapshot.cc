#include "logstore/trace_snapshot.h"

#include <algorithm>
#include <filesystem>

#include "logstore/trace_files.h"
#include "logstore/volume.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

Result<void> failed(const fs::path& path, const std::error_code& error) {
  return Error{"cannot copy " + path.string() + ": " + error.message()};
}

Result<void> copy_file(const fs::path& from, const fs::path& to, bool shared) {
  std::error_code error;
  if (shared) fs::create_hard_link(from, to, error);
  if (shared && !error) return {};
  if (!fs::copy_file(from, to, error) || error) return failed(from, error);
  return {};
}

// Copies the files of a directory, and those of the directories below it.
Result<void> copy_tree(const fs::path& from, const fs::path& to, bool shared) {
  std::error_code error;
  fs::create_directory(to, error);
  if (error) return failed(to, error);
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    const fs::path copy = to / it->path().filename();
    const bool below = it->is_directory(error);
    if (below) TRY(copy_tree(it->path(), copy, shared));
    if (!below && it->path().extension() != ".tmp") TRY(copy_file(it->path(), copy, shared));
  }
  return error ? failed(from, error) : Result<void>();
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
    const auto copied = copy_tree(from.volume(number), to.volume(number), !last);
    if (copied) continue;
    if (disk().exists(from.volume(number))) return copied.error();
    TRY(remove_tree(disk(), to.volume(number)));  // it has left the window meanwhile
  }
  // After the volumes that name them. A copy that is not there any more is of a volume that has left the window.
  TRY(disk().make_directory(to.files()));
  ASSIGN_OR_RETURN(const auto copies, disk().list(from.files()));
  for (const auto& name : copies) {
    const auto copied = copy_file(from.copy(name), to.copy(name), true);
    if (!copied && disk().exists(from.copy(name))) return copied.error();
  }
  return {};
}

}  // namespace

Result<void> copy_window(const std::string& from, const std::string& to, bool complete_only) {
  const TraceFiles files{from}, copy{to};
  if (!disk().exists(files.volumes())) return Error{from + " was not recorded with --keep: it is a trace as it is"};
  if (disk().exists(to)) return Error{to + " already exists: choose another directory, or remove it"};
  TRY(disk().make_directory(to));
  const auto copied = copy_volumes(files, copy, complete_only);
  if (!copied) (void)static_cast<bool>(remove_tree(disk(), to));
  return copied;
}

}  // namespace redrive
