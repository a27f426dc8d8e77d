// What was on its way is put into sockets again.
#include "supervisor/live/put_message.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "tests/unit/unit_test.h"

namespace redrive::put_message_test {

namespace {

struct Ends {
  explicit Ends(int type) {
    int fds[2];
    REQUIRE_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    sender = Fd(fds[0]);
    receiver = Fd(fds[1]);
  }
  int room() const {
    int size = 0;
    socklen_t length = sizeof size;
    getsockopt(sender.get(), SOL_SOCKET, SO_SNDBUF, &size, &length);
    return size;
  }
  Fd sender, receiver;
};

LiveMessage message_of(const char* text) {
  LiveMessage message;
  while (*text) message.bytes.push_back(static_cast<uint8_t>(*text++));
  return message;
}

}  // namespace

TEST_CASE("put_message: small messages fit, and then the socket's buffer is as large as it was") {
  for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
    const Ends ends(type);
    const int few = 20'000;
    setsockopt(ends.sender.get(), SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
    const int before = ends.room();
    for (int i = 0; i < 200; ++i) CHECK_EQ(put_message(ends.sender.get(), {}, message_of("seven")).error, 0);
    CHECK_EQ(ends.room(), before);
    size_t bytes = 0;
    char buffer[100];
    for (ssize_t n = 0; (n = read(ends.receiver.get(), buffer, sizeof buffer)) > 0;) bytes += static_cast<size_t>(n);
    CHECK_EQ(bytes, 1000);
  }
}

TEST_CASE("put_message: an empty message is one, too") {
  const Ends ends(SOCK_DGRAM);
  CHECK_EQ(put_message(ends.sender.get(), {}, {}).error, 0);
  char byte = 0;
  CHECK_EQ(read(ends.receiver.get(), &byte, 1), 0);
}

TEST_CASE("put_message: says how much was taken, and why no more") {
  Ends ends(SOCK_STREAM);
  ends.receiver = Fd();
  auto* const action = ::signal(SIGPIPE, SIG_IGN);
  const Put put = put_message(ends.sender.get(), {}, message_of("none"));
  ::signal(SIGPIPE, action);
  CHECK_EQ(put.bytes, 0);
  CHECK_EQ(put.error, EPIPE);
}

TEST_CASE("put_message: the last byte of a message is urgent, and its place stays when it was taken") {
  const Ends ends(SOCK_STREAM);
  LiveMessage message = message_of("de!");
  message.urgent = true;
  REQUIRE_EQ(put_message(ends.sender.get(), {}, message).bytes, 3);
  take_urgent(ends.receiver.get());
  put_message(ends.sender.get(), {}, message_of("xyz"));
  char buffer[10];
  CHECK_EQ(recv(ends.receiver.get(), buffer, sizeof buffer, MSG_OOB), -1);
  CHECK_EQ(read(ends.receiver.get(), buffer, sizeof buffer), 2);
  CHECK_EQ(read(ends.receiver.get(), buffer, sizeof buffer), 3);
}

}  // namespace redrive::put_message_test
