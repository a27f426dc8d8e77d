#include "supervisor/replay/shown_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "interceptors/payload.h"

namespace redrive {

void ShownOutput::call_begins(const Event& event, const SyscallRow& row, const std::vector<Span>& read,
                              const Memory& memory) {
  pending_.erase(event.thread);
  if (row.traffic != Traffic::send || row.fd_arg < 0) return;
  const uint64_t fd = event.args[static_cast<size_t>(row.fd_arg)];
  if (fd != STDOUT_FILENO && fd != STDERR_FILENO) return;
  pending_[event.thread] = {static_cast<int>(fd), read_payload(read, memory)};
}

Result<void> ShownOutput::call_ends(ThreadSerial thread, int64_t result) {
  const auto pending = pending_.find(thread);
  if (pending == pending_.end()) return {};
  const auto [fd, bytes] = std::move(pending->second);
  pending_.erase(pending);
  const size_t size = result > 0 ? std::min(bytes.size(), static_cast<size_t>(result)) : 0;
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(fd, bytes.data() + done, size - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno_error("cannot write the output");
    }
  }
  return {};
}

}  // namespace redrive
