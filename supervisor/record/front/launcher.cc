#include "supervisor/record/front/launcher.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>

#include "base/limits.h"
#include "base/private_files.h"
#include "interceptors/syscall_table.h"
#include "supervisor/record/front/exit_status.h"
#include "supervisor/record/front/front.h"
#include "supervisor/record/front/interrupts.h"

namespace redrive {
namespace {

// systemd tells the process that it starts by number that descriptors, the watchdog and so on are meant for it
// (sd_listen_fds(3), sd_watchdog_enabled(3), systemd.exec(5)). That process is the front; the program is what it means.
constexpr const char* kOwnNumber[] = {"LISTEN_PID=", "WATCHDOG_PID=", "SYSTEMD_EXEC_PID="};

// The environment, in which a process can put its own number where the front's was.
class Environment {
 public:
  Environment() {
    const std::string front = std::to_string(front_process());
    for (char** variable = environ; variable && *variable; ++variable) {
      for (const char* const name : kOwnNumber) {
        if (*variable == name + front) mine_.push_back({name, variables_.size()});
      }
      variables_.push_back(*variable);
    }
    variables_.push_back(nullptr);
  }
  // In the new process, which must not allocate memory.
  char* const* for_this_process() {
    for (Mine& mine : mine_) {
      char* const end = mine.text.data() + mine.text.size();
      char* const number = std::copy_n(mine.name, std::strlen(mine.name), mine.text.data());
      *std::to_chars(number, end, getpid()).ptr = 0;
      variables_[mine.place] = mine.text.data();
    }
    return variables_.data();
  }

 private:
  struct Mine {
    const char* name;
    size_t place;
    std::array<char, 40> text{};
  };
  std::vector<char*> variables_;
  std::vector<Mine> mine_;
};

// Runs in the new process. `failed` is what a message about a failure begins with.
[[noreturn]] void execute(const Fd& go, const char* path, char* const* arguments, Environment& environment,
                          const sock_fprog& filter, const std::string& failed) {
  char byte = 0;
  const bool told = read(go.get(), &byte, 1) == 1;
  give_back_interrupts();
  give_back_umask();
  give_back_limits();
  if (told && prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0) {
    execve(path, arguments, environment.for_this_process());
    const char* const why = strerrordesc_np(errno);
    const iovec line[] = {{const_cast<char*>(failed.data()), failed.size()},
                          {const_cast<char*>(why), std::strlen(why)},
                          {const_cast<char*>("\n"), 1}};
    static_cast<void>(writev(STDERR_FILENO, line, std::size(line)) < 0);
  }
  _exit(static_cast<int>(kCannotExecute));
}

}  // namespace

Result<Launcher::Filter> Launcher::filter(const GateArena* arena) {
  std::vector<ExactCall> calls{fatal_call(true), fatal_call(false)};
  std::vector<UntracedSite> untraced;
  if (arena) {
    const auto loaders = arena->loader_calls();
    calls.insert(calls.end(), loaders.begin(), loaders.end());
    untraced = arena->untraced();
  }
  return seccomp_filter(untraced, arena ? arena->header().boundary : 0, calls);
}

Result<Launcher> Launcher::fork(const std::string& path, const std::vector<std::string>& arguments,
                                const Filter& filter) {
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd read_end(go[0]);
  Fd write_end(go[1]);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string failed = "redrive: " + path + ": ";
  Environment environment;
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot fork");
  if (pid == 0) {
    ::close(write_end.get());  // the recorder's end is the end of the pipe
    execute(read_end, path.c_str(), argv.data(), environment, program, failed);
  }
  return Launcher(pid, std::move(write_end));
}

Result<void> Launcher::go() {
  if (write(pipe_.get(), "g", 1) != 1) return errno_error("cannot start the program");
  return {};
}

}  // namespace redrive
