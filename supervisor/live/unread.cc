#include "supervisor/live/unread.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

namespace redrive {
namespace {

// An address as /proc/net/tcp and tcp6 write it: words of four bytes, in the machine's order.
std::string address_text(const sockaddr_storage& address) {
  std::string text;
  const auto add = [&](const void* bytes, size_t words) {
    for (size_t i = 0; i < words; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, static_cast<const uint8_t*>(bytes) + i * sizeof word, sizeof word);
      text += fmt::format("{:08X}", word);
    }
  };
  const auto& in = reinterpret_cast<const sockaddr_in&>(address);
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (address.ss_family == AF_INET) add(&in.sin_addr, 1);
  if (address.ss_family == AF_INET6) add(&in6.sin6_addr, 4);
  return text + fmt::format(":{:04X}", ntohs(in.sin_port));  // which is at the same place in both
}

// What the other end of a TCP connection has not read.
uint64_t unread_by_peer(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return 0;
  }
  std::ifstream table(own.ss_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues;
    words >> number >> local >> remote >> state >> queues;
    if (local != address_text(peer) || remote != address_text(own)) continue;
    const size_t colon = queues.find(':');
    return colon == std::string::npos ? 0 : std::strtoull(queues.c_str() + colon + 1, nullptr, 16);
  }
  return 0;
}

int socket_option(int fd, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : 0;
}

}  // namespace

Result<Unread> Unread::of(pid_t pid, int descriptor, End end) {
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  Fd copy(process ? static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), descriptor, 0)) : -1);
  if (!copy) return errno_error(fmt::format("cannot look at descriptor {} of process {}", descriptor, pid));
  return Unread(std::move(copy), end);
}

uint64_t Unread::bytes() const {
  int count = 0;
  if (end_ == End::sender) {
    if (socket_option(fd_.get(), SO_DOMAIN) != AF_UNIX) return unread_by_peer(fd_.get());
    return ioctl(fd_.get(), SIOCOUTQ, &count) == 0 ? static_cast<uint64_t>(count) : 0;
  }
  if (socket_option(fd_.get(), SO_TYPE) == SOCK_DGRAM) {  // of which FIONREAD tells the first only, which may be empty
    pollfd there{fd_.get(), POLLIN, 0};
    return poll(&there, 1, 0) == 1 && there.revents & POLLIN ? 1 : 0;
  }
  return ioctl(fd_.get(), FIONREAD, &count) == 0 ? static_cast<uint64_t>(count) : 0;
}

}  // namespace redrive
