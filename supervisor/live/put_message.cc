#include "supervisor/live/put_message.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace redrive {
namespace {

// Room for a message in the buffer of a UNIX socket that sends it: what was sent stays there until it is received.
class SendRoom {
 public:
  SendRoom(int from, size_t length) : from_(from) {
    int held = 0;
    if (option(SO_DOMAIN) != AF_UNIX || ioctl(from, SIOCOUTQ, &held) != 0) return;
    constexpr uint64_t kOverhead =
        1024;  // at most, of the kernel's own for each message; it may also double the length
    const uint64_t wanted = static_cast<uint64_t>(held) + 2 * length + kOverhead;
    size_ = option(SO_SNDBUF);
    if (wanted <= static_cast<uint64_t>(size_)) return;
    set_size(static_cast<int>(std::min<uint64_t>(wanted, INT32_MAX)));
    is_raised_ = true;
  }
  ~SendRoom() {
    if (is_raised_) set_size(size_ / 2);  // the kernel doubles what it is told (socket(7))
  }
  SendRoom(const SendRoom&) = delete;
  SendRoom& operator=(const SendRoom&) = delete;

 private:
  int option(int name) const {
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(from_, SOL_SOCKET, name, &value, &size) == 0 ? value : 0;
  }
  void set_size(int size) const {
    if (setsockopt(from_, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) == 0) return;
    setsockopt(from_, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  }

  const int from_;
  int size_ = 0;
  bool is_raised_ = false;
};

}  // namespace

Put put_bytes(int from, const Bytes& to, const Bytes& bytes) {
  const int flags = fcntl(from, F_GETFL);
  fcntl(from, F_SETFL, flags | O_NONBLOCK);
  Put put;
  do {
    const uint8_t* const rest = bytes.data() + put.bytes;
    const size_t length = bytes.size() - put.bytes;
    const ssize_t n = to.empty() ? ::write(from, rest, length)
                                 : sendto(from, rest, length, 0, reinterpret_cast<const sockaddr*>(to.data()),
                                          static_cast<socklen_t>(to.size()));
    if (n < 0) put.error = errno;
    if (n > 0) put.bytes += static_cast<size_t>(n);
  } while (!put.error && put.bytes < bytes.size());
  fcntl(from, F_SETFL, flags);
  return put;
}

Put put_message(int from, const Bytes& to, const LiveMessage& message) {
  const SendRoom room(from, message.bytes.size());
  if (!message.urgent) return put_bytes(from, to, message.bytes);
  const Bytes before(message.bytes.begin(), message.bytes.end() - 1);
  Put put;
  if (!before.empty()) put = put_bytes(from, to, before);
  if (put.error) return put;
  if (send(from, &message.bytes.back(), 1, MSG_OOB | MSG_DONTWAIT) == 1) {
    ++put.bytes;
  } else {
    put.error = errno;
  }
  return put;
}

void take_urgent(int at) {
  constexpr int kLongest_ms = 1000;  // it has been sent, over the loopback
  pollfd there{at, POLLPRI, 0};
  uint8_t byte = 0;
  if (poll(&there, 1, kLongest_ms) == 1) recv(at, &byte, 1, MSG_OOB | MSG_DONTWAIT);
}

}  // namespace redrive
