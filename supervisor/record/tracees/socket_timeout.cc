#include "supervisor/record/tracees/socket_timeout.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace redrive {
namespace {

// The option that says how long the call may sleep; 0: there is none.
int timeout_option(const SyscallRow& row) {
  if (row.new_descriptor == NewDescriptor::accepted) return SO_RCVTIMEO;
  if (row.new_descriptor == NewDescriptor::connected) return SO_SNDTIMEO;
  switch (row.traffic) {
    case Traffic::receive:
      return SO_RCVTIMEO;
    case Traffic::send:
    case Traffic::transfer:
      return SO_SNDTIMEO;
    default:
      return 0;
  }
}

}  // namespace

std::optional<SocketTimeout> socket_timeout(const SyscallRow& row, std::span<const uint64_t, 6> args, int process) {
  constexpr time_t kForever_s = 1'000'000'000;
  const int option = timeout_option(row);
  const int fd_arg = row.traffic == Traffic::none ? 0 : row.fd_arg;
  if (option == 0 || fd_arg < 0) return {};
  const auto descriptor = static_cast<int>(args[static_cast<size_t>(fd_arg)]);
  const Fd socket(static_cast<int>(syscall(SYS_pidfd_getfd, process, descriptor, 0)));
  timeval timeout{};
  socklen_t size = sizeof timeout;
  if (getsockopt(socket.get(), SOL_SOCKET, option, &timeout, &size) != 0) return {};
  if ((timeout.tv_sec == 0 && timeout.tv_usec == 0) || timeout.tv_sec > kForever_s) return {};
  int domain = AF_UNSPEC;
  size = sizeof domain;
  getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size);
  const bool goes_on = row.new_descriptor == NewDescriptor::connected && domain != AF_UNIX;
  return SocketTimeout{std::chrono::seconds(timeout.tv_sec) + std::chrono::microseconds(timeout.tv_usec),
                       goes_on ? EINPROGRESS : EAGAIN};
}

}  // namespace redrive
