#include "supervisor/record/tracees/transfer_rest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

#include <ctime>

#include "base/fd.h"
#include "tests/unit/unit_test.h"

namespace redrive::transfer_rest_test {

namespace {

using Arguments = std::array<uint64_t, 6>;

constexpr Address kVector = 0x1000, kMessage = 0x2000, kMessages = 0x3000, kTime = 0x4000, kOver = 0x5000;
constexpr Address kFirst = 0x10000, kSecond = 0x20000;
constexpr uint64_t kHeader = sizeof(mmsghdr);

// A vector of 100 and 50 bytes with an empty element between them, and a message that has it. Three messages, of which
// the first has been sent, and 120 bytes of the second. A timeout, and one that is over.
class Caller {
 public:
  Caller() {
    vector_ = {iovec{at(kFirst), 100}, iovec{at(kFirst), 0}, iovec{at(kSecond), 50}};
    message_.msg_iov = static_cast<iovec*>(at(kVector));
    message_.msg_iovlen = vector_.size();
    messages_ = {mmsghdr{message_, 150}, mmsghdr{message_, 120}, mmsghdr{message_, 0}};
    pieces_ = {{kVector, bytes(vector_.data(), sizeof vector_)},
               {kMessage, bytes(&message_, sizeof message_)},
               {kMessages, bytes(messages_.data(), sizeof messages_)},
               {kTime, bytes(&time_, sizeof time_)},
               {kOver, bytes(&over_, sizeof over_)}};
  }
  Memory memory() const { return Memory::of(pieces_); }

 private:
  static void* at(Address address) { return reinterpret_cast<void*>(address); }
  static std::span<const uint8_t> bytes(const void* from, size_t size) {
    return {static_cast<const uint8_t*>(from), size};
  }
  std::array<iovec, 3> vector_{};
  msghdr message_{};
  std::array<mmsghdr, 3> messages_{};
  const timespec time_{0, 1}, over_{0, 0};
  std::vector<Memory::Piece> pieces_;
};

struct Case {
  int64_t number;
  Arguments args;
  uint64_t moved;
  std::optional<TransferRest> rest;
};

}  // namespace

TEST_CASE("the rest of a transfer begins where the transfer has stopped") {
  const Caller caller;
  const Memory memory = caller.memory();
  const Case cases[] = {
      {SYS_write, {3, kFirst, 100}, 30, TransferRest{SYS_write, {3, kFirst + 30, 70}}},
      {SYS_write, {3, kFirst, 100}, 100, {}},
      {SYS_sendto, {3, kFirst, 100, MSG_NOSIGNAL}, 99, TransferRest{SYS_sendto, {3, kFirst + 99, 1, MSG_NOSIGNAL}}},
      {SYS_writev, {3, kVector, 3}, 30, TransferRest{SYS_write, {3, kFirst + 30, 70}}},
      {SYS_writev, {3, kVector, 3}, 100, TransferRest{SYS_write, {3, kSecond, 50}}},
      {SYS_writev, {3, kVector, 3}, 149, TransferRest{SYS_write, {3, kSecond + 49, 1}}},
      {SYS_writev, {3, kVector, 3}, 150, {}},
      {SYS_writev, {3, kVector + 0x500, 3}, 1, {}},  // the vector is there no more
      {SYS_sendmsg, {3, kMessage, 0}, 120, TransferRest{SYS_sendto, {3, kSecond + 20, 30, 0}}},
      {SYS_recvfrom, {3, kFirst, 100, MSG_WAITALL}, 10, TransferRest{SYS_recvfrom, {3, kFirst + 10, 90, MSG_WAITALL}}},
      {SYS_recvfrom, {3, kFirst, 100, 0}, 10, TransferRest{SYS_recvfrom, {3, kFirst + 10, 90, 0}}},
      {SYS_recvfrom, {3, kFirst, 100, MSG_WAITALL | MSG_PEEK}, 10, {}},
      {SYS_recvmsg, {3, kMessage, MSG_WAITALL}, 100, TransferRest{SYS_recvfrom, {3, kSecond, 50, MSG_WAITALL}}},
      {SYS_recvmsg, {3, kMessage, MSG_PEEK}, 100, {}},
      {SYS_recvmmsg, {3, kMessages, 3, 0}, 1, TransferRest{SYS_recvmmsg, {3, kMessages + kHeader, 2, 0}}},
      {SYS_recvmmsg, {3, kMessages, 3, 0}, 3, {}},
      {SYS_recvmmsg, {3, kMessages, 3, MSG_WAITFORONE}, 1, {}},
      {SYS_recvmmsg, {3, kMessages, 3, MSG_DONTWAIT}, 1, {}},
      {SYS_recvmmsg,
       {3, kMessages, 3, 0, kTime},
       2,
       TransferRest{SYS_recvmmsg, {3, kMessages + 2 * kHeader, 1, 0, kTime}}},
      {SYS_recvmmsg, {3, kMessages, 3, 0, kOver}, 2, {}},
      {SYS_recvmmsg, {3, kMessages, 2000, 0}, 1024, {}},
      {SYS_sendmmsg, {3, kMessages, 3, 0}, 1, TransferRest{SYS_sendmmsg, {3, kMessages + kHeader, 2, 0}}},
      {SYS_sendmmsg, {3, kMessages, 3, 0}, 2, TransferRest{SYS_sendto, {3, kSecond + 20, 30, 0}}},
      {SYS_sendmmsg, {3, kMessages, 1, 0}, 1, {}},
      {SYS_pwritev2, {3, kVector, 3, ~0ull, 0, 0}, 30, TransferRest{SYS_write, {3, kFirst + 30, 70}}},
      {SYS_pwritev2, {3, kVector, 3, ~0ull, 0, RWF_NOWAIT}, 30, {}},
      {SYS_pwritev2, {3, kVector, 3, 7, 0, 0}, 30, {}},
      {SYS_sendfile, {3, 4, 0, 1000}, 10, TransferRest{SYS_sendfile, {3, 4, 0, 990}}},
      {SYS_sendfile, {3, 4, 0, ~0ull}, 0x7ffff000, {}},
      {SYS_copy_file_range, {3, 0, 4, 0, 1000, 0}, 10, TransferRest{SYS_copy_file_range, {3, 0, 4, 0, 990, 0}}},
      {SYS_read, {3, kFirst, 100}, 10, TransferRest{SYS_read, {3, kFirst + 10, 90}}},
      {SYS_read, {3, kFirst, ~0ull}, 0x7ffff000, {}},
      {SYS_pread64, {3, kFirst, 100, 7}, 10, TransferRest{SYS_read, {3, kFirst + 10, 90}}},
      {SYS_preadv2, {3, kVector, 3, 7, 0, 0}, 120, TransferRest{SYS_read, {3, kSecond + 20, 30}}},
      {SYS_preadv2, {3, kVector, 3, 7, 0, RWF_NOWAIT}, 120, {}},
      {SYS_getrandom, {kFirst, 100, GRND_RANDOM}, 10, TransferRest{SYS_getrandom, {kFirst + 10, 90, GRND_RANDOM}}},
      {SYS_getrandom, {kFirst, 100, 0}, 100, {}},
      {SYS_getdents64, {3, kFirst, 100}, 10, {}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.number);
    CAPTURE(each.moved);
    const auto rest = rest_of_transfer(each.number, each.args, memory, each.moved);
    REQUIRE_EQ(rest.has_value(), each.rest.has_value());
    if (!rest) continue;
    CHECK_EQ(rest->number, each.rest->number);
    CHECK(rest->args == each.rest->args);
  }
}

TEST_CASE("which files end a call early when the thread is woken") {
  const auto file = [](const char* path) {
    struct stat file {};
    REQUIRE_EQ(stat(path, &file), 0);
    return file;
  };
  for (const char* const path : {"/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}) {
    CAPTURE(path);
    CHECK(ends_when_woken(SYS_preadv, file(path)));
  }
  struct stat socket {};
  socket.st_mode = S_IFSOCK;
  CHECK_FALSE(ends_when_woken(SYS_read, socket));  // it has what was there
  CHECK_FALSE(ends_when_woken(SYS_recvfrom, socket));
  CHECK_FALSE(ends_when_woken(SYS_read, file("/dev/null")));
  CHECK_FALSE(ends_when_woken(SYS_read, file("/proc/self/exe")));
  CHECK(ends_when_woken(SYS_write, socket));
  CHECK_FALSE(ends_when_woken(SYS_write, file("/proc/self/exe")));
  CHECK(ends_when_woken(SYS_sendfile, file("/proc/self/exe")));
}

TEST_CASE("how many bytes a receive waits for") {
  const Fd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const auto least = [&](int64_t number, const Fd& file, uint64_t flags = 0) {
    return least_received(number, {static_cast<uint64_t>(file.get()), 0, 0, flags}, self.get());
  };
  int ends[2];
  REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd stream(ends[0]), other(ends[1]);
  CHECK_EQ(least(SYS_recvfrom, stream), 1);
  CHECK_GE(least(SYS_recvfrom, stream, MSG_WAITALL), 1u << 30);
  const int six = 6;
  REQUIRE_EQ(setsockopt(stream.get(), SOL_SOCKET, SO_RCVLOWAT, &six, sizeof six), 0);
  CHECK_EQ(least(SYS_read, stream), 6);
  CHECK_EQ(least(SYS_recvfrom, stream), 6);
  const Fd datagrams(socket(AF_UNIX, SOCK_DGRAM, 0));
  CHECK_EQ(least(SYS_read, datagrams), 0);
  CHECK_EQ(least(SYS_recvfrom, datagrams, MSG_WAITALL), 0);
  CHECK_EQ(least(SYS_read, self), 0);

  const Fd master(posix_openpt(O_RDWR | O_NOCTTY));
  REQUIRE_EQ(grantpt(master.get()), 0);
  REQUIRE_EQ(unlockpt(master.get()), 0);
  const Fd terminal(open(ptsname(master.get()), O_RDWR | O_NOCTTY));
  termios set{};
  const auto is_set_to = [&](uint8_t bytes, uint8_t time) {
    set.c_cc[VMIN] = bytes, set.c_cc[VTIME] = time;
    REQUIRE_EQ(tcsetattr(terminal.get(), TCSANOW, &set), 0);
  };
  REQUIRE_EQ(tcgetattr(terminal.get(), &set), 0);
  CHECK_EQ(least(SYS_read, terminal), 0);  // it waits for a line
  cfmakeraw(&set);
  is_set_to(5, 0);
  CHECK_EQ(least(SYS_read, terminal), 5);
  CHECK_EQ(least(SYS_read, master), 0);
  is_set_to(5, 1);
  CHECK_EQ(least(SYS_read, terminal), 0);
}

}  // namespace redrive::transfer_rest_test
