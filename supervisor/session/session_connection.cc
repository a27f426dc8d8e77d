#include "supervisor/session/session_connection.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "supervisor/session/run_directory.h"

namespace redrive {

Result<std::unique_ptr<SessionConnection>> SessionConnection::open(const SessionName& session, sd_event* loop) {
  constexpr char kCannot[] = "cannot connect to the session";
  const Systemd& sd = systemd();
  ASSIGN_OR_RETURN(const UserDirectory directory, UserDirectory::open(session.user));
  ASSIGN_OR_RETURN(Fd socket, directory.connect(session.name));
  // Not a pipe: without Unix sockets on both sides, libsystemd asserts that the handshake has two lines, and a session
  // that sends a third one would end the process.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return errno_error(kCannot);
  const Fd read_by_bus(ends[0]);
  std::unique_ptr<SessionConnection> made(new SessionConnection(std::move(socket), Fd(ends[1])));
  sd_bus* bus = nullptr;
  TRY(check_systemd(sd.bus_new(&bus), kCannot));
  made->bus_.reset(bus);
  // Both are the bus's own.
  const int input = fcntl(read_by_bus.get(), F_DUPFD_CLOEXEC, 3);
  const int output = fcntl(made->socket_.get(), F_DUPFD_CLOEXEC, 3);
  if (input < 0 || output < 0) {
    Error failed = errno_error(kCannot);
    if (input >= 0) close(input);
    return failed;
  }
  TRY(check_systemd(sd.bus_set_fd(bus, input, output), kCannot));
  TRY(check_systemd(sd.bus_start(bus), kCannot));
  TRY(check_systemd(sd.bus_attach_event(bus, loop, SD_EVENT_PRIORITY_NORMAL), kCannot));
  const auto readable = [](sd_event_source*, int, uint32_t, void* self) {
    static_cast<SessionConnection*>(self)->pass_on();
    return 0;
  };
  sd_event_source* source = nullptr;
  TRY(check_systemd(sd.event_add_io(loop, &source, made->socket_.get(), EPOLLIN, readable, made.get()), kCannot));
  made->readable_.reset(source);
  return made;
}

void SessionConnection::pass_on() {
  std::array<char, 16 << 10> buffer;
  const ssize_t found = recv(socket_.get(), buffer.data(), std::min(buffer.size(), left_), MSG_PEEK);
  const ssize_t passed =
      found > 0 ? send(to_bus_.get(), buffer.data(), static_cast<size_t>(found), MSG_NOSIGNAL) : found;
  if (passed < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (passed > 0) {
    recv(socket_.get(), buffer.data(), static_cast<size_t>(passed), 0);
    left_ -= static_cast<size_t>(passed);
    if (left_ > 0) return;
  }
  readable_.reset();
  to_bus_ = Fd();
}

}  // namespace redrive
