#include "supervisor/record/attach/guard.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/signals.h"
#include "supervisor/record/attach/healer.h"
#include "supervisor/record/front/interrupts.h"
#include "supervisor/record/front/lifeline.h"

namespace redrive {
namespace {

// Waits, in a thread of its own, until the recorder has let go of the lifeline. If it was killed, stops the processes
// before they come to an instruction that only a recorder could answer.
class Watch {
 public:
  explicit Watch(Healer& healer)
      : thread_([this, &healer](const std::stop_token& over) {
          const sched_param urgent{1};
          setpriority(PRIO_PROCESS, 0, -20);  // these two need privilege
          pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent);
          was_killed_ = wait_for_lifeline(over) == LetGo::killed;
          if (was_killed_) healer.stop(recorded_processes());
        }) {}

  // The recorder has ended.
  bool was_killed() {
    thread_.request_stop();
    thread_.join();
    return was_killed_;
  }

 private:
  bool was_killed_ = false;
  std::jthread thread_;  // the last member: it uses the other
};

// All that redrive can get for a recording. Those that stop a process stop the guard: the recording goes on.
sigset_t awaited_signals() {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  for (int signal = 1; signal < kSignals; ++signal) {
    if (is_for_program(signal) && !stops_the_group(signal)) sigaddset(&awaited, signal);
  }
  return awaited;
}

Error killed(int status, const Result<void>& healed) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const std::string how = signal ? fmt::format("was ended by signal {} ({})", signal, strsignal(signal)) : "has failed";
  const std::string now = healed ? "run on without it" : "run on, but are not as before: " + healed.error().message;
  return Error{fmt::format("the recorder {}; the processes {}; what was written so far can be re-driven", how, now),
               Status{signal ? 128 + signal : WEXITSTATUS(status)}};
}

}  // namespace

Result<std::optional<int>> guard_recorder(const AttachableTree& tree) {
  TRY(make_lifeline());
  Healer healer(tree);
  const sigset_t awaited = awaited_signals();
  sigprocmask(SIG_BLOCK, &awaited, nullptr);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, nullptr);  // if it were ignored, the recorder's status would be lost
  const pid_t guard = getpid();
  const pid_t recorder = fork();
  if (recorder < 0) return errno_error("cannot fork");
  if (recorder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != guard) _exit(128 + SIGTERM);
    hold_lifeline();
    return std::optional<int>();  // signals stay blocked until catch_interrupts()
  }
  Watch watch(healer);
  for (;;) {
    int status = 0;
    if (waitpid(recorder, &status, WNOHANG) == recorder) {
      const bool was_killed = watch.was_killed();
      if (WIFEXITED(status) && !was_killed) return std::optional<int>(WEXITSTATUS(status));
      catch_interrupts();
      return killed(status, healer.heal(injected_call()));
    }
    siginfo_t info{};
    const int signal = sigwaitinfo(&awaited, &info);
    // What the terminal sends, the recorder gets too.
    if (signal > 0 && signal != SIGCHLD && info.si_code <= 0) kill(recorder, signal);
  }
}

}  // namespace redrive
