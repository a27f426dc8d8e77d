#include "supervisor/live/file_content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "base/fd.h"

namespace redrive {
namespace {

// The event of a call holds a hash of all that it has read, which is what it has written into the file if it has no
// other arguments in memory.
bool has_hash_of_bytes(const ContentChange& change) {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  return (change.number == SYS_write || change.number == SYS_pwrite64) && change.length <= kMost;
}

bool holds(int fd, const ContentChange& change, const Event& call) {
  Bytes bytes(change.length);
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(change.offset));
  return call.args[2] == change.length && got == static_cast<ssize_t>(bytes.size()) &&
         XXH3_64bits(bytes.data(), bytes.size()) == call.in_hash;
}

// Whether what the file held there was changed after that.
bool changes_kept_part(const OpenObject& there, const OpenObject& later) {
  return std::any_of(later.content.begin() + static_cast<long>(there.content.size()), later.content.end(),
                     [&](const ContentChange& change) { return change.length == 0 || change.offset < *there.length; });
}

bool writes_vector(const ContentChange& change) {
  return change.number == SYS_writev || change.number == SYS_pwritev || change.number == SYS_pwritev2;
}

// The bytes that a call has put into a file. The first thing that one with a vector reads is the vector.
Bytes bytes_of(const ContentChange& change, const WantedInputs::Read& read) {
  Bytes all;
  for (size_t i = writes_vector(change) ? 1 : 0; i < read.pieces.size() && all.size() < change.length; ++i) {
    all.insert(all.end(), read.pieces[i].begin(), read.pieces[i].end());
  }
  if (all.size() > change.length) all.resize(change.length);
  return all;
}

}  // namespace

bool has_known_content(const OpenObject& object) {
  return object.length && std::all_of(object.content.begin(), object.content.end(), [](const ContentChange& change) {
           const bool writes = change.number == SYS_write || change.number == SYS_pwrite64;
           return change.length == 0 || writes || writes_vector(change);
         });
}

std::optional<Bytes> content_of(const OpenObject& object, const WantedInputs& inputs) {
  if (!has_known_content(object)) return std::nullopt;
  Bytes content;
  for (const ContentChange& change : object.content) {
    if (change.length == 0) {
      content.resize(change.offset);
      continue;
    }
    const WantedInputs::Read* const read = inputs.of(change.call);
    const Bytes bytes = read ? bytes_of(change, *read) : Bytes();
    if (bytes.size() != change.length) return std::nullopt;
    content.resize(std::max<size_t>(content.size(), change.offset + change.length));
    std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(change.offset));
  }
  return content;
}

Result<bool> was_added_later(const Trace& trace, const std::string& path, const OpenObject& there,
                             const OpenObject& later) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !there.known_length()) return false;
  const auto size = static_cast<uint64_t>(info.st_size);
  if (!later.length || changes_kept_part(there, later)) return false;
  std::map<UnitId, std::map<EventIndex, const ContentChange*>> added;
  uint64_t end = *there.length;
  for (size_t i = there.content.size(); i < later.content.size() && end < size; ++i) {
    const ContentChange& change = later.content[i];
    if (change.offset != end || !has_hash_of_bytes(change)) return false;
    added[change.call.unit][change.call.event] = &change;
    end += change.length;
  }
  bool all = end == size;
  for (const auto& [unit, of_unit] : added) {
    const auto& changes = of_unit;
    TRY(trace.for_each_event(unit, changes.begin()->first, changes.rbegin()->first + 1,
                             [&](EventIndex at, const Event& event) {
                               const auto change = changes.find(at);
                               if (change != changes.end()) all = all && holds(file.get(), *change->second, event);
                               return all;
                             }));
  }
  return all;
}

}  // namespace redrive
