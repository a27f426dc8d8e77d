#include "supervisor/interrupts.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <thread>

#include "base/fd.h"

namespace redrive {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kSignals = 65;
// The kernel sends to one member of a group after the other.
constexpr auto kSettled = 2ms;

// What came since the last look, by signal. Handlers run in any thread.
struct Came {
  std::atomic<unsigned> count{0};
  std::atomic<pid_t> sender{0};  // 0: the kernel
  std::atomic<bool> ever{false};
};
std::array<Came, kSignals> g_came;
std::array<struct sigaction, kSignals> g_before;
sigset_t g_mask_before;

// Signals that the recorder does not catch: its own faults, its children's news, what stops it and what cannot be
// caught.
bool is_caught(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGABRT:
    case SIGSYS:
    case SIGCHLD:
    case SIGKILL:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
      return false;
    default:
      return signal <= SIGSYS || (signal >= SIGRTMIN && signal <= SIGRTMAX);
  }
}

void note(int signal, siginfo_t* info, void*) {
  Came& came = g_came[static_cast<size_t>(signal)];
  came.ever = true;
  // The timer and writes into closed pipes are our own.
  const bool from_kernel = info->si_code == SI_KERNEL;
  if (from_kernel ? signal == SIGALRM : info->si_pid == getpid()) return;
  came.sender = from_kernel ? 0 : info->si_pid;
  ++came.count;
}

struct Signal {
  int signal = 0;
  pid_t sender = 0;
  Clock::time_point at;
};
std::deque<Signal> g_waiting;  // to be passed on, unless the group got them

// A process of our group that does nothing but get what is sent to the group. It is the child of a thread of its own,
// so that the recorder, which waits for its own children only (__WNOTHREAD), does not see it.
class GroupMember {
 public:
  GroupMember() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    ours_ = Fd(ends[0]);
    thread_ = std::thread([theirs = Fd(ends[1])]() mutable {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        // Nothing of the recorder's must stay open through it: locks, pipes.
        dup2(theirs.get(), 0);
        close_range(1, ~0U, 0);
        answer_all(0);
      }
      theirs = Fd();
      if (child > 0) waitpid(child, nullptr, 0);
    });
  }
  ~GroupMember() {
    ours_ = Fd();  // which ends it
    if (thread_.joinable()) thread_.join();
  }

  // Who sent it the signal since it was last asked; 0 if nobody did, or if it was stopped with the group.
  pid_t sender_of(int signal) {
    const Question question{++asked_, signal};
    if (TEMP_FAILURE_RETRY(send(ours_.get(), &question, sizeof question, MSG_NOSIGNAL)) != sizeof question) return 0;
    const auto end = Clock::now() + kPatience;
    for (auto left = kPatience; left.count() > 0;
         left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now())) {
      pollfd ready{ours_.get(), POLLIN, 0};
      if (poll(&ready, 1, static_cast<int>(left.count())) != 1) continue;  // the timer, mostly
      Answer answer;
      if (recv(ours_.get(), &answer, sizeof answer, 0) != sizeof answer) return 0;
      if (answer.number == asked_) return answer.sender;
    }
    return 0;
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{100};
  struct Question {
    unsigned number = 0;
    int signal = 0;
  };
  struct Answer {
    unsigned number = 0;  // the question's
    pid_t sender = 0;
  };

  [[noreturn]] static void answer_all(int socket) {
    Question question;
    while (read(socket, &question, sizeof question) == sizeof question) {
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, question.signal);
      const timespec now{};
      siginfo_t info{};
      Answer answer{question.number, 0};
      while (sigtimedwait(&one, &info, &now) == question.signal) answer.sender = info.si_pid;
      if (write(socket, &answer, sizeof answer) != sizeof answer) break;
    }
    _exit(0);
  }

  unsigned asked_ = 0;
  Fd ours_;
  std::thread thread_;
};
std::unique_ptr<GroupMember> g_member;

}  // namespace

void catch_interrupts() {
  for (int signal = 1; signal < kSignals; ++signal) {
    if (!is_caught(signal)) continue;
    struct sigaction action {};
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO;
    sigaction(signal, &action, &g_before[static_cast<size_t>(signal)]);
  }
  g_member = std::make_unique<GroupMember>();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, &g_mask_before);
  wake_within(kTick);
}

void wake_within(std::chrono::microseconds time) {
  const itimerval timer{{0, kTick.count()}, {0, std::min(time, kTick).count()}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void give_back_interrupts() {
  for (int signal = 1; signal < kSignals; ++signal) {
    if (is_caught(signal)) sigaction(signal, &g_before[static_cast<size_t>(signal)], nullptr);
  }
  sigprocmask(SIG_SETMASK, &g_mask_before, nullptr);
}

std::vector<int> take_interrupts() {
  const auto now = Clock::now();
  for (int signal = 1; signal < kSignals; ++signal) {
    Came& came = g_came[static_cast<size_t>(signal)];
    for (unsigned n = came.count.exchange(0); n > 0; --n) g_waiting.push_back({signal, came.sender, now});
  }
  std::vector<int> due;
  while (!g_waiting.empty() && g_waiting.front().at <= now - kSettled) {
    const Signal sent = g_waiting.front();
    g_waiting.pop_front();
    const pid_t to_group = g_member->sender_of(sent.signal);
    const bool from_terminal = sent.sender == 0;  // to the whole group
    if (!from_terminal && to_group != sent.sender) {
      due.push_back(sent.signal);
      continue;
    }
    // The kernel keeps one of each for a process that does not take them.
    std::erase_if(g_waiting,
                  [&](const Signal& other) { return other.signal == sent.signal && other.sender == sent.sender; });
  }
  return due;
}

bool was_interrupted_by(int signal) { return g_came.at(static_cast<size_t>(signal)).ever; }

}  // namespace redrive
