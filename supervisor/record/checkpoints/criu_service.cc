#include "supervisor/record/checkpoints/criu_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/procfs.h"
#include "base/text.h"
#include "checkpoint/criu.h"
#include "checkpoint/criu_rpc.pb.h"

namespace redrive {
namespace {

constexpr char kSocket[] = "/socket";
constexpr char kLog[] = "log";
constexpr int kErrors = 1;  // the log level

// A file system in memory that is mounted nowhere.
Result<Fd> make_directory() {
  const Fd context(fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!context || fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return errno_error("cannot make a file system in memory for CRIU");
  }
  Fd directory(fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
  if (!directory) return errno_error("cannot make a file system in memory for CRIU");
  return directory;
}

Result<Fd> connect_to(const std::string& path) {
  Fd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (connection && connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    return connection;
  }
  return errno_error("cannot reach CRIU");
}

std::string request_of(pid_t pid, const Fd& directory) {
  criu::criu_req request;
  request.set_type(criu::DUMP);
  auto& options = *request.mutable_opts();
  options.set_images_dir_fd(directory.get());
  options.set_pid(pid);
  options.set_leave_running(true);
  options.set_log_level(kErrors);
  options.set_log_file(kLog);
  options.set_manage_cgroups(true);
  options.set_manage_cgroups_mode(criu::IGNORE);
  options.set_network_lock(criu::SKIP);
  return request.SerializeAsString();
}

std::string error_in(const Fd& directory) {
  std::ifstream log(own_descriptor_path(directory.get()) + "/" + kLog);
  const std::string error = first_criu_error(std::string(std::istreambuf_iterator<char>(log), {}));
  return error.empty() ? "criu has ended without an answer" : printable(error);
}

uint64_t blocks_in(const Fd& directory) {
  struct statfs info {};
  return fstatfs(directory.get(), &info) == 0 ? info.f_blocks - info.f_bfree : 0;
}

// Waits until there is something to receive. False if CRIU has written nothing for so long that nothing will come.
bool wait_for_answer(const Fd& connection, const Fd& directory) {
  constexpr int kLook_ms = 1000, kMostLooks = 30;
  uint64_t written = 0;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    pollfd answer{connection.get(), POLLIN, 0};
    if (poll(&answer, 1, kLook_ms) > 0) return true;
    const uint64_t now = blocks_in(directory);
    if (std::exchange(written, now) != now) looks = 0;
  }
  return false;
}

}  // namespace

Result<CriuService> CriuService::start() {
  ASSIGN_OR_RETURN(Fd place, make_directory());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd ready(ends[0]);
  Fd tells(ends[1]);
  const std::string path = own_descriptor_path(place.get()) + kSocket;
  std::vector<std::string> words{"service", "--address", path, "--status-fd", fmt::format("{}", tells.get())};
  const pid_t pid = fork();
  if (pid < 0) return errno_error("cannot fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    setsid();  // what the user types to end the program is not for it
    const int nothing = open("/dev/null", O_RDWR);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, standard);
    for (const int kept : {place.get(), tells.get()}) fcntl(kept, F_SETFD, 0);
    become_criu(std::move(words));
  }
  CriuService service(pid, std::move(place));
  tells = Fd();
  char byte = 0;
  ssize_t got = 0;
  while ((got = read(ready.get(), &byte, 1)) < 0 && errno == EINTR) {
  }
  if (got == 1) return service;
  return Error{"criu does not run as a service"};
}

Result<Fd> CriuService::dump(pid_t pid) {
  if (pid_ < 0) return Error{"criu has ended"};
  ASSIGN_OR_RETURN(Fd directory, make_directory());
  ASSIGN_OR_RETURN(const Fd connection, connect_to(own_descriptor_path(place_.get()) + kSocket));
  const std::string request = request_of(pid, directory);
  if (send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return errno_error("cannot ask CRIU");
  if (!wait_for_answer(connection, directory)) {
    kill(-pid_, SIGKILL);  // it leads its group, in which its dumps are
    end();
    return Error{"criu wrote nothing for half a minute, and was killed"};
  }
  char answer[4096];
  ssize_t size = 0;
  while ((size = recv(connection.get(), answer, sizeof answer, 0)) < 0 && errno == EINTR) {
  }
  criu::criu_resp response;
  if (size > 0 && response.ParseFromArray(answer, static_cast<int>(size)) && response.success()) return directory;
  return Error{error_in(directory)};
}

uint64_t CriuService::end() {
  if (pid_ < 0) return 0;
  kill(pid_, SIGTERM);
  int status = 0;
  rusage used{};
  while (wait4(pid_, &status, 0, &used) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

}  // namespace redrive
