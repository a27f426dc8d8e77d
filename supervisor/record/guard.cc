#include "supervisor/record/guard.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "supervisor/record/healer.h"
#include "supervisor/record/interrupts.h"

namespace redrive {
namespace {

// A lock in memory that both share. The thread that traces holds it as long as it may trace somebody. If that is
// killed, the kernel passes the lock on, and only then lets the tracees run (do_exit(), kernel/exit.c).
struct Lifeline {
  pthread_mutex_t lock;
  std::atomic<bool> held{false};
  InjectedCall injected;
  RecordedProcesses recorded;
};
Lifeline* g_lifeline = nullptr;

Result<void> make_lifeline() {
  void* const shared = mmap(nullptr, sizeof(Lifeline), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return errno_error("cannot map memory");
  g_lifeline = new (shared) Lifeline;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  CHECK(pthread_mutex_init(&g_lifeline->lock, &attributes) == 0);
  return {};
}

// Waits, in a thread of its own, until the recorder has let go of the lifeline. If it was killed, stops the processes
// before they come to an instruction that only a recorder could answer.
class Watch {
 public:
  explicit Watch(Healer& healer)
      : thread_([this, &healer](const std::stop_token& over) {
          const sched_param urgent{1};
          setpriority(PRIO_PROCESS, 0, -20);  // these two need privilege
          pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent);
          while (!g_lifeline->held) {
            if (over.stop_requested()) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          was_killed_ = pthread_mutex_lock(&g_lifeline->lock) == EOWNERDEAD;
          if (was_killed_) healer.stop(g_lifeline->recorded);
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
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&awaited, signal);
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
    pthread_mutex_lock(&g_lifeline->lock);
    g_lifeline->held = true;
    return std::optional<int>();  // signals stay blocked until catch_interrupts()
  }
  Watch watch(healer);
  for (;;) {
    int status = 0;
    if (waitpid(recorder, &status, WNOHANG) == recorder) {
      const bool was_killed = watch.was_killed();
      if (WIFEXITED(status) && !was_killed) return std::optional<int>(WEXITSTATUS(status));
      catch_interrupts();
      return killed(status, healer.heal(g_lifeline->injected));
    }
    siginfo_t info{};
    const int signal = sigwaitinfo(&awaited, &info);
    // What the terminal sends, the recorder gets too.
    if (signal > 0 && signal != SIGCHLD && info.si_code <= 0) kill(recorder, signal);
  }
}

void release_guard() {
  if (g_lifeline) pthread_mutex_unlock(&g_lifeline->lock);
}

void note_injected(pid_t tid, const user_regs_struct& regs, uint64_t mask) {
  if (!g_lifeline) return;
  g_lifeline->injected.regs = regs;
  g_lifeline->injected.mask = mask;
  g_lifeline->injected.tid = tid;
}

void forget_injected() {
  if (g_lifeline) g_lifeline->injected.tid = 0;
}

void note_recorded(pid_t pid) {
  if (g_lifeline) g_lifeline->recorded.add(pid);
}

void forget_recorded(pid_t pid) {
  if (g_lifeline) g_lifeline->recorded.remove(pid);
}

}  // namespace redrive
