#include "supervisor/record/guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/notice.h"
#include "supervisor/record/healer.h"
#include "supervisor/record/interrupts.h"

namespace redrive {
namespace {

Error was_killed(int signal, const Result<void>& healed) {
  const std::string state =
      healed ? "run on without it" : "run on without it, but are not as before: " + healed.error().message;
  return Error{fmt::format("the recorder was ended by signal {} ({}); the processes {}; what was written so far can be "
                           "re-driven",
                           signal, strsignal(signal), state),
               Status{128 + signal}};
}

}  // namespace

Result<std::optional<int>> guard_recorder(const AttachableTree& tree) {
  Healer healer(tree);
  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&awaited, signal);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, nullptr);  // if it were ignored, the recorder's status would be lost
  const pid_t guard = getpid();
  const pid_t recorder = fork();
  if (recorder < 0) return errno_error("cannot fork");
  if (recorder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != guard) _exit(128 + SIGTERM);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return std::optional<int>();
  }
  for (;;) {
    int status = 0;
    if (waitpid(recorder, &status, WNOHANG) == recorder) {
      if (WIFEXITED(status)) return std::optional<int>(WEXITSTATUS(status));
      catch_interrupts();
      return was_killed(WTERMSIG(status), healer.heal());
    }
    siginfo_t info{};
    const int signal = sigwaitinfo(&awaited, &info);
    // What the terminal sends, the recorder gets too.
    if (signal > 0 && signal != SIGCHLD && info.si_code <= 0) kill(recorder, signal);
  }
}

}  // namespace redrive
