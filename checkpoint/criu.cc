#include "checkpoint/criu.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/fd.h"
#include "base/limits.h"
#include "base/text.h"
#include "checkpoint/stub.h"

namespace redrive {
namespace {

constexpr int kNotFound = 127;

struct Ran {
  int status = 0;      // as shells have it
  std::string output;  // standard output and error
};

Result<Ran> run(std::vector<std::string> words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return errno_error("cannot fork");
  if (child == 0) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(to.get(), STDOUT_FILENO);
    dup2(to.get(), STDERR_FILENO);
    become(std::move(words));
  }
  to = Fd();
  Ran ran;
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(from.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    ran.output.append(buffer, static_cast<size_t>(got));
  }
  int status = 0;
  wait_for(child, status);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The number after "Version: ".
std::string version_in(const std::string& output) {
  std::istringstream words(output);
  std::string word;
  while (words >> word) {
    if (word == "Version:" && words >> word) return word;
  }
  return "of an unknown version";
}

}  // namespace

void become(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  give_back_limits();
  prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);  // which redrive had disabled for itself and its children
  execvp(arguments[0], arguments.data());
  _exit(errno == ENOENT ? kNotFound : kNotFound - 1);
}

std::string first_criu_error(const std::string& log) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const size_t error = line.find("Error (");
    if (error == std::string::npos) continue;
    const size_t end = line.find("): ", error);
    std::string what = end == std::string::npos ? line.substr(error) : line.substr(end + 3);
    if (what.starts_with("rlimit: ") || what.starts_with("exited, ")) continue;  // it goes on without that
    return what;
  }
  return {};
}

Result<Criu> Criu::find(const std::string& what) {
  if (geteuid() != 0) return Error{fmt::format("{} need root, because criu does: run it as root", what)};
  ASSIGN_OR_RETURN(const Ran asked, run({"criu", "--version"}));
  if (asked.status == kNotFound && asked.output.empty()) {
    return Error{"there is no criu in PATH: install it (scripts/deps.sh --criu)"};
  }
  const std::string version = version_in(asked.output);
  ASSIGN_OR_RETURN(const Ran checked, run({"criu", "check"}));
  if (checked.status == 0) return Criu(version);
  const std::string error = first_criu_error(checked.output);
  return Error{fmt::format("criu {} does not work here{}: install 4.1 or newer (scripts/deps.sh --criu)", version,
                           error.empty() ? "" : fmt::format(" ('{}')", printable(error)))};
}

Result<void> Criu::dump(pid_t first, const std::string& directory, const std::string& group) const {
  constexpr const char* kLog = "dump.log";
  ASSIGN_OR_RETURN(const Ran ran, run({"criu", "dump", "--tree", fmt::format("{}", first), "--images-dir", directory,
                                       "--freeze-cgroup", group, "--manage-cgroups=ignore", "--log-file", kLog}));
  const std::string log = directory + "/" + kLog;
  if (ran.status == 0) {
    std::error_code ignored;
    std::filesystem::remove(log, ignored);
    return {};
  }
  std::string error = first_criu_error(content_of(log));
  if (error.empty()) error = first_criu_error(ran.output);
  if (error.empty()) error = fmt::format("it ended with status {}", ran.status);
  // Kernels since 6.16 refuse SO_PASSCRED for sockets of other families.
  constexpr const char* kNoSockets = "Can't get 1:16 opt";
  const bool sockets = error.find(kNoSockets) != std::string::npos;
  return Error{fmt::format("criu {} cannot dump the processes: {}{}", version_, printable(error),
                           sockets ? " (on this kernel, it can dump no TCP or UDP socket)" : "")};
}

}  // namespace redrive
