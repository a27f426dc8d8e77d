// What the events of a recording tell of what the kernel held: descriptors, offsets, births and ends, signals, bytes on
// their way.
#include "supervisor/live/kernel_model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "interceptors/syscall_table.h"
#include "supervisor/live/call_effects.h"
#include "supervisor/live/file_names.h"
#include "supervisor/live/in_flight.h"
#include "supervisor/live/past.h"
#include "tests/unit/unit_test.h"

namespace redrive::kernel_model_test {

namespace {

using Kind = OpenObject::Kind;

// One unit's events after another.
class Story {
 public:
  KernelModel model;

  Story() { model.start(1, 100); }

  Event& call(long number, std::initializer_list<uint64_t> args, int64_t result, UnitId unit = 1) {
    event_ = Event{};
    event_.number = static_cast<int32_t>(number);
    std::copy(args.begin(), args.end(), event_.args.begin());
    event_.result = result;
    unit_ = unit;
    return event_;
  }
  void happens() { model.apply(unit_, next_[unit_]++, event_); }
  void make(long number, std::initializer_list<uint64_t> args, int64_t result, UnitId unit = 1) {
    call(number, args, result, unit);
    happens();
  }
  void make_pair(long number, std::initializer_list<uint64_t> args, uint64_t address, int first, int second) {
    Event& event = call(number, args, 0);
    const int fds[] = {first, second};
    MemoryWrite write{address, sizeof fds, MemoryWrite::Kind::data, {}};
    write.data.assign(reinterpret_cast<const uint8_t*>(fds), reinterpret_cast<const uint8_t*>(fds) + sizeof fds);
    event.writes.push_back(write);
    happens();
  }
  void fork(UnitId child, int32_t pid, uint64_t flags = SIGCHLD, UnitId unit = 1) {
    call(SYS_clone, {flags}, pid, unit).child_unit = child;
    happens();
  }

  const ProcessModel& process(UnitId unit = 1) const { return model.processes().at({unit, 0}); }
  const OpenObject& object(int fd, UnitId unit = 1) const {
    return model.objects()[process(unit).descriptors->at(fd).object];
  }
  bool has(int fd, UnitId unit = 1) const { return process(unit).descriptors->contains(fd); }

 private:
  Event event_;
  UnitId unit_ = 1;
  std::map<UnitId, EventIndex> next_;
};

constexpr uint64_t kPath = 0x1000, kBuffer = 0x2000;

int pending_in(const PendingSignals& signals, int number) {
  return static_cast<int>(
      std::count_if(signals.begin(), signals.end(), [&](const auto& its) { return its.number == number; }));
}

}  // namespace

TEST_CASE("KernelModel: a program begins with three descriptors from outside") {
  const Story story;
  for (const int fd : {0, 1, 2}) {
    REQUIRE(story.has(fd));
    CHECK(story.object(fd).kind == Kind::inherited);
    CHECK_EQ(story.object(fd).number, fd);
  }
}

TEST_CASE("KernelModel: a file's offset moves with what is read, written and sought") {
  Story story;
  story.make(SYS_openat, {static_cast<uint64_t>(AT_FDCWD), kPath, O_RDWR | O_CLOEXEC, 0}, 3);
  CHECK(story.process().descriptors->at(3).close_on_exec);
  story.make(SYS_read, {3, kBuffer, 100}, 60);
  story.make(SYS_pread64, {3, kBuffer, 100, 0}, 100);
  CHECK_EQ(story.object(3).offset, 60);
  story.make(SYS_write, {3, kBuffer, 5}, 5);
  CHECK_EQ(story.object(3).offset, 65);
  CHECK_FALSE(story.object(3).known_length());
  story.make(SYS_lseek, {3, 0, SEEK_END}, 4096);
  story.make(SYS_read, {3, kBuffer, 100}, -EINTR);
  CHECK_EQ(story.object(3).offset, 4096);
}

TEST_CASE("KernelModel: the length of a file that was empty when it was opened") {
  Story story;
  const auto length = [&] { return story.object(3).known_length(); };
  const auto written = [&](uint64_t address, uint64_t value) {
    MemoryWrite write{address, sizeof value, MemoryWrite::Kind::data, Bytes(sizeof value)};
    std::memcpy(write.data.data(), &value, sizeof value);
    return write;
  };
  story.make(SYS_open, {kPath, O_RDWR | O_CREAT | O_EXCL, 0}, 3);
  CHECK_EQ(length(), 0);
  story.make(SYS_write, {3, kBuffer, 5}, 5);
  story.make(SYS_pwrite64, {3, kBuffer, 10, 20}, 10);
  CHECK_EQ(length(), 30);
  CHECK_EQ(story.object(3).offset, 5);
  story.make(SYS_pwritev, {3, kBuffer, 1, 30, 0}, 3);
  story.make(SYS_pwritev2, {3, kBuffer, 1, 0, 0, RWF_APPEND}, 2);
  CHECK_EQ(length(), 35);
  story.make(SYS_pwritev2, {3, kBuffer, 1, ~0ull, 0, 0}, 4);
  story.make(SYS_preadv2, {3, kBuffer, 1, ~0ull, 0, 0}, 3);
  CHECK_EQ(story.object(3).offset, 12);
  story.make(SYS_preadv2, {3, kBuffer, 1, 7, 0, 0}, 3);
  CHECK_EQ(story.object(3).offset, 12);
  story.make(SYS_fallocate, {3, 0, 30, 30}, 0);
  story.make(SYS_fallocate, {3, FALLOC_FL_KEEP_SIZE, 30, 300}, 0);
  CHECK_EQ(length(), 60);
  story.make(SYS_open, {kPath, O_RDONLY, 0}, 4);
  story.call(SYS_copy_file_range, {4, 0, 3, kBuffer, 50, 0}, 50).writes.push_back(written(kBuffer, 110));
  story.happens();
  CHECK_EQ(length(), 110);
  story.make(SYS_ftruncate, {3, 7}, 0);
  CHECK_EQ(length(), 7);
  CHECK_EQ(story.object(3).times_changed, 8);
  story.make(SYS_fallocate, {3, FALLOC_FL_COLLAPSE_RANGE, 0, 4096}, 0);
  CHECK_FALSE(length());
  story.make(SYS_open, {kPath, O_RDWR | O_CREAT, 0}, 3);
  story.make(SYS_write, {3, kBuffer, 5}, 5);
  CHECK_FALSE(length());
  CHECK_EQ(story.object(3).length, 5);
  story.make(SYS_ftruncate, {3, 0}, 0);
  CHECK_EQ(length(), 0);
}

TEST_CASE("KernelModel: names that have changed since a file was opened") {
  Story story;
  story.make(SYS_unlink, {kPath}, 0);
  story.make(SYS_open, {kPath, O_RDWR | O_TMPFILE, 0600}, 3);
  CHECK(story.object(3).was_empty);
  story.make(SYS_unlinkat, {static_cast<uint64_t>(AT_FDCWD), kPath, AT_REMOVEDIR}, 0);
  story.make(SYS_renameat2, {static_cast<uint64_t>(AT_FDCWD), kPath, static_cast<uint64_t>(AT_FDCWD), kBuffer, 0}, 0);
  const auto& changes = story.model.name_changes();
  REQUIRE_EQ(changes.size(), 3);
  CHECK_EQ(story.object(3).names_before, 1);
  CHECK_EQ(changes[2].call.number, SYS_renameat2);
  CHECK_FALSE(story.object(3).mapped);
  story.make(SYS_mmap, {0, 4096, 3, MAP_PRIVATE, 3, 0}, 0x7000);
  CHECK_FALSE(story.object(3).mapped);
  story.make(SYS_mmap, {0, 4096, 3, MAP_SHARED, 3, 0}, 0x7000);
  CHECK(story.object(3).mapped);
}

TEST_CASE("names_after: of a file that was renamed, linked, unlinked or replaced") {
  const auto names = [](std::vector<NameChanged> changes) { return names_after("/d/a", changes); };
  using Names = std::vector<std::string>;
  CHECK(names({}) == Names{"/d/a"});
  CHECK(names({{SYS_unlink, 0, "/d/b", ""}}) == Names{"/d/a"});
  CHECK(names({{SYS_unlinkat, 0, "/d/a", ""}}).empty());
  CHECK(names({{SYS_rename, 0, "/d/a", "/e/b"}}) == Names{"/e/b"});
  CHECK(names({{SYS_renameat, 0, "/d", "/e"}}) == Names{"/e/a"});
  CHECK(names({{SYS_rename, 0, "/d/b", "/d/a"}}).empty());
  CHECK(names({{SYS_renameat2, RENAME_EXCHANGE, "/d/b", "/d/a"}}) == Names{"/d/b"});
  CHECK(names({{SYS_link, 0, "/d/a", "/d/b"}, {SYS_unlink, 0, "/d/a", ""}}) == Names{"/d/b"});
  CHECK(names({{SYS_linkat, 0, "/d/x", "/d/b"}, {SYS_unlink, 0, "/d/a", ""}}).empty());
  CHECK(names({{SYS_rmdir, 0, "/d/a", ""}}).empty());
  CHECK(names({{SYS_rmdir, 0, "", ""}}) == Names{"/d/a"});
}

TEST_CASE("KernelModel: what is appended, and a file that is cut by its path") {
  Story story;
  story.call(SYS_open, {kPath, O_RDWR | O_TRUNC | O_APPEND, 0}, 3).in_hash = 77;
  story.happens();
  story.make(SYS_write, {3, kBuffer, 5}, 5);
  story.make(SYS_lseek, {3, 0, SEEK_SET}, 0);
  story.make(SYS_pwrite64, {3, kBuffer, 5, 0}, 5);
  CHECK_EQ(story.object(3).length, 10);
  CHECK_EQ(story.object(3).offset, 0);
  story.make(SYS_write, {3, kBuffer, 5}, 5);
  CHECK_EQ(story.object(3).length, 15);
  CHECK_EQ(story.object(3).offset, 15);
  story.call(SYS_truncate, {kPath, 3}, 0).in_hash = 78;
  story.happens();
  CHECK_EQ(story.object(3).length, 15);
  story.call(SYS_truncate, {kPath, 3}, 0).in_hash = 77;
  story.happens();
  CHECK_FALSE(story.object(3).length);
  story.make(SYS_write, {3, kBuffer, 5}, 5);
  CHECK_FALSE(story.object(3).offset);
}

TEST_CASE("KernelModel: a series moves the offset with each of its calls") {
  Story story;
  story.make(SYS_open, {kPath, O_RDONLY, 0}, 3);
  story.call(SYS_read, {3, kBuffer, 16}, 16).repeat = 10;
  story.happens();
  CHECK_EQ(story.object(3).offset, 160);
  story.make(SYS_read, {3, kBuffer, 1}, 1);
  Event& last = story.call(SYS_read, {3, kBuffer, 2}, 2);  // 1, 2, and then 1, 2, 1
  last.repeat = 4;
  last.cycle = 2;
  story.happens();
  CHECK_EQ(story.object(3).offset, 167);
}

TEST_CASE("KernelModel: copies of a descriptor share their offset; closing one leaves the other") {
  Story story;
  story.make(SYS_open, {kPath, O_RDONLY, 0}, 3);
  story.make(SYS_dup, {3}, 4);
  story.make(SYS_dup2, {3, 9}, 9);
  story.make(SYS_dup3, {3, 10, O_CLOEXEC}, 10);
  story.make(SYS_fcntl, {3, F_DUPFD_CLOEXEC, 20}, 20);
  story.make(SYS_close, {3}, 0);
  story.make(SYS_read, {9, kBuffer, 10}, 10);
  CHECK_FALSE(story.has(3));
  for (const int fd : {4, 9, 10, 20}) CHECK_EQ(story.object(fd).offset, 10);
  CHECK_FALSE(story.process().descriptors->at(9).close_on_exec);
  CHECK(story.process().descriptors->at(10).close_on_exec);
  CHECK(story.process().descriptors->at(20).close_on_exec);
  story.make(SYS_close_range, {4, 10, 0}, 0);
  CHECK_FALSE(story.has(4));
  CHECK_FALSE(story.has(10));
  CHECK(story.has(20));
  story.make(SYS_close, {77}, -EBADF);
  CHECK(story.has(20));
}

TEST_CASE("KernelModel: a child has a table of its own, unless it shares its parent's") {
  for (const bool shares : {false, true}) {
    CAPTURE(shares);
    Story story;
    story.make_pair(SYS_pipe2, {kBuffer, 0}, kBuffer, 3, 4);
    story.fork(2, 101, shares ? CLONE_FILES | SIGCHLD : SIGCHLD);
    story.make(SYS_close, {3}, 0, 2);
    CHECK_EQ(story.has(3), !shares);
    CHECK_FALSE(story.has(3, 2));
    CHECK_EQ(&story.object(4), &story.object(4, 2));
    REQUIRE(story.process(2).parent);
    CHECK_EQ(story.process(2).pid, 101);
  }
}

TEST_CASE("KernelModel: a new program loses what is to be closed, and handlers") {
  Story story;
  story.make(SYS_open, {kPath, O_RDONLY | O_CLOEXEC, 0}, 3);
  story.make(SYS_open, {kPath, O_RDONLY, 0}, 4);
  story.make(SYS_rt_sigaction, {SIGUSR1, kBuffer, 0, 8}, 0);
  story.make(SYS_set_robust_list, {0x5000, 24}, 0);
  story.make(SYS_execve, {kPath, 0, 0}, 0);
  CHECK_FALSE(story.has(3));
  CHECK(story.has(4));
  CHECK(story.process().actions.at(SIGUSR1).program_changed);
  CHECK_EQ(story.model.threads().at({1, 0}).robust_list, 0);
}

TEST_CASE("KernelModel: the child of vfork becomes a unit when it executes a program") {
  Story story;
  story.make(SYS_open, {kPath, O_RDONLY, 0}, 3);
  Event& entry = story.call(SYS_vfork, {}, 0);
  entry.kind = EventKind::entry;
  entry.child_thread = 1;
  story.happens();
  Event& close = story.call(SYS_close, {3}, 0);
  close.thread = 1;
  story.happens();
  CHECK(story.has(3));
  Event& execve = story.call(SYS_execve, {kPath, 0, 0}, 0);
  execve.thread = 1;
  execve.child_unit = 2;
  story.happens();
  Event& exit = story.call(SYS_vfork, {}, 101);
  exit.kind = EventKind::exit;
  story.happens();
  CHECK_EQ(story.process(2).pid, 101);
  CHECK_FALSE(story.has(3, 2));
  CHECK_FALSE(story.model.threads().contains({1, 1}));
}

TEST_CASE("KernelModel: a process that has ended is waited for once") {
  Story story;
  story.fork(2, 101);
  Event& end = story.call(SYS_exit_group, {7}, 0, 2);
  end.fatal = true;
  story.happens();
  CHECK(story.process(2).ended);
  CHECK_EQ(story.process(2).wait_status, 7 << 8);
  CHECK_EQ(pending_in(story.process().pending, SIGCHLD), 1);
  CHECK_EQ(story.process().pending.begin()->sender, 101);
  CHECK_EQ(story.process().pending.begin()->status, 7);
  CHECK_FALSE(story.process(2).waited_for);
  story.make(SYS_wait4, {~0ull, 0, 0, 0}, 101);
  CHECK(story.process(2).waited_for);
}

TEST_CASE("KernelModel: a signal is pending until it is delivered; its handler's mask ends with it") {
  Story story;
  story.make(SYS_kill, {100, SIGUSR1}, 0);
  CHECK_EQ(pending_in(story.process().pending, SIGUSR1), 1);
  Event& signal = story.call(SIGUSR1, {}, 0);
  signal.kind = EventKind::signal;
  story.happens();
  CHECK_EQ(pending_in(story.process().pending, SIGUSR1), 0);
  CHECK_EQ(story.model.threads().at({1, 0}).mask.size(), 1);
  story.make(SYS_rt_sigreturn, {}, 0);
  CHECK(story.model.threads().at({1, 0}).mask.empty());
}

TEST_CASE("KernelModel: a signal of the kernel's is pending once, a real-time signal as often as it was sent") {
  Story story;
  for (int i = 0; i < 3; ++i) {
    story.make(SYS_kill, {100, SIGUSR1}, 0);
    story.make(SYS_kill, {100, static_cast<uint64_t>(SIGRTMIN)}, 0);
  }
  const auto& pending = story.process().pending;
  CHECK_EQ(pending_in(pending, SIGUSR1), 1);
  CHECK_EQ(pending_in(pending, SIGRTMIN), 3);
  story.make(SYS_rt_sigtimedwait, {0, 0, 0, 8}, SIGRTMIN);
  CHECK_EQ(pending_in(pending, SIGRTMIN), 2);
}

TEST_CASE("KernelModel: a signal that was sent to a thread waits for that thread") {
  Story story;
  story.make(SYS_tgkill, {100, 100, SIGUSR1}, 0);
  story.make(SYS_kill, {100, SIGUSR1}, 0);
  const auto& thread = story.model.threads().at({1, 0});
  CHECK_EQ(pending_in(thread.pending, SIGUSR1), 1);
  CHECK_EQ(pending_in(story.process().pending, SIGUSR1), 1);
  story.make(SYS_rt_sigtimedwait, {0, 0, 0, 8}, SIGUSR1);
  CHECK_EQ(pending_in(thread.pending, SIGUSR1), 0);
  CHECK_EQ(pending_in(story.process().pending, SIGUSR1), 1);
}

TEST_CASE("KernelModel: who has sent signals, by processes and threads, and where they have arrived") {
  Story story;
  story.fork(2, 101);
  story.make(SYS_kill, {0, SIGUSR1}, 0);
  story.make(SYS_tgkill, {101, 101, SIGUSR2}, 0);
  story.make(SYS_rt_sigtimedwait, {0, 0, 0, 8}, SIGUSR2, 2);
  story.call(SYS_exit_group, {0}, 0, 2).fatal = true;
  story.happens();
  const SignalLog& log = story.model.signals();
  REQUIRE_EQ(log.sent.size(), 4);
  CHECK_EQ(log.sent[0].to + log.sent[1].to, 201);
  CHECK(log.sent[1].at == EventRef{1, 1});
  CHECK(log.sent[2].to_thread);
  CHECK_EQ(log.sent[3].number, SIGCHLD);
  CHECK_EQ(log.sent[3].to, 100);
  CHECK(log.sent[3].at == EventRef{2, 1});
  CHECK_EQ(log.sent[3].ended, 101);
  CHECK(log.births.at(2) == EventRef{1, 0});
  REQUIRE_EQ(log.received.size(), 1);
  CHECK(log.received[0].at == EventRef{2, 0});
  CHECK_EQ(log.received[0].process, 101);
}

TEST_CASE("KernelModel: SIGCONT and stops cancel each other") {
  Story story;
  const ProcessModel& process = story.process();
  story.make(SYS_kill, {100, SIGSTOP}, 0);
  story.make(SYS_tgkill, {100, 100, SIGTSTP}, 0);
  story.make(SYS_kill, {100, SIGUSR1}, 0);
  story.make(SYS_kill, {100, SIGCONT}, 0);
  CHECK_EQ(pending_in(process.pending, SIGSTOP), 0);
  CHECK_EQ(pending_in(process.pending, SIGUSR1), 1);
  CHECK_EQ(pending_in(story.model.threads().at({1, 0}).pending, SIGTSTP), 0);
  CHECK_EQ(pending_in(process.pending, SIGCONT), 1);
  story.make(SYS_tgkill, {100, 100, SIGSTOP}, 0);
  CHECK_EQ(pending_in(process.pending, SIGCONT), 0);
  CHECK_EQ(pending_in(story.model.threads().at({1, 0}).pending, SIGSTOP), 1);
}

TEST_CASE("KernelModel: a signal to a group reaches its processes") {
  Story story;
  story.fork(2, 101);
  story.make(SYS_kill, {0, SIGUSR1}, 0);
  CHECK_EQ(pending_in(story.process(2).pending, SIGUSR1), 1);
  story.make(SYS_setpgid, {101, 101}, 0);
  story.make(SYS_kill, {0, SIGUSR2}, 0);
  CHECK_EQ(pending_in(story.process(2).pending, SIGUSR2), 0);
  story.make(SYS_kill, {static_cast<uint64_t>(-101), SIGUSR2}, 0);
  CHECK_EQ(pending_in(story.process(2).pending, SIGUSR2), 1);
  CHECK_EQ(pending_in(story.process().pending, SIGUSR2), 1);
}

TEST_CASE(
    "KernelModel: a timer's signal arrives once nobody else has sent it; alarm(2) and setitimer(2) set one timer") {
  Story story;
  const auto alarm_arrives = [&] {
    story.call(SIGALRM, {}, 0).kind = EventKind::signal;
    story.happens();
  };
  story.make(SYS_setitimer, {ITIMER_REAL, kBuffer, 0}, 0);
  story.make(SYS_alarm, {5}, 0);
  const auto& timer = story.process().timers.at(ITIMER_REAL);
  CHECK_EQ(timer.set.number, SYS_alarm);
  story.make(SYS_kill, {100, SIGALRM}, 0);
  alarm_arrives();
  CHECK_FALSE(timer.signalled);
  alarm_arrives();
  CHECK(timer.signalled);
  story.make(SYS_alarm, {5}, 0);
  CHECK_FALSE(timer.signalled);
  story.make(SYS_rt_sigtimedwait, {0, 0, 0, 8}, SIGALRM);
  CHECK(timer.signalled);
}

TEST_CASE("KernelModel: how often a timerfd has expired for who reads it") {
  Story story;
  story.make(SYS_timerfd_create, {CLOCK_MONOTONIC, 0}, 5);
  story.make(SYS_timerfd_settime, {5, 0, kBuffer, 0}, 0);
  for (const uint64_t expired : {1, 3}) {
    Event& read = story.call(SYS_read, {5, kBuffer, 8}, 8);
    MemoryWrite write{kBuffer, sizeof expired, MemoryWrite::Kind::data, Bytes(sizeof expired)};
    std::memcpy(write.data.data(), &expired, sizeof expired);
    read.writes.push_back(write);
    story.happens();
  }
  CHECK_EQ(story.object(5).expirations, 4);
  story.make(SYS_timerfd_settime, {5, 0, kBuffer, 0}, 0);
  CHECK_EQ(story.object(5).expirations, 0);
}

TEST_CASE("KernelModel: a call that is in progress does nothing before its end") {
  Story story;
  Event& entry = story.call(SYS_accept4, {3, 0, 0, SOCK_CLOEXEC}, 0);
  entry.kind = EventKind::entry;
  story.happens();
  REQUIRE(story.model.call_of({1, 0}));
  CHECK_EQ(story.model.call_of({1, 0})->event.number, SYS_accept4);
  CHECK_FALSE(story.has(8));
  Event& exit = story.call(SYS_accept4, {}, 8);
  exit.kind = EventKind::exit;
  story.happens();
  CHECK_FALSE(story.model.call_of({1, 0}));
  REQUIRE(story.has(8));
  CHECK(story.process().descriptors->at(8).close_on_exec);
}

TEST_CASE("KernelModel: what epoll watches, by descriptor") {
  Story story;
  story.make(SYS_epoll_create1, {0}, 5);
  story.make(SYS_socket, {AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0}, 6);
  CHECK(story.object(6).nonblocking);
  story.make(SYS_epoll_ctl, {5, EPOLL_CTL_ADD, 6, kBuffer}, 0);
  CHECK(story.object(5).watched.contains(6));
  CHECK_EQ(story.object(5).watched_objects.at(6), story.process().descriptors->at(6).object);
  story.make(SYS_epoll_ctl, {5, EPOLL_CTL_DEL, 6, 0}, 0);
  CHECK(story.object(5).watched.empty());
}

TEST_CASE("KernelModel: descriptors of unknown kinds are there, but cannot be made again") {
  Story story;
  story.make(SYS_inotify_init1, {0}, 5);
  REQUIRE(story.has(5));
  CHECK(story.object(5).kind == Kind::other);
}

TEST_CASE("KernelModel: what each row of the system call table does to it is decided") {
  const auto check = [](const SyscallRow& row) {
    const std::string name = fmt::format("{} {}", row.name, row.command_name ? row.command_name : "");
    CAPTURE(name);
    CHECK(is_decided(row));
  };
  for (const SyscallRow& row : all_rows()) {
    if (row.treat != Treat::refuse && row.selector < 0) check(row);
  }
  for (const SyscallRow* const row : all_commands()) {
    if (row->treat != Treat::refuse) check(*row);
  }
  SyscallRow unknown{};
  unknown.number = 9999;
  CHECK_FALSE(is_decided(unknown));
}

TEST_CASE("KernelModel: attributes that are set again, also by children and other programs") {
  Story story;
  const auto flags = [&](UnitId unit) {
    std::set<uint64_t> found;
    for (const RepeatedCall& each : story.process(unit).repeated) found.insert(each.call.args[0]);
    for (const RepeatedCall& each : story.model.threads().at({unit, 0}).repeated) {
      found.insert(each.call.number == SYS_prctl ? each.call.args[0] : static_cast<uint64_t>(each.call.number));
    }
    return found;
  };
  using Flags = std::set<uint64_t>;
  story.make(SYS_prctl, {PR_SET_CHILD_SUBREAPER, 1}, 0);
  story.make(SYS_prctl, {PR_SET_DUMPABLE, 1}, 0);
  story.make(SYS_prctl, {PR_SET_DUMPABLE, 0}, 0);
  story.make(SYS_prctl, {PR_GET_DUMPABLE}, 0);
  story.make(SYS_setpriority, {PRIO_PROCESS, 100, 5}, 0);
  story.make(SYS_mlock, {0x1000, 4096}, 0);
  story.make(SYS_mbind, {0x1000, 4096}, 0);
  CHECK(flags(1) == Flags{PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, SYS_setpriority});
  CHECK_EQ(story.process().repeated.back().call.args[1], 0);
  CHECK_EQ(story.process().lost.size(), 2);
  story.fork(2, 101);
  CHECK(flags(2) == Flags{PR_SET_DUMPABLE, SYS_setpriority});
  CHECK_EQ(story.process(2).lost.count("mbind(2)"), 1);
  CHECK_EQ(story.process(2).lost.size(), 1);
  story.make(SYS_execve, {kPath, 0, 0}, 0);
  CHECK(flags(1) == Flags{PR_SET_CHILD_SUBREAPER, SYS_setpriority});
}

TEST_CASE("KernelModel: System V semaphores and queues, until they are removed") {
  Story story;
  story.make(SYS_semget, {0, 1, 0600}, 7);
  story.make(SYS_msgget, {0, 0600}, 7);
  story.fork(2, 101);
  CHECK_EQ(story.process(2).ipc.size(), 2);
  story.make(SYS_semctl, {7, 0, IPC_RMID, 0}, 0);
  CHECK_EQ(story.process(2).ipc.size(), 1);
  story.make(SYS_msgctl, {7, IPC_RMID, 0}, 0, 2);
  CHECK(story.process().ipc.empty());
}

TEST_CASE("KernelModel: locks, the capacity of pipes, and what epoll has reported") {
  Story story;
  story.make(SYS_open, {kPath, O_RDWR, 0}, 3);
  story.make(SYS_flock, {3, LOCK_EX | LOCK_NB}, 0);
  CHECK_EQ(story.object(3).lock, LOCK_EX);
  story.make(SYS_flock, {3, LOCK_UN}, 0);
  CHECK_EQ(story.object(3).lock, 0);
  story.make_pair(SYS_pipe2, {kBuffer, 0}, kBuffer, 4, 5);
  story.make(SYS_fcntl, {5, F_SETPIPE_SZ, 300'000}, 524288);
  CHECK_EQ(story.object(4).capacity, 524288);
  story.make(SYS_epoll_create1, {0}, 6);
  story.make(SYS_epoll_ctl, {6, EPOLL_CTL_ADD, 4, kBuffer}, 0);
  epoll_event event{EPOLLIN, {}};
  event.data.u64 = 99;
  MemoryWrite write{kBuffer, sizeof event, MemoryWrite::Kind::data, Bytes(sizeof event)};
  std::memcpy(write.data.data(), &event, sizeof event);
  story.call(SYS_epoll_wait, {6, kBuffer, 1, 0}, 1).writes.push_back(write);
  story.happens();
  CHECK_EQ(story.object(6).reported_at.at(99), story.object(6).watched_since.at(4));
  story.make(SYS_epoll_ctl, {6, EPOLL_CTL_MOD, 4, kBuffer}, 0);
  CHECK_LT(story.object(6).reported_at.at(99), story.object(6).watched_since.at(4));
}

TEST_CASE("InFlight: what was sent and not received, in the order of sending") {
  InFlight flow;
  constexpr uint64_t kChannel = 7;
  const auto receive = [&](EventRef sender, uint64_t offset, uint64_t length) {
    Receive receive;
    receive.channel = kChannel;
    receive.parts.push_back({sender, offset, length, 0});
    flow.received(receive);
  };
  flow.sent({1, 10}, {kChannel, 100, 0}, 1000);
  flow.sent({2, 5}, {kChannel, 50, 0}, 500);
  receive({2, 5}, 0, 50);
  receive({1, 10}, 0, 30);
  receive({3, 1}, 0, 8);  // its send is noted later
  flow.sent({3, 1}, {kChannel, 9, 0}, 400);
  const auto pieces = flow.pieces(kChannel);
  REQUIRE_EQ(pieces.size(), 2);
  CHECK(pieces[0].send == EventRef{3, 1});
  CHECK_EQ(pieces[0].offset, 8);
  CHECK_EQ(pieces[0].length, 1);
  CHECK(pieces[1].send == EventRef{1, 10});
  CHECK_EQ(pieces[1].offset, 30);
  CHECK_EQ(pieces[1].length, 70);
  CHECK(flow.pieces(8).empty());
}

TEST_CASE("InFlight: urgent bytes wait, have been taken ahead of others, or are gone") {
  using Urgent = InFlight::Urgent;
  InFlight flow;
  constexpr uint64_t kChannel = 7;
  const auto receive = [&](EventIndex send, uint64_t offset, uint64_t length, bool urgent) {
    Receive receive;
    receive.channel = kChannel;
    receive.parts.push_back({{1, send}, offset, length, 0});
    flow.received(receive, urgent);
  };
  const auto expect = [&](std::vector<std::tuple<EventIndex, uint64_t, uint64_t, Urgent>> expected) {
    std::vector<std::tuple<EventIndex, uint64_t, uint64_t, Urgent>> found;
    for (const auto& piece : flow.pieces(kChannel)) {
      found.emplace_back(piece.send.event, piece.offset, piece.length, piece.urgent);
    }
    CHECK(found == expected);
  };
  flow.sent({1, 10}, {kChannel, 3, 0}, 100);
  flow.sent({1, 11}, {kChannel, 3, 0}, 110, true);
  flow.sent({1, 12}, {kChannel, 3, 0}, 120);
  expect({{10, 0, 3, Urgent::no}, {11, 0, 3, Urgent::yes}, {12, 0, 3, Urgent::no}});
  receive(11, 2, 1, true);
  expect({{10, 0, 3, Urgent::no}, {11, 0, 2, Urgent::no}, {11, 2, 1, Urgent::taken}, {12, 0, 3, Urgent::no}});
  receive(10, 0, 3, false);
  receive(11, 0, 2, false);
  expect({{11, 2, 1, Urgent::taken}, {12, 0, 3, Urgent::no}});
  receive(12, 0, 1, false);
  expect({{12, 1, 2, Urgent::no}});
  flow.sent({1, 13}, {kChannel, 1, 0}, 130, true);
  flow.sent({1, 14}, {kChannel, 2, 0}, 140);
  receive(12, 1, 2, false);
  expect({{13, 0, 1, Urgent::yes}, {14, 0, 2, Urgent::no}});
  receive(14, 0, 1, false);
  expect({{13, 0, 1, Urgent::passed}, {14, 1, 1, Urgent::no}});
}

TEST_CASE("KernelModel: packets are counted, also empty ones, those that were cut, and several of one call") {
  Story story;
  constexpr uint64_t kArray = 0x5000;
  story.make_pair(SYS_socketpair, {AF_UNIX, SOCK_DGRAM, 0, kBuffer}, kBuffer, 3, 4);
  const auto send = [&](long number, std::initializer_list<uint64_t> args, int64_t result, uint64_t length) -> Event& {
    Event& event = story.call(number, args, result);
    event.send = Send{9, length, 0};
    return event;
  };
  send(SYS_write, {3, kPath, 3}, 3, 3);
  story.happens();
  send(SYS_sendto, {3, kPath, 0, 0}, 0, 0);
  story.happens();
  Event& several = send(SYS_sendmmsg, {3, kArray, 2, 0}, 2, 7);
  for (const uint32_t length : {5, 2}) {
    MemoryWrite write{kArray + (length == 5 ? 0 : sizeof(mmsghdr)) + offsetof(mmsghdr, msg_len), sizeof length,
                      MemoryWrite::Kind::data, Bytes(sizeof length)};
    std::memcpy(write.data.data(), &length, sizeof length);
    several.writes.push_back(write);
  }
  story.happens();
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (const SentPacket& packet : story.object(3).packets) parts.emplace_back(packet.offset, packet.length);
  CHECK(parts == std::vector<std::pair<uint64_t, uint64_t>>{{0, 3}, {0, 0}, {0, 5}, {5, 2}});
  story.make(SYS_recvfrom, {4, kBuffer, 9, MSG_PEEK}, 3);
  story.make(SYS_read, {4, kBuffer, 0}, 0);  // takes nothing
  CHECK(story.object(4).packet_receipts.empty());
  story.make(SYS_recvfrom, {4, kBuffer, 1, 0}, 1);  // and cuts it
  story.make(SYS_read, {4, kBuffer, 9}, 0);
  story.make(SYS_recvmmsg, {4, kArray, 2, 0}, 2);
  CHECK_EQ(story.object(4).packet_receipts.size(), 4);
}

TEST_CASE("add_packets: who has received a packet of a socket pair needs its send, whatever is in it") {
  Story story;
  story.make_pair(SYS_socketpair, {AF_UNIX, SOCK_SEQPACKET, 0, kBuffer}, kBuffer, 3, 4);
  story.fork(2, 200);
  for (const uint64_t length : {4, 0}) {
    story.call(SYS_write, {3, kPath, length}, static_cast<int64_t>(length)).send = Send{9, length, 0};
    story.happens();
  }
  story.make(SYS_read, {4, kBuffer, 1}, 1, 2);
  story.make(SYS_read, {4, kBuffer, 9}, 0, 2);
  story.make(SYS_read, {4, kBuffer, 9}, 0, 2);  // the end
  Past later;
  later.model = std::move(story.model);
  Communication communication;
  communication.units[1] = communication.units[2] = {};
  add_packets(later, communication);
  const auto& needs = communication.units.at(2).needs;
  REQUIRE_EQ(needs.size(), 2);
  CHECK_EQ(needs[0].event, 0);
  CHECK(needs[0].sender == EventRef{1, 2});
  CHECK_EQ(needs[1].event, 1);
  CHECK(needs[1].sender == EventRef{1, 3});
}

TEST_CASE("KernelModel: a process that was stopped and continued, until a wait has told of it") {
  Story story;
  story.fork(2, 200);
  const auto continued = [&] { return story.process(2).has_continued; };
  story.make(SYS_kill, {200, SIGCONT}, 0);
  CHECK_FALSE(continued());
  story.make(SYS_kill, {200, SIGSTOP}, 0);
  CHECK_FALSE(continued());
  story.make(SYS_tkill, {200, SIGCONT}, 0);
  CHECK(continued());
  story.make(SYS_kill, {200, SIGCONT}, 0);
  CHECK(continued());
  const int status = 0xffff;  // it has continued
  MemoryWrite write{kBuffer, sizeof status, MemoryWrite::Kind::data, Bytes(sizeof status)};
  std::memcpy(write.data.data(), &status, sizeof status);
  story.call(SYS_wait4, {200, kBuffer, WCONTINUED, 0}, 200).writes.push_back(write);
  story.happens();
  CHECK_FALSE(continued());
}

TEST_CASE("InFlight: a datagram's receive does not tell its channel") {
  InFlight flow;
  flow.sent({1, 10}, {7, 100, 0}, 1000);
  flow.sent({2, 5}, {8, 50, 0}, 500);
  Receive receive;
  receive.parts.push_back({{1, 10}, 0, 100, 0});
  flow.received(receive);
  CHECK(flow.pieces(7).empty());
  const auto pieces = flow.pieces(std::set<EventRef>{{1, 10}, {2, 5}, {3, 1}});
  REQUIRE_EQ(pieces.size(), 1);
  CHECK(pieces[0].send == EventRef{2, 5});
  CHECK_EQ(pieces[0].channel, 8);
}

TEST_CASE("belong_together: ends of a connection know each other by channel or by the connecting end's address") {
  const auto address = [](uint8_t port) { return Bytes{AF_INET, 0, 0, port, 127, 0, 0, 1}; };
  OpenObject client, other, accepted;
  client.own_address = address(1);
  other.own_address = address(2);
  client.peer_address = other.peer_address = address(9);
  accepted.accepted_from = 0;
  accepted.own_address = address(9);
  accepted.peer_address = address(1);
  CHECK(belong_together(client, accepted));
  CHECK(belong_together(accepted, client));
  CHECK_FALSE(belong_together(other, accepted));  // though it is connected to the same address
  other.out_channel = 4;
  accepted.in_channel = 4;
  CHECK(belong_together(other, accepted));
}

}  // namespace redrive::kernel_model_test
