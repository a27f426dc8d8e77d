// The meaning of waitpid(2) statuses, how the kernel's tracees come to their stops, and that the fake ones do the same.
#include "supervisor/record/kernel/ptrace_tracer.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::ptrace_tracer_test {

namespace {

// Statuses as the kernel makes them (wait_task_stopped() and wait_task_zombie(), kernel/exit.c).
constexpr int stopped_by(int signal, int event = 0) { return event << 16 | signal << 8 | 0x7f; }
constexpr int exited_with(int status) { return status << 8; }
constexpr int killed_by(int signal) { return signal; }
constexpr int kCore = 0x80;

// A child that waits until it is traced, and continues with `life`.
template <typename Life>
pid_t traced_child(Tracer& tracer, const Life& life) {
  int ready[2], go[2];
  REQUIRE_EQ(pipe(ready), 0);
  REQUIRE_EQ(pipe(go), 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char byte = 0;
    ::close(go[1]);
    if (write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 1) life();
    _exit(3);
  }
  ::close(go[0]);
  ::close(ready[1]);
  char byte = 0;
  REQUIRE_EQ(read(ready[0], &byte, 1), 1);  // a sanitizer's fork() makes a thread in the child before it returns
  ::close(ready[0]);
  REQUIRE(tracer.seize(child));
  REQUIRE_EQ(write(go[1], "g", 1), 1);
  ::close(go[1]);
  return child;
}

}  // namespace

TEST_CASE("a stop is made from a status and a message") {
  const struct {
    const char* what;
    int status;
    unsigned long message;
    bool has_message;
    Stop stop;
  } rows[] = {
      {"a filter's stop before a call", stopped_by(SIGTRAP, PTRACE_EVENT_SECCOMP), 0, false, SyscallEntry{}},
      {"the exit of a call", stopped_by(SIGTRAP | 0x80), 0, false, SyscallExit{}},
      {"the exit of a call, if all stop", stopped_by(SIGTRAP | 0x80), 2, false, SyscallExit{}},
      {"the entry of a call, if all stop", stopped_by(SIGTRAP | 0x80), 1, false, SyscallEntry{}},
      {"a thread is born", stopped_by(SIGTRAP, PTRACE_EVENT_CLONE), 77, true, Birth{77}},
      {"a process is born", stopped_by(SIGTRAP, PTRACE_EVENT_FORK), 78, true, Birth{78}},
      {"a borrowing process is born", stopped_by(SIGTRAP, PTRACE_EVENT_VFORK), 79, true, Birth{79}},
      {"a birth whose parent was killed", stopped_by(SIGTRAP, PTRACE_EVENT_FORK), 0, true, Birth{0}},
      {"exec by the leader", stopped_by(SIGTRAP, PTRACE_EVENT_EXEC), 10, true, Exec{10}},
      {"exec by another thread, under its former number", stopped_by(SIGTRAP, PTRACE_EVENT_EXEC), 12, true, Exec{12}},
      {"a signal", stopped_by(SIGUSR1), 0, false, SignalStop{SIGUSR1}},
      {"a step, or a breakpoint", stopped_by(SIGTRAP), 0, false, SignalStop{SIGTRAP}},
      {"a stop signal that is about to be delivered", stopped_by(SIGTSTP), 0, false, SignalStop{SIGTSTP}},
      {"a real-time signal", stopped_by(SIGRTMAX), 0, false, SignalStop{SIGRTMAX}},
      {"interrupted, born, or going on", stopped_by(SIGTRAP, PTRACE_EVENT_STOP), 0, false, Interrupted{}},
      {"the group stops: SIGSTOP", stopped_by(SIGSTOP, PTRACE_EVENT_STOP), 0, false, GroupStop{SIGSTOP}},
      {"the group stops: SIGTSTP", stopped_by(SIGTSTP, PTRACE_EVENT_STOP), 0, false, GroupStop{SIGTSTP}},
      {"the group stops: SIGTTIN", stopped_by(SIGTTIN, PTRACE_EVENT_STOP), 0, false, GroupStop{SIGTTIN}},
      {"the group stops: SIGTTOU", stopped_by(SIGTTOU, PTRACE_EVENT_STOP), 0, false, GroupStop{SIGTTOU}},
      {"about to exit", stopped_by(SIGTRAP, PTRACE_EVENT_EXIT), exited_with(5), true, Exiting{{5, 0}}},
      {"about to be killed", stopped_by(SIGTRAP, PTRACE_EVENT_EXIT), SIGKILL, true, Exiting{{0, SIGKILL}}},
      {"about to dump core", stopped_by(SIGTRAP, PTRACE_EVENT_EXIT), SIGSEGV | kCore, true, Exiting{{0, SIGSEGV}}},
      {"exited", exited_with(0), 0, false, Gone{{0, 0}}},
      {"exited with a status", exited_with(255), 0, false, Gone{{255, 0}}},
      {"killed", killed_by(SIGKILL), 0, false, Gone{{0, SIGKILL}}},
      {"killed by a real-time signal", killed_by(SIGRTMAX), 0, false, Gone{{0, SIGRTMAX}}},
      {"killed, and dumped core", killed_by(SIGSEGV | kCore), 0, false, Gone{{0, SIGSEGV}}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.what);
    CHECK_EQ(has_message(row.status), row.has_message);
    CHECK((stop_of(row.status, row.message) == row.stop));
  }
}

TEST_CASE("an end is told as shells tell it") {
  CHECK_EQ(TraceeEnd{7, 0}.shell_status(), 7);
  CHECK_FALSE(TraceeEnd{7, 0}.killed());
  CHECK_EQ(TraceeEnd{0, SIGTERM}.shell_status(), 128 + SIGTERM);
  CHECK(TraceeEnd{0, SIGTERM}.killed());
}

TEST_CASE("the kernel's tracees: signals, births, group stops, interrupts, ends") {
  PtraceTracer ptrace_tracer;
  Tracer& tracer = ptrace_tracer;
  SUBCASE("a signal is delivered only if the tracee is resumed with it") {
    const pid_t child = traced_child(tracer, [] { raise(SIGUSR1), raise(SIGUSR2); });
    CHECK((tracer.wait(child) == Stop(SignalStop{SIGUSR1})));
    siginfo_t info{};
    REQUIRE(tracer.get_siginfo(child, info));
    CHECK_EQ(info.si_signo, SIGUSR1);
    tracer.resume(child, Resume::cont);
    CHECK((tracer.wait(child) == Stop(SignalStop{SIGUSR2})));
    tracer.resume(child, Resume::cont, SIGUSR2);
    CHECK((tracer.wait(child) == Stop(Gone{{0, SIGUSR2}})));
  }
  SUBCASE("a birth names the child, whose first stop is as if it were interrupted") {
    const pid_t child = traced_child(tracer, [] {
      if (fork() == 0) _exit(4);
    });
    const auto stop = tracer.wait(child);
    REQUIRE(stop);
    REQUIRE(is<Birth>(*stop));
    const pid_t born = std::get<Birth>(*stop).child;
    CHECK((tracer.wait(born) == Stop(Interrupted{})));
    tracer.set_option(born, TraceeOption::reports_exit);
    tracer.resume(born, Resume::cont);
    CHECK((tracer.wait(born) == Stop(Exiting{{4, 0}})));
    tracer.resume(born, Resume::cont);
    CHECK((tracer.wait(born) == Stop(Gone{{4, 0}})));
    CHECK_FALSE(tracer.wait(born));
    tracer.send(child, SIGKILL);
    CHECK((tracer.wait(child) == Stop(Gone{{0, SIGKILL}})));
  }
  SUBCASE("a group stop lasts until the group goes on") {
    const pid_t child = traced_child(tracer, [] {
      setpgid(0, 0);  // SIGTSTP stops no orphaned process group, as this one may be (setpgid(2))
      raise(SIGTSTP);
    });
    CHECK((tracer.wait(child) == Stop(SignalStop{SIGTSTP})));
    tracer.resume(child, Resume::cont, SIGTSTP);
    CHECK((tracer.wait(child) == Stop(GroupStop{SIGTSTP})));
    tracer.listen(child);
    CHECK_FALSE(tracer.has_stopped(child));
    tracer.send(child, SIGCONT);
    CHECK((tracer.wait(child) == Stop(Interrupted{})));
    tracer.resume(child, Resume::cont);
    CHECK((tracer.wait(child) == Stop(SignalStop{SIGCONT})));
    tracer.resume(child, Resume::cont, SIGCONT);
    CHECK((tracer.wait(child) == Stop(Gone{{3, 0}})));
  }
  SUBCASE("a killed one answers nothing, and its end comes") {
    const pid_t child = traced_child(tracer, [] {
      for (;;) pause();
    });
    CHECK(tracer.interrupt(child));
    CHECK((tracer.wait(child) == Stop(Interrupted{})));
    user_regs_struct regs{};
    CHECK(tracer.get_regs(child, regs));
    CHECK(tracer.cpu_ns(child));
    tracer.send(child, SIGKILL);
    CHECK((tracer.wait(child) == Stop(Gone{{0, SIGKILL}})));
    CHECK_FALSE(tracer.get_regs(child, regs));
    CHECK(tracer.get_xstate(child).empty());
    CHECK_FALSE(tracer.interrupt(child));
    CHECK_FALSE(tracer.cpu_ns(child));
  }
}

TEST_CASE("the fake's tracees stop and go on as the kernel's do") {
  FakeTracer tracer;
  tracer.add(10, {SyscallEntry{}, SyscallExit{}, Gone{{7, 0}}});
  user_regs_struct regs{};
  CHECK_FALSE(tracer.get_regs(10, regs));  // it is running
  CHECK((tracer.wait(10) == Stop(SyscallEntry{})));
  regs.rax = 39;
  CHECK(tracer.set_regs(10, regs));
  regs = {};
  CHECK(tracer.get_regs(10, regs));
  CHECK_EQ(regs.rax, 39);
  CHECK_FALSE(tracer.has_stopped(10));  // that stop was taken
  tracer.resume(10, Resume::to_syscall_exit, 0);
  CHECK(tracer.interrupt(10));
  CHECK((tracer.wait(10) == Stop(Interrupted{})));
  tracer.resume(10, Resume::to_syscall_exit, SIGUSR1);
  CHECK((tracer.wait(10) == Stop(SyscallExit{})));
  tracer.resume(10, Resume::cont, 0);
  CHECK((tracer.wait(10) == Stop(Gone{{7, 0}})));
  CHECK_FALSE(tracer.wait(10));
  CHECK_FALSE(tracer.interrupt(10));
  const std::vector<std::string> asked{"10: to syscall exit", "10: interrupt", "10: to syscall exit with 10",
                                       "10: cont", "10: interrupt"};
  CHECK(tracer.asked == asked);
}

TEST_CASE("waiting ends when a process has used CPU time, and not when it sleeps") {
  using namespace std::chrono_literals;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  REQUIRE_EQ(sigaction(SIGALRM, &action, &before), 0);
  int pipe_to_child[2];
  REQUIRE_EQ(pipe(pipe_to_child), 0);
  PtraceTracer tracer;
  const pid_t child = traced_child(tracer, [&] {
    char byte = 0;
    if (read(pipe_to_child[0], &byte, 1) != 1) return;
    for (;;) {
    }
  });
  const auto used_ns = [&] { return tracer.cpu_ns(child).value(); };
  const uint64_t asleep_ns = used_ns();
  CHECK(tracer.wake_when_used(child, 1h));
  CHECK(tracer.wake_when_used(child, 3ms));  // in place of the former
  REQUIRE_EQ(write(pipe_to_child[1], "g", 1), 1);
  CHECK(std::holds_alternative<NoneStopped>(tracer.wait_for_any()));
  CHECK_GE(used_ns() - asleep_ns, 3'000'000);
  // It interrupts again and again.
  CHECK(std::holds_alternative<NoneStopped>(tracer.wait_for_any()));
  CHECK(tracer.send(child, SIGKILL));
  Waited waited = NoneStopped{};
  while (std::holds_alternative<NoneStopped>(waited)) waited = tracer.wait_for_any();
  CHECK((std::get<Stopped>(waited) == Stopped{child, Gone{{0, SIGKILL}}}));
  CHECK_FALSE(tracer.wake_when_used(child, 3ms));
  sigaction(SIGALRM, &before, nullptr);
  for (const int end : pipe_to_child) ::close(end);
}

TEST_CASE("a process's first thread is waited for while its others end, and they are not lost") {
  PtraceTracer ptrace_tracer;
  Tracer& tracer = ptrace_tracer;
  const pid_t child = traced_child(tracer, [] {
    std::thread other([] { pause(); });
    pause();
  });
  const auto birth = tracer.wait(child);
  REQUIRE(birth);
  const pid_t other = std::get<Birth>(*birth).child;
  CHECK((tracer.wait(other) == Stop(Interrupted{})));
  tracer.resume(other, Resume::cont);
  tracer.resume(child, Resume::cont);
  // The kernel tells the end of the other one first.
  CHECK(tracer.send(child, SIGKILL));
  CHECK((tracer.wait(child) == Stop(Gone{{0, SIGKILL}})));
  CHECK(tracer.has_stopped(other));
  CHECK((std::get<Stopped>(tracer.take_any()) == Stopped{other, Gone{{0, SIGKILL}}}));
  CHECK_FALSE(tracer.wait(other));
}

TEST_CASE("the fake names the youngest first, and lets time pass where nothing happens") {
  using namespace std::chrono_literals;
  FakeTracer tracer;
  CHECK(std::holds_alternative<NoTracees>(tracer.wait_for_any()));
  tracer.add(10, {SyscallEntry{}});
  tracer.add(11, {SignalStop{SIGUSR1}});
  CHECK((std::get<Stopped>(tracer.wait_for_any()) == Stopped{11, SignalStop{SIGUSR1}}));
  CHECK((std::get<Stopped>(tracer.take_any()) == Stopped{10, SyscallEntry{}}));
  tracer.wake_within(250us);
  const auto before = tracer.now();
  CHECK(std::holds_alternative<NoneStopped>(tracer.wait_for_any()));
  CHECK_EQ((tracer.now() - before) / 1us, 250);
  CHECK(std::holds_alternative<NoneStopped>(tracer.take_any()));
  CHECK_EQ((tracer.now() - before) / 1us, 250);
  tracer.send(10, SIGKILL);
  CHECK_FALSE(tracer.has_stopped(11));
  CHECK((std::get<Stopped>(tracer.take_any()) == Stopped{10, Gone{{0, SIGKILL}}}));
}

}  // namespace redrive::ptrace_tracer_test
