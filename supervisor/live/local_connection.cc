#include "supervisor/live/local_connection.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "checkpoint/stub.h"
#include "supervisor/live/temporary_directory.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

int error_unless(bool done) { return done ? 0 : errno; }

Fd socket_of(int type) { return Fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0)); }

// To the name; without one, or if somebody else has it, to one that the kernel chooses. Directories are made.
int bind_to(int fd, const Bytes& name) {
  sockaddr_un address{};
  std::memcpy(&address, name.data(), std::min(name.size(), sizeof address - 1));
  const bool named = name.size() > sizeof(sa_family_t);
  if (named && address.sun_path[0]) {
    std::error_code ignored;
    fs::create_directories(fs::path(address.sun_path).parent_path(), ignored);
  }
  if (named && bind(fd, reinterpret_cast<const sockaddr*>(name.data()), static_cast<socklen_t>(name.size())) == 0) {
    return 0;
  }
  address.sun_family = AF_UNIX;
  return error_unless(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)) == 0);
}

int connect_to(int fd, int listener) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  return error_unless(getsockname(listener, name, &size) == 0 && connect(fd, name, size) == 0);
}

}  // namespace

int do_as(int32_t process, const std::string& root, const std::function<int()>& act) {
  if (process <= 0 && root.empty()) return act();
  clone_args how{};
  how.flags = CLONE_FILES;
  if (process > 0) {
    how.set_tid = reinterpret_cast<uint64_t>(&process);
    how.set_tid_size = 1;
  }
  long made = syscall(SYS_clone3, &how, sizeof how);
  if (made < 0 && process > 0) {
    how.set_tid = how.set_tid_size = 0;
    made = syscall(SYS_clone3, &how, sizeof how);
  }
  if (made < 0) return errno;
  if (made == 0) {
    const bool there = root.empty() || (chroot(root.c_str()) == 0 && chdir("/") == 0);
    _exit(there ? act() : errno);
  }
  int status = 0;
  if (!wait_for(static_cast<pid_t>(made), status)) return errno;
  return WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
}

Result<Ends> make_socket_pair(int type, int32_t process) {
  Fd first = socket_of(type), second = socket_of(type);
  const int err = do_as(process, {}, [&] {
    int ends[2];
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return errno;
    const int failed =
        error_unless(dup3(ends[0], first.get(), O_CLOEXEC) >= 0 && dup3(ends[1], second.get(), O_CLOEXEC) >= 0);
    for (const int fd : ends) close(fd);
    return failed;
  });
  if (err) return errno_error("cannot make a socket pair", err);
  return Ends(std::move(first), std::move(second));
}

Result<Ends> connect_locally(int type, const LocalEnd& connecting, const LocalEnd& accepted) {
  const TemporaryDirectory names;
  // Without it, names cannot be given without making files.
  const std::string root = names ? names.path() : "";
  const Bytes own = names ? connecting.name : Bytes(), listeners = names ? accepted.name : Bytes();
  Fd end = socket_of(type);
  const Fd listener = socket_of(type);
  int err = do_as(accepted.process, root, [&] {
    const int failed = bind_to(listener.get(), listeners);
    return failed ? failed : error_unless(listen(listener.get(), 1) == 0);
  });
  if (!err) {
    err = do_as(connecting.process, root, [&] {
      const bool named = own.size() > sizeof(sa_family_t);
      const int failed = named ? bind_to(end.get(), own) : 0;
      return failed ? failed : connect_to(end.get(), listener.get());
    });
  }
  Fd other(err ? -1 : accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!other) return errno_error("cannot connect two processes", err ? err : errno);
  return Ends(std::move(end), std::move(other));
}

}  // namespace redrive
