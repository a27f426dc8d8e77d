#include "supervisor/cli/self_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/notice.h"
#include "checkpoint/stub.h"

namespace redrive {
namespace {

constexpr int kNice = 10;

struct Pipe {
  Pipe() {
    int both[2];
    if (pipe2(both, O_CLOEXEC) != 0) return;
    from = Fd(both[0]);
    to = Fd(both[1]);
  }
  Fd from, to;
};

// In the child: only what signal-safety(7) allows.
[[noreturn]] void become(const char* const* words, int output, int errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  setpriority(PRIO_PROCESS, 0, kNice);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  execv("/proc/self/exe", const_cast<char* const*>(words));
  _exit(1);
}

// Appends what there is to read. False at the end.
bool read_some(int from, std::string& to) {
  char bytes[4096];
  const ssize_t size = read(from, bytes, sizeof bytes);
  if (size < 0 && errno == EINTR) return true;
  if (size <= 0) return false;
  to.append(bytes, static_cast<size_t>(size));
  return true;
}

}  // namespace

SelfCheck::SelfCheck(const std::string& directory, bool in_process)
    : thread_([this, path = std::filesystem::absolute(directory).string(), in_process] { run(path, in_process); }) {}

SelfCheck::~SelfCheck() {
  if (!thread_.joinable()) return;
  if (const pid_t process = process_; process > 0) kill(process, SIGKILL);
  thread_.join();
}

// The recorder waits for children of its own thread only, so it does not meet this one.
void SelfCheck::run(const std::string& directory, bool in_process) {
  Pipe output, errors;
  if (!output.to || !errors.to) return;
  const char* const words[] = {
      "redrive",         "replay", "--all", "--follow", "--json", "--interception", in_process ? "in-process" : "stops",
      directory.c_str(), nullptr};
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) become(words, output.to.get(), errors.to.get(), parent);
  output.to = Fd();
  errors.to = Fd();
  if (process < 0) return;
  process_ = process;
  std::string shown;
  for (bool more_output = true, more_errors = true; more_output || more_errors;) {
    pollfd ready[] = {{more_output ? output.from.get() : -1, POLLIN, 0},
                      {more_errors ? errors.from.get() : -1, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;
    if (ready[0].revents) more_output = read_some(output.from.get(), said_);
    if (ready[1].revents) {
      shown.clear();
      more_errors = read_some(errors.from.get(), shown);
      write_error(shown);
    }
  }
  int status = 0;
  if (wait_for(process, status)) status_ = status;
  process_ = -1;
}

Result<SelfChecked> SelfCheck::finish() {
  thread_.join();
  const auto said = nlohmann::json::parse(said_, nullptr, false);
  if (!WIFEXITED(status_) || !said.is_object()) {
    return Error{status_ < 0 ? "it could not be started" : "it ended without a result"};
  }
  SelfChecked checked;
  checked.intervals = said.at("intervals").size();
  for (const auto& interval : said.at("intervals")) checked.compared += interval.at("verified").get<bool>();
  checked.followed = said.at("followed");
  checked.divergences = said.at("divergences").get<uint64_t>() + said.at("followed_divergences").get<uint64_t>();
  for (const auto& interval : said.at("intervals")) {
    if (checked.divergences == 0 && !interval.at("error").is_null())
      return Error{interval.at("error").get<std::string>()};
  }
  return checked;
}

}  // namespace redrive
