#include "supervisor/record/tracees/transfer_rest.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/fd.h"

namespace redrive {
namespace {

struct Buffer {
  Address at = 0;
  uint64_t size = 0;
};

constexpr uint64_t kTakesNoStream = MSG_PEEK | MSG_OOB | MSG_ERRQUEUE;
constexpr uint64_t kMostBytes = 0x7ffff000;  // that one call transfers (read(2))

std::optional<Buffer> after(const Buffer& buffer, uint64_t moved) {
  const uint64_t size = std::min(buffer.size, kMostBytes);
  if (moved >= size) return {};
  return Buffer{buffer.at + moved, size - moved};
}

// What is left of the buffer in which the transfer has stopped.
std::optional<Buffer> after(Address vector, uint64_t count, const Memory& memory, uint64_t moved) {
  for (uint64_t i = 0; i < count; ++i) {
    iovec element{};
    if (!memory.get(vector + i * sizeof element, element)) return {};
    if (moved < element.iov_len) return after({reinterpret_cast<Address>(element.iov_base), element.iov_len}, moved);
    moved -= element.iov_len;
  }
  return {};
}

std::optional<Buffer> after_in_message(Address message, const Memory& memory, uint64_t moved) {
  msghdr header{};
  if (!memory.get(message, header)) return {};
  return after(reinterpret_cast<Address>(header.msg_iov), header.msg_iovlen, memory, moved);
}

// Whether recvmmsg(2) waits for as many messages as it can get, and its time, if it has one, is not over: the kernel
// notes what is left of it.
bool waits_for_messages(uint64_t flags, Address timeout, const Memory& memory) {
  timespec left{};
  if (flags & (MSG_DONTWAIT | MSG_WAITFORONE | MSG_WAITALL)) return false;
  return timeout == 0 || (memory.get(timeout, left) && (left.tv_sec != 0 || left.tv_nsec != 0));
}

// What is left of the last message that sendmmsg(2) has sent.
std::optional<Buffer> after_in_last(Address messages, const Memory& memory, uint64_t moved) {
  mmsghdr last{};
  const Address at = messages + (moved - 1) * sizeof last;
  return memory.get(at, last) ? after_in_message(at, memory, last.msg_len) : std::nullopt;
}

// Whether the kernel makes up the contents of the file: /dev/zero, /dev/full, /dev/random, /dev/urandom.
bool is_made_up(const struct stat& file) {
  constexpr unsigned kMemory = 1, kZero = 5, kFull = 7, kRandom = 8, kUrandom = 9;  // admin-guide/devices.txt
  if (!S_ISCHR(file.st_mode) || major(file.st_rdev) != kMemory) return false;
  const unsigned device = minor(file.st_rdev);
  return device == kZero || device == kFull || device == kRandom || device == kUrandom;
}

bool is_master(const Fd& terminal) {
  unsigned number = 0;
  return ioctl(terminal.get(), TIOCGPTN, &number) == 0;
}

}  // namespace

std::optional<TransferRest> rest_of_transfer(int64_t number, const std::array<uint64_t, 6>& args, const Memory& memory,
                                             uint64_t moved) {
  const auto by = [&](int64_t call, const std::optional<Buffer>& left, uint64_t flags = 0) {
    return left ? std::optional(TransferRest{call, {args[0], left->at, left->size, flags}}) : std::nullopt;
  };
  const auto of_messages = [&]() -> std::optional<TransferRest> {
    const uint64_t count = std::min<uint64_t>(args[2], UIO_MAXIOV);
    if (moved >= count) return {};
    return TransferRest{number, {args[0], args[1] + moved * sizeof(mmsghdr), count - moved, args[3], args[4]}};
  };
  const auto of_copy = [&](size_t length) -> std::optional<TransferRest> {
    const uint64_t size = std::min(args[length], kMostBytes);
    if (moved >= size) return {};
    TransferRest rest{number, args};
    rest.args[length] = size - moved;
    return rest;
  };
  switch (number) {
    // The position does not matter where these are woken.
    case SYS_read:
    case SYS_pread64:
      return by(SYS_read, after({args[1], args[2]}, moved));
    case SYS_readv:
    case SYS_preadv:
      return by(SYS_read, after(args[1], args[2], memory, moved));
    case SYS_preadv2:
      if (args[5] & RWF_NOWAIT) return {};
      return by(SYS_read, after(args[1], args[2], memory, moved));
    case SYS_getrandom:
      if (const auto left = after({args[0], args[1]}, moved))
        return TransferRest{SYS_getrandom, {left->at, left->size, args[2]}};
      return {};
    case SYS_write:
      return by(SYS_write, after({args[1], args[2]}, moved));
    case SYS_writev:
      return by(SYS_write, after(args[1], args[2], memory, moved));
    case SYS_pwritev2:  // at another position nothing sleeps amid its bytes
      if (static_cast<int64_t>(args[3]) != -1 || (args[5] & RWF_NOWAIT)) return {};
      return by(SYS_write, after(args[1], args[2], memory, moved));
    case SYS_sendto:
      return by(SYS_sendto, after({args[1], args[2]}, moved), args[3]);
    case SYS_sendmsg:
      return by(SYS_sendto, after_in_message(args[1], memory, moved), args[2]);
    case SYS_recvfrom:
      if (args[3] & kTakesNoStream) return {};
      return by(SYS_recvfrom, after({args[1], args[2]}, moved), args[3]);
    case SYS_recvmsg:
      if (args[2] & kTakesNoStream) return {};
      return by(SYS_recvfrom, after_in_message(args[1], memory, moved), args[2]);
    case SYS_recvmmsg:
      if (!waits_for_messages(args[3], args[4], memory)) return {};
      return of_messages();
    case SYS_sendmmsg:
      if (const auto left = after_in_last(args[1], memory, moved)) return by(SYS_sendto, left, args[3]);
      return of_messages();
    case SYS_sendfile:
      return of_copy(3);
    case SYS_copy_file_range:
      return of_copy(4);
    default:
      return {};
  }
}

bool ends_when_woken(int64_t number, const struct stat& file) {
  switch (number) {
    case SYS_getrandom:
    case SYS_sendfile:
    case SYS_copy_file_range:
      return true;
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_recvfrom:
    case SYS_recvmsg:
      return is_made_up(file);
    default:
      return !S_ISREG(file.st_mode);  // a write to a file was short for another reason, such as a limit
  }
}

uint64_t least_received(int64_t number, const std::array<uint64_t, 6>& args, int process) {
  const Fd file(static_cast<int>(syscall(SYS_pidfd_getfd, process, static_cast<int>(args[0]), 0)));
  termios terminal{};
  if (tcgetattr(file.get(), &terminal) == 0) {
    const bool waits = !(terminal.c_lflag & ICANON) && terminal.c_cc[VTIME] == 0 && !is_master(file);
    return waits ? terminal.c_cc[VMIN] : 0;
  }
  const uint64_t flags = number == SYS_recvfrom ? args[3] : number == SYS_recvmsg ? args[2] : 0;
  int type = 0, least = 0;
  socklen_t size = sizeof type;
  if (getsockopt(file.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return 0;
  if (flags & MSG_WAITALL) return kMostBytes;
  getsockopt(file.get(), SOL_SOCKET, SO_RCVLOWAT, &least, &size);
  return static_cast<uint64_t>(least);
}

}  // namespace redrive
