// Births, executions and ends of processes.
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>
#include <thread>

#include "program.h"

extern char** environ;

namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> found;
  for (auto& word : words) found.push_back(word.data());
  found.push_back(nullptr);
  return found;
}

// The program itself, started in one of several ways, with a number to exit with.
uint64_t executed(Actor& actor) {
  const int status = actor.random.below(90), way = actor.random.below(4);
  std::vector<std::string> words = {own_binary(), "--helper", actor.random.coin() ? "exit" : "exec_exit",
                                    std::to_string(status)};
  const std::vector<char*> arguments = pointers(words);
  pid_t child = -1;
  if (way == 0) {
    child = MUST(fork());
    if (child == 0) execv(arguments[0], arguments.data()), _exit(97);
  } else if (way == 1) {
    child = MUST(vfork());
    if (child == 0) execv(arguments[0], arguments.data()), _exit(97);
  } else if (way == 2) {
    MUST0(posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environ));
  } else {
    child = start_child([&] {  // a thread other than the first one executes
      std::thread([&] { execv(arguments[0], arguments.data()); }).join();
      return 97;
    });
  }
  expect_exit(actor, child, status);
  return static_cast<uint64_t>(status);
}

int grow_tree(Actor& actor, int depth) {
  if (depth == 0) return 1;
  pid_t children[2];
  for (pid_t& child : children) child = start_child([&] { return grow_tree(actor, depth - 1); });
  int sum = 1;
  for (const pid_t child : children) {
    int status = 0;
    again(actor, [&] { return waitpid(child, &status, 0); });
    CHECK(WIFEXITED(status));
    sum += WEXITSTATUS(status);
  }
  return sum;
}

uint64_t tree(Actor& actor) {
  const int depth = actor.random.between(1, 3);
  expect_exit(actor, start_child([&] { return grow_tree(actor, depth); }), (2 << depth) - 1);
  return static_cast<uint64_t>(depth);
}

// A grandchild whose parent has ended reports through a pipe.
uint64_t orphan(Actor& actor) {
  int fds[2];
  MUST(pipe2(fds, O_CLOEXEC));
  run_in_child(actor, [&] {
    start_child([&] {
      spend(200);
      const uint64_t value = 4711;
      return write(fds[1], &value, sizeof value) == sizeof value ? 0 : 1;
    });
    return 0;
  });
  uint64_t value = 0;
  read_fully(actor, fds[0], &value, sizeof value);
  close(fds[0]), close(fds[1]);
  CHECK(value == 4711);
  return value;
}

// A child with threads ends while these run, in each possible way.
uint64_t threaded_end(Actor& actor) {
  const int way = actor.random.below(4);
  const pid_t child = start_child([&] {
    int fds[2];
    MUST(pipe2(fds, O_CLOEXEC));
    std::thread sleeper([&] {
      char byte;
      read_all(fds[0], &byte, 1);
    });
    std::thread worker([&] {
      for (;;) getppid();
    });
    spend(300);
    if (way == 1) raise(SIGKILL);
    if (way == 2) abort();
    if (way == 3) kill(getpid(), SIGTERM), pause();
    _exit(5);
    return 0;
  });
  int status = 0;
  again(actor, [&] { return waitpid(child, &status, 0); });
  const int wanted = way == 1 ? SIGKILL : way == 2 ? SIGABRT : SIGTERM;
  CHECK(way == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == 5 : WIFSIGNALED(status) && WTERMSIG(status) == wanted);
  return static_cast<uint64_t>(way);
}

uint64_t waiting(Actor& actor) {
  const int count = actor.random.between(1, 5), way = actor.random.below(3);
  std::vector<pid_t> children;
  for (int i = 0; i < count; i++) children.push_back(start_child([i] { return spend(100 * i), i; }));
  for (int i = 0; i < count; i++) {
    const pid_t child = children[static_cast<size_t>(i)];
    int status = 0;
    rusage usage = {};
    siginfo_t info = {};
    if (way == 0) {
      while (again(actor, [&] { return wait4(child, &status, WNOHANG, &usage); }) == 0) sched_yield();
      actor.note(static_cast<uint64_t>(usage.ru_utime.tv_usec));
    } else if (way == 1) {
      again(actor, [&] { return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT); });
      CHECK(info.si_status == i);
      again(actor, [&] { return waitpid(child, &status, 0); });
    } else {
      const int fd = static_cast<int>(MUST(syscall(SYS_pidfd_open, child, 0)));
      pollfd one = {fd, POLLIN, 0};
      again(actor, [&] { return poll(&one, 1, -1); });
      again(actor, [&] { return waitpid(child, &status, 0); });
      close(fd);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == i);
  }
  return static_cast<uint64_t>(count);
}

// Values that differ from run to run.
uint64_t questions(Actor& actor) {
  for (int i = actor.random.between(1, 30); i > 0; i--) {
    timespec now;
    timeval day;
    rusage usage;
    utsname name;
    uint64_t random = 0;
    switch (actor.random.below(8)) {
      case 0:
        MUST(clock_gettime(CLOCK_REALTIME, &now));
        actor.note(static_cast<uint64_t>(now.tv_nsec));
        break;
      case 1:
        MUST(gettimeofday(&day, nullptr));
        actor.note(static_cast<uint64_t>(day.tv_usec));
        break;
      case 2:
        MUST(getrusage(RUSAGE_SELF, &usage));
        actor.note(static_cast<uint64_t>(usage.ru_minflt));
        break;
      case 3:
        MUST(uname(&name));
        actor.note(hash_of(&name, sizeof name));
        break;
      case 4:
        again(actor, [&] { return syscall(SYS_getrandom, &random, sizeof random, 0); });
        actor.note(random);
        break;
      case 5:
        actor.note(__builtin_ia32_rdtsc());
        break;
      case 6:
        MUST(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now));
        actor.note(static_cast<uint64_t>(now.tv_nsec));
        break;
      default:
        actor.note(static_cast<uint64_t>(sched_getcpu()));
        actor.note(static_cast<uint64_t>(gettid()));
    }
  }
  return 1;
}

}  // namespace

void run_helper(int count, char** arguments) {
  const std::string what = count > 0 ? arguments[0] : "";
  if (what == "exit" && count == 2) exit(atoi(arguments[1]));
  if (what == "exec_exit" && count == 2) {
    const std::string binary = own_binary();
    execl(binary.c_str(), binary.c_str(), "--helper", "exit", arguments[1], nullptr);
  }
  if (what == "filter") {
    char data[1000];
    for (ssize_t n; (n = MUST(read(0, data, sizeof data))) > 0;) write_all(1, data, static_cast<size_t>(n));
    exit(0);
  }
  _exit(96);
}

const std::vector<Action>& process_actions() {
  static const std::vector<Action> actions = {
      {"executed", executed},         {"tree", tree},       {"orphan", orphan},
      {"threaded_end", threaded_end}, {"waiting", waiting}, {"questions", questions},
  };
  return actions;
}
