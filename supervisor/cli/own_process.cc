#include "supervisor/cli/own_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "checkpoint/stub.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

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
[[noreturn]] void become(char* const* words, int output, int errors, int nice, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  setpriority(PRIO_PROCESS, 0, nice);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  execv("/proc/self/exe", words);
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

Result<OwnProcess> start_redrive(std::vector<std::string> words, int nice) {
  words.insert(words.begin(), "redrive");
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Pipe output, errors;
  if (!output.to || !errors.to) return errno_error("cannot make a pipe");
  const pid_t parent = getpid();
  const Untrapped untrapped;  // the other one inherits it
  const pid_t pid = fork();
  if (pid == 0) become(arguments.data(), output.to.get(), errors.to.get(), nice, parent);
  if (pid < 0) return errno_error("cannot start another redrive");
  return OwnProcess{pid, std::move(output.from), std::move(errors.from)};
}

int wait_for_redrive(OwnProcess process, std::string& output, const std::function<void(std::string_view)>& show) {
  std::string shown;
  for (bool more_output = true, more_errors = true; more_output || more_errors;) {
    pollfd ready[] = {{more_output ? process.output.get() : -1, POLLIN, 0},
                      {more_errors ? process.errors.get() : -1, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;
    if (ready[0].revents) more_output = read_some(process.output.get(), output);
    if (ready[1].revents) {
      shown.clear();
      more_errors = read_some(process.errors.get(), shown);
      show(shown);
    }
  }
  int status = -1;
  return wait_for(process.pid, status) ? status : -1;
}

}  // namespace redrive
