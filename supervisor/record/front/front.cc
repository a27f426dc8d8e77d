#include "supervisor/record/front/front.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/procfs.h"
#include "base/signals.h"
#include "checkpoint/stub.h"
#include "supervisor/record/front/interrupts.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The kernel sends to one member of a group after the other.
constexpr auto kSettled = 2ms;
constexpr int kRunning = -1;

// What the front and the recorder share.
struct Wire {
  std::array<std::atomic<unsigned>, kSignals> passed_on{};
  std::atomic<unsigned> stops{0};          // of the program, so far
  std::atomic<int> stopped_by{0};          // 0: it runs
  std::atomic<int> exit_status{kRunning};  // with which the front ends
};
Wire* g_wire = nullptr;
std::atomic<pid_t> g_front{0};  // in the recorder, while there is one
pid_t g_first_front = 0;        // the same, also when it has ended
std::vector<int> g_inherited;   // descriptors above standard error
sigset_t g_mask;
struct sigaction g_child_action;

sigset_t awaited_signals() {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  for (int signal = 1; signal < kSignals; ++signal) {
    if (is_for_program(signal)) sigaddset(&awaited, signal);
  }
  return awaited;
}

// A process of the front's group that does nothing but get what is sent to the group: it blocks every signal, and what
// is pending there was sent to the group. siginfo_t does not say that, and what the program has taken is not always
// seen (sigwait(3), signalfd(2)).
class GroupMember {
 public:
  GroupMember() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    ours_ = Fd(ends[0]);
    const Fd theirs(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_NAME, "group-member");  // a search for redrive by name is meant for the front
      sigset_t all;
      sigfillset(&all);
      sigprocmask(SIG_SETMASK, &all, nullptr);
      dup2(theirs.get(), 0);
      close_range(1, ~0U, 0);
      answer_all(0);
    }
  }
  ~GroupMember() {
    ours_ = Fd();  // which ends it
    int status = 0;
    if (pid_ > 0) wait_for(pid_, status);
  }

  // Whether this process (0: the kernel) has sent the signal to the group since it was last asked. If there is no
  // answer: whether it is the kernel, because nearly all that it sends goes to the group.
  bool was_sent(int signal, pid_t sender) {
    const bool unless_answered = sender == 0;
    const Question question{++asked_, signal};
    if (send(ours_.get(), &question, sizeof question, MSG_NOSIGNAL) != sizeof question) return unless_answered;
    const auto end = Clock::now() + kPatience;
    for (auto left = kPatience; left.count() > 0;
         left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now())) {
      pollfd ready{ours_.get(), POLLIN, 0};
      if (poll(&ready, 1, static_cast<int>(left.count())) != 1) continue;
      Answer answer;
      if (recv(ours_.get(), &answer, sizeof answer, 0) != sizeof answer) break;
      if (answer.number == asked_) return answer.sender == sender;
    }
    return unless_answered;
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{100};
  static constexpr pid_t kNobody = -1;
  struct Question {
    unsigned number = 0;
    int signal = 0;
  };
  struct Answer {
    unsigned number = 0;  // the question's
    pid_t sender = kNobody;
  };

  [[noreturn]] static void answer_all(int socket) {
    Question question;
    while (read(socket, &question, sizeof question) == sizeof question) {
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, question.signal);
      const timespec now{};
      siginfo_t info{};
      Answer answer{question.number, kNobody};
      while (sigtimedwait(&one, &info, &now) == question.signal) answer.sender = info.si_pid;
      if (write(socket, &answer, sizeof answer) != sizeof answer) break;
    }
    _exit(0);
  }

  unsigned asked_ = 0;
  Fd ours_;
  pid_t pid_ = -1;
};

// Ctrl-C, kill(1) and their like, on their way to the program.
class SentSignals {
 public:
  explicit SentSignals(pid_t recorder) : recorder_(recorder) {}

  // Waits until one comes, or the recorder has something to say.
  void wait() {
    const timespec settled{0, std::chrono::nanoseconds(kSettled).count()};
    siginfo_t info;
    const int signal = sigtimedwait(&awaited_, &info, waiting_.empty() ? nullptr : &settled);
    if (signal <= 0 || signal == SIGCHLD) return;
    if (info.si_code <= 0 && info.si_pid == recorder_) return;  // continue_front()
    // As the kernel does with those that are pending.
    if (signal == SIGCONT) std::erase_if(waiting_, [](const Sent& sent) { return stops_the_group(sent.signal); });
    if (stops_the_group(signal)) std::erase_if(waiting_, [](const Sent& sent) { return sent.signal == SIGCONT; });
    waiting_.push_back({signal, info.si_code == SI_KERNEL ? 0 : info.si_pid, Clock::now()});
  }

  // Passes on those that were sent to the front alone.
  void pass_on() {
    bool any = false;
    while (!waiting_.empty() && waiting_.front().at <= Clock::now() - kSettled) {
      const Sent sent = waiting_.front();
      waiting_.pop_front();
      if (member_.was_sent(sent.signal, sent.sender)) {
        // The kernel keeps one of each for a process that does not take them.
        std::erase_if(waiting_,
                      [&](const Sent& other) { return other.signal == sent.signal && other.sender == sent.sender; });
        continue;
      }
      ++g_wire->passed_on[static_cast<size_t>(sent.signal)];
      any = true;
    }
    if (any) kill(recorder_, SIGALRM);
  }

 private:
  struct Sent {
    int signal = 0;
    pid_t sender = 0;  // 0: the kernel
    Clock::time_point at;
  };

  const sigset_t awaited_ = awaited_signals();
  pid_t recorder_;
  GroupMember member_;
  std::deque<Sent> waiting_;
};

// Stops the front as the program was stopped, if it still is.
void stop_by(int signal) {
  if (signal == SIGSTOP) {
    if (g_wire->stopped_by != 0) raise(SIGSTOP);
    return;
  }
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);  // pending now, and a SIGCONT takes it back
  const timespec now{};
  if (g_wire->stopped_by == 0) sigtimedwait(&one, nullptr, &now);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);  // here it stops
  sigprocmask(SIG_BLOCK, &one, nullptr);
}

Result<int> stand(pid_t recorder) {
  SentSignals signals(recorder);
  for (unsigned stops = 0;;) {
    int status = 0;
    const pid_t ended = waitpid(recorder, &status, WNOHANG);
    if (g_wire->exit_status != kRunning) return g_wire->exit_status.load();
    if (ended < 0) return errno_error("cannot wait for the recorder");
    if (ended == recorder && WIFEXITED(status)) return WEXITSTATUS(status);
    if (ended == recorder) {
      return Error{fmt::format("the recorder was ended by signal {} ({}), and the programs with it; what was written "
                               "so far can be re-driven",
                               WTERMSIG(status), strsignal(WTERMSIG(status))),
                   Status{128 + WTERMSIG(status)}};
    }
    if (stops != g_wire->stops) {
      stops = g_wire->stops;
      stop_by(g_wire->stopped_by);
    }
    signals.wait();
    signals.pass_on();
  }
}

void replace_by_null(std::initializer_list<int> descriptors) {
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int descriptor : descriptors) dup2(null.get(), descriptor);
}

std::vector<int> descriptors_behind_standard_error() {
  std::vector<int> found = own_descriptors();
  std::erase_if(found, [](int one) { return one <= STDERR_FILENO || (fcntl(one, F_GETFD) & FD_CLOEXEC); });
  return found;
}

}  // namespace

Result<std::optional<int>> stand_in_front(int standard_error) {
  void* const shared = mmap(nullptr, sizeof(Wire), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return errno_error("cannot map memory");
  g_wire = new (shared) Wire;
  const sigset_t awaited = awaited_signals();
  sigprocmask(SIG_SETMASK, &awaited, &g_mask);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &g_child_action);  // if it were ignored, the recorder's status would be lost
  const pid_t front = getpid();
  const pid_t recorder = fork();
  if (recorder < 0) return errno_error("cannot fork");
  if (recorder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != front) _exit(128 + SIGKILL);
    g_front = g_first_front = front;
    g_inherited = descriptors_behind_standard_error();
    return std::optional<int>();
  }
  replace_by_null({STDIN_FILENO, STDOUT_FILENO});
  dup2(standard_error, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  ASSIGN_OR_RETURN(const int status, stand(recorder));
  return std::optional<int>(status);
}

bool has_front() { return g_front != 0; }

pid_t front_process() { return g_first_front; }

unsigned take_from_front(int signal) {
  if (!g_wire) return 0;  // there never was one
  auto& count = g_wire->passed_on[static_cast<size_t>(signal)];
  return count == 0 ? 0 : count.exchange(0);
}

void stop_front(int signal) {
  if (!has_front() || g_wire->stopped_by.exchange(signal) != 0) return;
  ++g_wire->stops;
  kill(g_front, SIGCHLD);
}

void continue_front() {
  if (has_front() && g_wire->stopped_by.exchange(0) != 0) kill(g_front, SIGCONT);
}

void release_front(int exit_status) {
  if (!has_front()) return;
  prctl(PR_SET_PDEATHSIG, 0);
  setsid();  // signals to the group and a hangup are not meant for the recorder any more
  replace_by_null({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO});
  g_wire->exit_status = exit_status;
  kill(g_front.exchange(0), SIGCHLD);
}

void close_inherited() {
  for (const int descriptor : std::exchange(g_inherited, {})) close(descriptor);
  replace_by_null({STDIN_FILENO, STDOUT_FILENO});
}

const sigset_t& inherited_mask() { return g_mask; }
const struct sigaction& inherited_child_action() { return g_child_action; }

}  // namespace redrive
