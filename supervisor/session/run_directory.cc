#include "supervisor/session/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.h"

namespace redrive {
namespace {

constexpr size_t kLongestName = 255;
constexpr char kNew[] = ".new";  // no session's name begins with a full stop
constexpr int kWaiting = 128;    // connections
constexpr size_t kMostNames = 8 * UserDirectory::kMostSessions;

// A path of any length for sockets, by way of an open descriptor.
sockaddr_un address_of(int descriptor, const std::string& below = "") {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}{}", descriptor, below);
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

const sockaddr* as_address(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

Error no_session(const std::string& name) {
  return Error{fmt::format("there is no session '{}' (see redrive ps)", printable(name))};
}

std::string path_of(uid_t user) { return fmt::format("{}/{}", run_directory(), user); }

}  // namespace

std::string run_directory() {
  const char* const chosen = std::getenv("REDRIVE_RUN_DIR");
  return chosen && *chosen ? chosen : "/run/redrive";
}

Result<void> check_session_name(const std::string& name) {
  const auto allowed = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_.:@+-\\", c); };
  const bool begins = !name.empty() && (std::isalnum(static_cast<unsigned char>(name[0])) || name[0] == '_');
  if (begins && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), allowed)) return {};
  return Error{fmt::format("'{}' cannot be a session's name: use up to {} letters, digits and any of _.:@+-\\", name,
                           kLongestName),
               Status::usage};
}

Result<UserDirectory> UserDirectory::open(uid_t user) {
  const std::string path = path_of(user);
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return errno_error(path);
  struct stat info {};
  if (fstat(directory.get(), &info) != 0) return errno_error(path);
  if (info.st_uid != user || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Error{fmt::format("{} must belong to user {}, and nobody else may enter it", path, user)};
  }
  return UserDirectory(user, path, std::move(directory));
}

bool UserDirectory::exists(uid_t user) {
  struct stat info {};
  return lstat(path_of(user).c_str(), &info) == 0;
}

Result<UserDirectory> UserDirectory::make(uid_t user) {
  const std::string base = run_directory();
  if (mkdir(base.c_str(), 0755) == 0) {
    chmod(base.c_str(), 0755);  // whatever the umask is
  } else if (errno != EEXIST) {
    return errno_error("cannot make " + base);
  }
  const std::string path = path_of(user);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return errno_error("cannot make " + path);
  const Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return errno_error(path);
  if (user != geteuid() && fchown(directory.get(), user, static_cast<gid_t>(-1)) != 0) {
    return errno_error("cannot give " + path + " to its user");
  }
  return open(user);
}

// Whoever changes names holds the lock, until the descriptor is closed.
Fd UserDirectory::locked() const {
  Fd lock(openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) continue;
  return lock;
}

Result<Fd> UserDirectory::claim(const std::string& name) const {
  const auto failed = [&] { return errno_error(fmt::format("cannot make {}/{}", path_, name)); };
  const Fd lock = locked();
  Fd connection;
  const int other = try_to_connect(name, connection);
  if (other == 0 || other == EAGAIN)
    return Error{fmt::format("there is a session '{}' already (see redrive ps)", name)};
  unlinkat(directory_.get(), kNew, 0);
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return failed();
  const sockaddr_un address = address_of(directory_.get(), std::string("/") + kNew);
  if (bind(listener.get(), as_address(address), sizeof address) != 0) return failed();
  if (listen(listener.get(), kWaiting) != 0) return failed();
  if (renameat(directory_.get(), kNew, directory_.get(), name.c_str()) != 0) return failed();
  return listener;
}

void UserDirectory::forget(const std::string& name) const {
  // The user may hold the lock for ever, and redrived serves others too: then the name stays until it is claimed.
  const Fd lock(openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  Fd connection;
  if (try_to_connect(name, connection) == ECONNREFUSED) unlinkat(directory_.get(), name.c_str(), 0);
}

Result<Fd> UserDirectory::connect(const std::string& name) const {
  Fd connection;
  const int failed = try_to_connect(name, connection);
  if (failed == EAGAIN) return Error{fmt::format("session '{}' is too busy to answer", name)};
  if (failed != 0) return no_session(name);
  return connection;
}

// Returns 0 or the errno. The user may have put anything under this name. So only a socket is connected to, and only
// one of the user's own: root must not be led to other services.
int UserDirectory::try_to_connect(const std::string& name, Fd& connection) const {
  const Fd file(openat(directory_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return errno;
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISSOCK(info.st_mode)) return ENOTSOCK;
  Fd made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = address_of(file.get());
  if (!made || ::connect(made.get(), as_address(address), sizeof address) != 0) return errno;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(made.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return errno;
  if (peer.uid != user_) return EPERM;
  connection = std::move(made);
  return 0;
}

bool UserDirectory::has(const std::string& name) const {
  struct stat info {};
  return check_session_name(name) && fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISSOCK(info.st_mode);
}

std::vector<std::string> UserDirectory::names() const {
  std::vector<std::string> found;
  std::error_code failure;
  const std::string path = fmt::format("/proc/self/fd/{}", directory_.get());
  for (std::filesystem::directory_iterator it(path, failure), end; !failure && it != end && found.size() < kMostNames;
       it.increment(failure)) {
    std::string name = it->path().filename().string();
    if (check_session_name(name) && it->symlink_status(failure).type() == std::filesystem::file_type::socket) {
      found.push_back(std::move(name));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> UserDirectory::sessions() const {
  std::vector<std::string> found;
  for (auto& name : names()) {
    if (found.size() == kMostSessions) break;
    Fd connection;
    const int failed = try_to_connect(name, connection);
    if (failed == 0 || failed == EAGAIN) {
      found.push_back(std::move(name));
    } else {
      forget(name);
    }
  }
  return found;
}

std::vector<uid_t> users_with_directory() {
  std::vector<uid_t> found;
  std::error_code failure;
  for (std::filesystem::directory_iterator it(run_directory(), failure), end; !failure && it != end;
       it.increment(failure)) {
    const auto user = parse_number(it->path().filename().string());
    if (user && *user < static_cast<uid_t>(-1)) found.push_back(static_cast<uid_t>(*user));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace redrive
