#include "base/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <vector>

namespace redrive {
namespace {

// A file opened with O_PATH cannot block, and the kernel refuses the other flags with it.
int with_care(int flags) { return flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY); }

// Empty if the name does not name a file below the directory.
std::vector<std::string> components(std::string_view name) {
  std::vector<std::string> out;
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view one = name.substr(0, slash);
    if (one.empty() || one == "." || one == "..") return {};
    out.emplace_back(one);
    if (slash == std::string_view::npos) return out;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

Fd open_beneath(int directory, const std::string& name, int flags, mode_t mode) {
  constexpr int kTries = 16;  // the kernel asks for another try if something is renamed meanwhile
  if (components(name).empty()) {
    errno = EINVAL;
    return Fd();
  }
  open_how how{};
  how.flags = static_cast<uint64_t>(with_care(flags));
  how.mode = flags & O_CREAT ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  for (int i = 0; i < kTries; ++i) {
    Fd file(static_cast<int>(syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how)));
    if (file || (errno != EAGAIN && errno != EINTR && errno != ENOSYS && errno != EPERM)) return file;
    if (errno == ENOSYS || errno == EPERM) break;
  }
  return open_beneath_by_steps(directory, name, flags, mode);
}

Fd open_beneath_by_steps(int directory, const std::string& name, int flags, mode_t mode) {
  const auto steps = components(name);
  Fd at;
  for (size_t i = 0; i < steps.size(); ++i) {
    const int from = i == 0 ? directory : at.get();
    const bool last = i + 1 == steps.size();
    const int how = last ? with_care(flags) : O_PATH | O_DIRECTORY | O_CLOEXEC;
    Fd next(::openat(from, steps[i].c_str(), how | O_NOFOLLOW, mode));
    if (!next && errno == ENOTDIR) {
      // O_DIRECTORY gives this error for a link.
      char target = 0;
      const bool link = ::readlinkat(from, steps[i].c_str(), &target, 1) >= 0;
      errno = link ? ELOOP : ENOTDIR;
    }
    if (!next || last) return next;
    at = std::move(next);
  }
  errno = EINVAL;
  return Fd();
}

}  // namespace redrive
