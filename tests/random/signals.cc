// Signals and timers. What affects the whole process happens in a child of its own.
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>

#include <csetjmp>
#include <ctime>
#include <thread>

#include "program.h"

namespace {

thread_local volatile int handled;
thread_local volatile uint64_t handled_values;

void count_signal(int, siginfo_t* info, void*) {
  handled = handled + 1;
  handled_values = handled_values * 31 + static_cast<uint64_t>(info->si_value.sival_int);
}

void handle(int signal, int flags) {
  struct sigaction action = {};
  action.sa_sigaction = count_signal;
  action.sa_flags = SA_SIGINFO | flags;
  MUST(sigaction(signal, &action, nullptr));
}

sigset_t set_of(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

void block(int how, int signal) {
  const sigset_t set = set_of(signal);
  MUST0(pthread_sigmask(how, &set, nullptr));
}

void queue_to_self(int signal, int value) {
  MUST0(pthread_sigqueue(pthread_self(), signal, sigval{.sival_int = value}));
}

// A thread sends a signal to itself, blocked or not, on an alternate stack or not.
uint64_t to_itself(Actor& actor) {
  std::vector<unsigned char> stack(64 * 1024);
  const bool other_stack = actor.random.coin();
  if (other_stack) {
    const stack_t own = {stack.data(), 0, stack.size()};
    MUST(sigaltstack(&own, nullptr));
  }
  const bool nested = actor.random.coin();  // if several are pending, the handler of the last one then runs first
  handle(actor.signal, (other_stack ? SA_ONSTACK : 0) | (nested ? SA_NODEFER : 0));
  handled = 0;
  handled_values = 0;
  uint64_t wanted = 0;
  int sent = 0;
  for (int round = actor.random.between(1, 6); round > 0; round--) {
    const bool blocked = actor.random.coin();
    if (!blocked) block(SIG_UNBLOCK, actor.signal);
    for (int i = actor.random.between(1, 6); i > 0; i--) {
      const int value = actor.random.below(1000);
      queue_to_self(actor.signal, value);
      wanted = wanted * 31 + static_cast<uint64_t>(value);
      sent++;
    }
    block(SIG_UNBLOCK, actor.signal);
    CHECK(handled == sent);
    block(SIG_BLOCK, actor.signal);
  }
  CHECK(nested || handled_values == wanted);
  if (other_stack) {
    const stack_t none = {nullptr, SS_DISABLE, 0};
    MUST(sigaltstack(&none, nullptr));
  }
  return wanted;
}

// Values that a thread or child sends are received one by one, in their order.
uint64_t awaited(Actor& actor) {
  const int count = actor.random.between(1, 20), way = actor.random.below(4), signal = actor.signal;
  const pthread_t self = pthread_self();
  handle(signal, 0);
  handled = 0;
  handled_values = 0;
  std::thread sender([&] {
    for (int i = 1; i <= count; i++) {
      MUST0(pthread_sigqueue(self, signal, sigval{.sival_int = i}));
      if (i % 3 == 0) spend(100);
    }
  });
  const sigset_t set = set_of(signal);
  uint64_t wanted = 0, found = 0;
  for (int i = 1; i <= count; i++) wanted = wanted * 31 + static_cast<uint64_t>(i);
  if (way == 0) {
    const int fd = MUST(signalfd(-1, &set, SFD_CLOEXEC));
    for (int i = 0; i < count; i++) {
      signalfd_siginfo info;
      read_fully(actor, fd, &info, sizeof info);
      found = found * 31 + static_cast<uint64_t>(info.ssi_int);
    }
    close(fd);
  } else if (way == 1) {
    sigset_t open;
    MUST0(pthread_sigmask(SIG_BLOCK, nullptr, &open));
    sigdelset(&open, signal);
    while (handled < count) {
      CHECK(sigsuspend(&open) == -1 && errno == EINTR);
      actor.note(static_cast<uint64_t>(handled));
    }
    found = handled_values;
  } else {
    for (int i = 0; i < count; i++) {
      siginfo_t info = {};
      const timespec limit = {20, 0};
      again(actor, [&] { return way == 2 ? sigwaitinfo(&set, &info) : sigtimedwait(&set, &info, &limit); });
      found = found * 31 + static_cast<uint64_t>(info.si_value.sival_int);
    }
  }
  sender.join();
  CHECK(found == wanted);
  return found;
}

// A thread that sleeps in some call is interrupted again and again.
uint64_t interrupted(Actor& actor) {
  const int signal = actor.signal + 1, way = actor.random.below(5), count = actor.random.between(1, 10);
  const bool restart = actor.random.coin();
  int fds[2];
  MUST(pipe2(fds, O_CLOEXEC));
  handle(signal, restart ? SA_RESTART : 0);
  handled = 0;
  handled_values = 0;
  const pthread_t self = pthread_self();
  const int pause_us = actor.random.below(400);
  std::thread sender([&, pause_us] {
    for (int i = 0; i < count; i++) {
      MUST0(pthread_sigqueue(self, signal, sigval{.sival_int = i}));
      const timespec pause = {0, pause_us * 1000};
      nanosleep(&pause, nullptr);
    }
    CHECK(write(fds[1], "x", 1) == 1);
  });
  block(SIG_UNBLOCK, signal);
  char byte = 0;
  for (bool done = false; !done;) {
    pollfd one = {fds[0], POLLIN, 0};
    timespec left = {0, 2000000};
    long result = 0;
    switch (way) {
      case 0:
        result = read(fds[0], &byte, 1);
        done = result == 1;
        break;
      case 1:
        result = poll(&one, 1, 3);
        done = result == 1 && read(fds[0], &byte, 1) == 1;
        break;
      case 2:
        result = nanosleep(&left, &left);
        break;
      case 3:
        result = clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left);
        break;
      default:
        result = ppoll(&one, 1, &left, nullptr);
        done = result == 1 && read(fds[0], &byte, 1) == 1;
        break;
    }
    actor.note(static_cast<uint64_t>(result)), actor.note(static_cast<uint64_t>(left.tv_nsec));
    CHECK(left.tv_nsec >= 0 && left.tv_nsec < 3000000);
    if (way == 2 || way == 3) done = poll(&one, 1, 0) == 1 && read(fds[0], &byte, 1) == 1;
  }
  sender.join();
  CHECK(handled == count);
  block(SIG_BLOCK, signal);
  close(fds[0]), close(fds[1]);
  return static_cast<uint64_t>(count);
}

volatile sig_atomic_t process_count;
void count_in_process(int) { process_count = process_count + 1; }

// A process computes while a timer of its own interrupts it.
uint64_t timer_while_computing(Actor& actor) {
  const int which = actor.random.between(0, 2), wanted = actor.random.between(1, 8),
            period_us = actor.random.between(300, 2000);
  const bool with_calls = actor.random.coin();
  run_in_child(actor, [&] {
    const int signal = which == ITIMER_REAL ? SIGALRM : which == ITIMER_VIRTUAL ? SIGVTALRM : SIGPROF;
    process_count = 0;
    struct sigaction action = {};
    action.sa_handler = count_in_process;
    MUST(sigaction(signal, &action, nullptr));
    const itimerval every = {{0, period_us}, {0, period_us}};
    MUST(setitimer(static_cast<__itimer_which>(which), &every, nullptr));
    uint64_t x = 1;
    while (process_count < wanted) {
      for (int i = 0; i < 2000; i++) x = x * 6364136223846793005ull + 1442695040888963407ull;
      if (with_calls) MUST(getppid());
    }
    CHECK(x != 0);
    const itimerval none = {};
    MUST(setitimer(static_cast<__itimer_which>(which), &none, nullptr));
    return 0;
  });
  return static_cast<uint64_t>(wanted);
}

uint64_t posix_timer(Actor& actor) {
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = actor.signal;
  event._sigev_un._tid = static_cast<pid_t>(gettid());
  event.sigev_value.sival_int = 7;
  timer_t timer;
  MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
  handle(actor.signal, 0);
  handled = 0;
  const long period = actor.random.between(200, 1500) * 1000;
  const itimerspec every = {{0, period}, {0, period}};
  MUST(timer_settime(timer, 0, &every, nullptr));
  const int wanted = actor.random.between(1, 6);
  block(SIG_UNBLOCK, actor.signal);
  while (handled < wanted) {
    const timespec nap = {0, 500000};
    actor.note(static_cast<uint64_t>(nanosleep(&nap, nullptr)));
    if (handled % 2) spend(100);
  }
  block(SIG_BLOCK, actor.signal);
  actor.note(static_cast<uint64_t>(timer_getoverrun(timer)));
  MUST(timer_delete(timer));
  const sigset_t set = set_of(actor.signal);
  const timespec now = {};
  while (sigtimedwait(&set, nullptr, &now) > 0) actor.note(1);
  actor.note(static_cast<uint64_t>(handled));
  return static_cast<uint64_t>(wanted);
}

uint64_t timer_descriptor(Actor& actor) {
  const int fd = MUST(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  const long period = actor.random.between(100, 1000) * 1000;
  const itimerspec every = {{0, period}, {0, period}};
  MUST(timerfd_settime(fd, 0, &every, nullptr));
  const uint64_t wanted = static_cast<uint64_t>(actor.random.between(1, 8));
  for (uint64_t expirations = 0; expirations < wanted;) {
    uint64_t value = 0;
    pollfd one = {fd, POLLIN, 0};
    if (actor.random.coin()) again(actor, [&] { return poll(&one, 1, -1); });
    read_fully(actor, fd, &value, sizeof value);
    actor.note(value);
    expirations += value;
  }
  close(fd);
  return wanted;
}

uint64_t sleeps(Actor& actor) {
  for (int i = actor.random.between(1, 5); i > 0; i--) {
    timespec before, after, nap = {0, actor.random.between(1, 1500) * 1000};
    MUST(clock_gettime(CLOCK_MONOTONIC, &before));
    const long wanted = nap.tv_nsec;
    if (actor.random.coin()) {
      while (nanosleep(&nap, &nap) < 0) actor.note(static_cast<uint64_t>(nap.tv_nsec));
    } else {
      timespec until = {before.tv_sec, before.tv_nsec + nap.tv_nsec};
      if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) actor.note(1);
    }
    MUST(clock_gettime(CLOCK_MONOTONIC, &after));
    const long slept = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    actor.note(static_cast<uint64_t>(slept));
    CHECK(slept >= wanted);
  }
  return 1;
}

sigjmp_buf jump_target;
void jump_out(int) { siglongjmp(jump_target, 1); }

// Leaves a handler by siglongjmp, out of a blocked call or a computation.
uint64_t jumps(Actor& actor) {
  const int wanted = actor.random.between(1, 5);
  const bool sleeping = actor.random.coin();
  run_in_child(actor, [&] {
    struct sigaction action = {};
    action.sa_handler = jump_out;
    MUST(sigaction(SIGALRM, &action, nullptr));
    volatile int jumped = 0;
    if (sigsetjmp(jump_target, 1)) jumped = jumped + 1;
    if (jumped == wanted) return 0;
    const itimerval once = {{0, 0}, {0, 700}};
    MUST(setitimer(ITIMER_REAL, &once, nullptr));
    volatile uint64_t x = 0;
    for (;;) {
      x = x + 1;
      if (sleeping) pause();
    }
  });
  return static_cast<uint64_t>(wanted);
}

uint64_t children_end(Actor& actor) {
  const int count = actor.random.between(1, 6);
  run_in_child(actor, [&] {
    process_count = 0;
    const sigset_t chld = set_of(SIGCHLD);
    sigset_t before;
    MUST(sigprocmask(SIG_BLOCK, &chld, &before));
    struct sigaction action = {};
    action.sa_handler = count_in_process;
    action.sa_flags = SA_NOCLDSTOP;
    MUST(sigaction(SIGCHLD, &action, nullptr));
    for (int i = 0; i < count; i++) start_child([i] { return spend(i * 50), i; });
    int sum = 0;
    for (int reaped = 0; reaped < count;) {
      int status = 0;
      const pid_t child = MUST(waitpid(-1, &status, WNOHANG));
      if (child == 0) {
        sigsuspend(&before);
        continue;
      }
      CHECK(WIFEXITED(status));
      sum += WEXITSTATUS(status);
      reaped++;
    }
    CHECK(sum == count * (count - 1) / 2);
    return 0;
  });
  return static_cast<uint64_t>(count);
}

// Stopped, continued and killed.
uint64_t stopped_child(Actor& actor) {
  const bool computes = actor.random.coin();
  const pid_t child = start_child([&] {
    volatile uint64_t x = 0;
    for (;;) {
      x = x + 1;
      if (!computes) pause();
    }
    return 0;
  });
  int status = 0;
  for (int i = actor.random.between(0, 3); i > 0; i--) {
    MUST(kill(child, SIGSTOP));
    again(actor, [&] { return waitpid(child, &status, WUNTRACED); });
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    MUST(kill(child, SIGCONT));
    again(actor, [&] { return waitpid(child, &status, WCONTINUED); });
    CHECK(WIFCONTINUED(status));
  }
  const int last = actor.random.coin() ? SIGTERM : SIGKILL;
  MUST(kill(child, last));
  again(actor, [&] { return waitpid(child, &status, 0); });
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == last);
  return static_cast<uint64_t>(last);
}

// A process group, ended by one signal.
uint64_t group(Actor& actor) {
  const int count = actor.random.between(1, 4);
  int ready[2];
  MUST(pipe2(ready, O_CLOEXEC));
  const pid_t leader = start_child([&] {
    MUST(setpgid(0, 0));
    for (int i = 0; i < count; i++) {
      start_child([&] {
        CHECK(write(ready[1], "r", 1) == 1);
        for (;;) pause();
        return 0;
      });
    }
    CHECK(write(ready[1], "r", 1) == 1);
    int status = 0;
    struct sigaction ignored = {};
    ignored.sa_handler = SIG_IGN;
    MUST(sigaction(SIGTERM, &ignored, nullptr));
    CHECK(write(ready[1], "r", 1) == 1);
    for (int i = 0; i < count; i++) {
      while (wait(&status) < 0) CHECK(errno == EINTR);
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    return 0;
  });
  std::vector<char> bytes(static_cast<size_t>(count + 2));
  read_fully(actor, ready[0], bytes.data(), bytes.size());
  MUST(kill(-leader, SIGTERM));
  expect_exit(actor, leader, 0);
  close(ready[0]), close(ready[1]);
  return static_cast<uint64_t>(count);
}

}  // namespace

const std::vector<Action>& signal_actions() {
  static const std::vector<Action> actions = {
      {"to_itself", to_itself},
      {"awaited", awaited},
      {"interrupted", interrupted},
      {"timer_while_computing", timer_while_computing},
      {"posix_timer", posix_timer},
      {"timer_descriptor", timer_descriptor},
      {"sleeps", sleeps},
      {"jumps", jumps},
      {"children_end", children_end},
      {"stopped_child", stopped_child},
      {"group", group},
  };
  return actions;
}
