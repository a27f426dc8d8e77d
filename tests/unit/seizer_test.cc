// Real processes are stopped and let run on.
#include "supervisor/record/attach/seizer.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/procfs.h"
#include "supervisor/record/attach/attachable.h"
#include "supervisor/record/kernel/ptrace_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::seizer_test {

namespace {

char state_of(pid_t pid) {
  const std::string state(proc_status(pid).text("State"));
  return state.empty() ? 'X' : state[0];
}

// Waits, a second at most, until the process is in one of these states.
bool comes_to(pid_t pid, std::string_view states) {
  for (int i = 0; i < 1000; ++i) {
    if (states.find(state_of(pid)) != std::string_view::npos) return true;
    usleep(1000);
  }
  return false;
}

// A child that does this, and is killed at the end.
class Child {
 public:
  template <typename Body>
  explicit Child(const Body& body) : pid_(fork()) {
    if (pid_ != 0) return;
    body();
    for (;;) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// As vfork(2) does, which a thread sanitizer replaces by fork(2): the caller waits until the child has ended.
void begin_lent_child() {
  alignas(16) static char stack[64 << 10];
  const auto run = [](void*) -> int {
    usleep(30'000);
    _exit(0);
  };
  clone(run, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
}

void begin_child() {
  if (fork() != 0) return;
  for (;;) pause();
}

// The process and the child that it begins, which sleeps.
std::vector<pid_t> tree_with_child(pid_t pid) {
  std::vector<pid_t> tree;
  for (int i = 0; i < 1000 && tree.size() < 2; ++i) usleep(1000), tree = process_tree({pid});
  REQUIRE_EQ(tree.size(), 2);
  REQUIRE(comes_to(tree[1], "S"));
  return tree;
}

struct Seizing {
  explicit Seizing(Seizer::Stops stops = Seizer::Stops::refused, Seizer::List list = process_tree)
      : seizer(tracer, placement, stops, std::move(list)) {}
  PtraceTracer tracer{PtraceTracer::Calls::all};
  Placement placement{0};
  Seizer seizer;
};

}  // namespace

TEST_CASE("a process and its descendants are stopped, and run on") {
  const Child child(begin_child);
  const std::vector<pid_t> tree = tree_with_child(child.pid());
  Seizing seizing;
  REQUIRE(seizing.seizer.stop_all({child.pid()}));
  CHECK_EQ(seizing.seizer.threads().size(), 2);
  for (const pid_t pid : tree) CHECK_EQ(state_of(pid), 't');
  seizing.seizer.release();
  for (const pid_t pid : tree) CHECK(comes_to(pid, "S"));
  CHECK_EQ(proc_status(tree[1]).number("TracerPid"), 0);
  kill(tree[1], SIGKILL);
}

TEST_CASE("a process that was left out of a list because another one ended is stopped, too") {
  const Child child(begin_child);
  const std::vector<pid_t> tree = tree_with_child(child.pid());
  bool ends = true;  // until the parent has stopped
  Seizing seizing(Seizer::Stops::refused, [&](const std::vector<pid_t>& roots) {
    ends &= state_of(child.pid()) != 't';
    return ends ? roots : process_tree(roots);
  });
  REQUIRE(seizing.seizer.stop_all({child.pid()}));
  CHECK(seizing.seizer.threads().contains(tree[1]));
  for (const pid_t pid : tree) CHECK_EQ(state_of(pid), 't');
  seizing.seizer.release();
  for (const pid_t pid : tree) CHECK(comes_to(pid, "S"));
  kill(tree[1], SIGKILL);
}

TEST_CASE("a parent stops when its child of vfork(2) has begun its program, or has ended") {
  const Child child([] {
    for (;;) {
      begin_lent_child();
      while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    }
  });
  REQUIRE(comes_to(child.pid(), "D"));
  Seizing seizing;
  REQUIRE(seizing.seizer.stop_all({child.pid()}));
  CHECK(seizing.seizer.threads().contains(child.pid()));
  CHECK_EQ(state_of(child.pid()), 't');
  seizing.seizer.release();
}

TEST_CASE("a process that was stopped by a signal is refused, or continues") {
  const Child child([] {});
  kill(child.pid(), SIGSTOP);
  REQUIRE(comes_to(child.pid(), "T"));
  {
    Seizing refusing;
    const auto stopped = refusing.seizer.stop_all({child.pid()});
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().message.find("stopped") != std::string::npos);
  }
  Seizing seizing(Seizer::Stops::continued);
  REQUIRE(seizing.seizer.stop_all({child.pid()}));
  seizing.seizer.release();
  CHECK(comes_to(child.pid(), "S"));
}

TEST_CASE("what has ended cannot be stopped") {
  pid_t pid = -1;
  {
    const Child child([] {});
    pid = child.pid();
  }
  Seizing seizing;
  CHECK_FALSE(seizing.seizer.stop_all({pid}));
}

}  // namespace redrive::seizer_test
