#include "checkpoint/criu.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/fd.h"
#include "base/limits.h"
#include "base/path_search.h"
#include "base/text.h"
#include "checkpoint/stub.h"

namespace redrive {
namespace {

constexpr int kNotStarted = 127;

struct Ran {
  int status = 0;      // as shells have it
  std::string output;  // standard output and error
};

struct StartingCriu {
  char* const* arguments;  // the first is the program's path
  char* const* environment;
  int output;
  bool lifted;  // it restores, with the limits that redrive has lifted
};

// What redrive has changed for itself and its children.
REDRIVE_ON_OUR_MEMORY
void undo_own_settings() {
  prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::vector<char*> arguments_of(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return arguments;
}

REDRIVE_ON_OUR_MEMORY
int start(void* arg) {
  const auto& starting = *static_cast<const StartingCriu*>(arg);
  dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(starting.output, STDOUT_FILENO);
  dup2(starting.output, STDERR_FILENO);
  if (starting.lifted) {
    syscall(SYS_setgroups, 0, nullptr);  // which restored processes would inherit
  } else {
    give_back_limits();
  }
  undo_own_settings();
  execve(starting.arguments[0], starting.arguments, starting.environment);
  _exit(kNotStarted);
}

std::vector<char*> criu_environment() {
  const std::string_view setting = kCriuWithoutBreakpoints;
  const std::string_view name = setting.substr(0, setting.find('=') + 1);
  std::vector<char*> environment;
  for (char** each = environ; *each; ++each) {
    if (!std::string_view(*each).starts_with(name)) environment.push_back(*each);
  }
  environment.push_back(const_cast<char*>(kCriuWithoutBreakpoints));  // as execve(2) takes it
  environment.push_back(nullptr);
  return environment;
}

// Runs CRIU, in the namespaces if there are any given.
Result<Ran> run(std::vector<std::string> words, const StubNamespaces* namespaces = nullptr) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  std::vector<char*> arguments = arguments_of(words);
  std::vector<char*> environment = criu_environment();
  StartingCriu starting{arguments.data(), environment.data(), to.get(), namespaces != nullptr};
  ASSIGN_OR_RETURN(const pid_t child,
                   namespaces ? namespaces->spawn(start, &starting) : StubNamespaces::spawn_outside(start, &starting));
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

void become_criu(std::vector<std::string> words) {
  words.insert(words.begin(), "criu");
  const std::vector<char*> arguments = arguments_of(words);
  const std::vector<char*> environment = criu_environment();
  give_back_limits();
  undo_own_settings();
  execvpe(arguments[0], arguments.data(), environment.data());
  _exit(kNotStarted);
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

bool is_criu_new_enough(const std::string& version) {
  constexpr int kMajor = 4, kMinor = 1;
  std::istringstream text(version);
  int major = 0, minor = 0;
  char dot = 0;
  return text >> major >> dot >> minor && dot == '.' && std::pair(major, minor) >= std::pair(kMajor, kMinor);
}

Result<Criu> Criu::find(const std::string& what) {
  if (geteuid() != 0) return Error{fmt::format("{} need root, because criu does: run it as root", what)};
  const std::string found = find_in_path("criu");
  if (!is_executable_file(found)) return Error{"there is no criu in PATH: install it (scripts/deps.sh --criu)"};
  const std::string program = std::filesystem::absolute(found).string();
  ASSIGN_OR_RETURN(const Ran asked, run({program, "--version"}));
  const std::string version = version_in(asked.output);
  ASSIGN_OR_RETURN(const Ran checked, run({program, "check"}));
  if (checked.status == 0 && is_criu_new_enough(version)) return Criu(program, version);
  const std::string error = checked.status == 0 ? std::string("it is too old") : first_criu_error(checked.output);
  return Error{fmt::format("criu {} does not work here{}: install 4.1 or newer (scripts/deps.sh --criu)", version,
                           error.empty() ? "" : fmt::format(" ('{}')", printable(error)))};
}

Error Criu::failure(const std::string& doing, const std::string& log, const std::string& output, int status) const {
  std::string error = first_criu_error(content_of(log));
  if (error.empty()) error = first_criu_error(output);
  if (error.empty()) error = fmt::format("it ended with status {}", status);
  return Error{fmt::format("criu {} cannot {}: {}", version_, doing, printable(error))};
}

Result<void> Criu::dump(pid_t first, const std::string& directory, const std::string& group) const {
  constexpr const char* kLog = "dump.log";
  ASSIGN_OR_RETURN(const Ran ran, run({program_, "dump", "--tree", fmt::format("{}", first), "--images-dir", directory,
                                       "--freeze-cgroup", group, "--manage-cgroups=ignore", "--log-file", kLog}));
  const std::string log = directory + "/" + kLog;
  if (ran.status == 0) {
    std::error_code ignored;
    std::filesystem::remove(log, ignored);
    return {};
  }
  Error error = failure("dump the processes", log, ran.output, ran.status);
  // Kernels since 6.16 refuse SO_PASSCRED for sockets of other families.
  constexpr const char* kNoSockets = "Can't get 1:16 opt";
  if (error.message.find(kNoSockets) != std::string::npos) {
    error.message += " (on this kernel, it can dump no TCP or UDP socket)";
  }
  return error;
}

Result<void> Criu::restore(const StubNamespaces& namespaces, const std::string& directory,
                           const std::string& seen) const {
  constexpr const char* kLog = "restore.log";
  ASSIGN_OR_RETURN(const Ran ran,
                   run({program_, "restore", "--images-dir", directory, "--restore-detached", "--leave-stopped",
                        "--network-lock", "skip", "--manage-cgroups=ignore", "--log-file", kLog},
                       &namespaces));
  if (ran.status == 0) return {};
  return failure("restore a process", seen + "/" + kLog, ran.output, ran.status);
}

}  // namespace redrive
