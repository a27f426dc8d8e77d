#include "supervisor/live/file_content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

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

}  // namespace

Result<bool> was_added_later(const Trace& trace, const std::string& path, const OpenObject& there,
                             const OpenObject& later) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !there.length) return false;
  const auto size = static_cast<uint64_t>(info.st_size);
  std::map<UnitId, std::map<EventIndex, const ContentChange*>> added;
  uint64_t end = *there.length;
  for (size_t i = there.content.size(); i < later.content.size() && end < size; ++i) {
    const ContentChange& change = later.content[i];
    if (change.length == 0 || change.offset != end || !has_hash_of_bytes(change)) return false;
    added[change.call.unit][change.call.event] = &change;
    end += change.length;
  }
  bool all = end == size;
  for (const auto& [unit, changes] : added) {
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
