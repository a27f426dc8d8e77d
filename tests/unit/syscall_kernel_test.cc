// The syscall table against the running kernel: see syscall_probe.h.
#include <asm/prctl.h>
#include <asm/unistd.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fsmap.h>
#include <linux/futex.h>
#include <linux/random.h>
#include <linux/sockios.h>
#include <mqueue.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <csignal>
#include <cstdlib>

#include "tests/unit/syscall_probe.h"

namespace redrive::syscall_kernel_test {
namespace {

Fd make_file(std::string_view content = kText) {
  char name[] = "/tmp/syscall_kernel_test.XXXXXX";
  Fd file(mkostemp(name, O_CLOEXEC));
  REQUIRE(file);
  unlink(name);
  REQUIRE(write(file.get(), content.data(), content.size()) == std::ssize(content));
  lseek(file.get(), 0, SEEK_SET);
  return file;
}
// Interrupts a sleeper again and again, in case a signal comes before the sleep.
class Interrupter {
 public:
  Interrupter() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, &old_);
    const itimerval often{{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Interrupter() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &old_, nullptr);
  }

 private:
  struct sigaction old_;
};

template <typename... T>
int64_t fixed(int64_t number, T... values) {
  return probe(number, [=](Arena&) { return call_args(values...); }).result;
}
TEST_CASE("reads cover exactly the bytes read") {
  Fd file = make_file();
  Pair pipe;
  auto read = probe(__NR_read, [&](Arena& arena) {
    pipe = full_pipe();
    return call_args(pipe.a.get(), arena.bytes(100), 100);
  });
  CHECK(read.result == std::ssize(kText));
  CHECK(read.bytes_out(true) == kText.size());
  CHECK(read.writes(read.args[1], kText.size()));

  auto readv = probe(__NR_readv, [&](Arena& arena) {
    pipe = full_pipe();
    return call_args(pipe.a.get(), put_iovecs(arena, scatter(arena, {10, 0, 3, 100})), 4);
  });
  CHECK(readv.out.size() == 3);
  CHECK(readv.bytes_out(true) == kText.size());
  CHECK(readv.bytes_in(false) == 4 * sizeof(iovec));

  for (const int64_t number : {__NR_preadv, __NR_preadv2}) {
    auto preadv = probe(number, [&](Arena& arena) {
      return call_args(file.get(), put_iovecs(arena, scatter(arena, {5, 5, 5})), 3, 2, 0, 0);
    });
    CHECK(preadv.result == 15);
    CHECK(preadv.out.size() == 3);
  }
  CHECK(with_buffer(__NR_pread64, call_args(file.get(), 0, 20, 4), 1, 20).bytes_out(false) == 20);
  auto failed = with_buffer(__NR_read, call_args(-1, 0, 20), 1, 20);
  CHECK(failed.result == -EBADF);
  CHECK(failed.out.empty());
}

TEST_CASE("transfers inside the kernel update their offsets") {
  Fd file = make_file(), other = make_file("");
  Pair pipe = make_pipe();
  auto sendfile =
      probe(__NR_sendfile, [&](Arena& arena) { return call_args(other.get(), file.get(), arena.put<int64_t>(3), 10); });
  CHECK(sendfile.result == 10);
  CHECK(probe(__NR_splice, [&](Arena& arena) {
          return call_args(file.get(), arena.put<int64_t>(3), pipe.b.get(), 0, 10, 0);
        }).result == 10);
  CHECK(probe(__NR_splice, [&](Arena& arena) {
          return call_args(pipe.a.get(), 0, other.get(), arena.put<int64_t>(5), 10, 0);
        }).result == 10);
  CHECK(probe(__NR_copy_file_range, [&](Arena& arena) {
          return call_args(file.get(), arena.put<int64_t>(1), other.get(), arena.put<int64_t>(50), 10, 0);
        }).result > 0);
}

TEST_CASE("waiting for descriptors") {
  Pair pipe = full_pipe();
  const int fd = pipe.a.get();
  const auto set = [&](Arena& arena) {
    uint64_t* bits = reinterpret_cast<uint64_t*>(arena.bytes(16));
    bits[0] = bits[1] = 0;
    bits[fd / 64] |= 1ull << (fd % 64);
    return bits;
  };
  CHECK(probe(__NR_poll, [&](Arena& arena) {
          return call_args(arena.put(std::array{pollfd{fd, POLLIN, 0}, pollfd{-1, POLLIN, 77}}), 2, 0);
        }).result == 1);
  CHECK(probe(__NR_ppoll, [&](Arena& arena) {
          return call_args(arena.put(pollfd{fd, POLLIN, 77}), 1, arena.put(timespec{5, 5}), arena.put<uint64_t>(0), 8);
        }).result == 1);
  CHECK(probe(__NR_ppoll, [&](Arena& arena) {
          return call_args(0, 0, arena.put(timespec{0, 100000}), 0, 8);
        }).result == 0);
  CHECK(probe(__NR_select, [&](Arena& arena) {
          return call_args(fd + 1, set(arena), 0, set(arena), arena.put(timeval{3, 4}));
        }).result == 1);
  CHECK(probe(__NR_pselect6, [&](Arena& arena) {
          uint64_t* mask = arena.put<uint64_t>(0);
          return call_args(fd + 1, set(arena), set(arena), 0, arena.put(timespec{3, 4}),
                           arena.put(std::array{word(mask), word(8)}));
        }).bytes_in(false) == 8 + 8 + 16 + 16 + 8);

  Interrupter interrupter;
  Pair empty = make_pipe();
  auto interrupted = probe(__NR_poll, [&](Arena& arena) {
    return call_args(arena.put(pollfd{empty.a.get(), POLLIN, 77}), 1, 10000);
  });
  CHECK(interrupted.result == -EINTR);
  CHECK(probe(__NR_select, [&](Arena& arena) {
          return call_args(0, 0, 0, 0, arena.put(timeval{10, 0}));
        }).result == -EINTR);
  CHECK(probe(__NR_ppoll, [&](Arena& arena) {
          return call_args(0, 0, arena.put(timespec{10, 0}), 0, 8);
        }).result == -EINTR);
}

TEST_CASE("a select with more bits than the process has descriptors stays inside readable memory") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  auto* pages =
      static_cast<uint8_t*>(mmap(nullptr, 2 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(munmap(pages + kPageSize, kPageSize) == 0);
  uint8_t* bits = pages + kPageSize - 128;
  const CallArgs args = call_args(1 << 20, bits, 0, 0, 0);
  const SyscallRow* row = find_row(__NR_select, args);
  const auto out = outputs(*row, args, entry_sizes(*row, args, *memory), 0, *memory);
  REQUIRE(out.size() == 1);
  CHECK(out[0] == Span{word(bits), 128, false});
  munmap(pages, kPageSize);
}

TEST_CASE("epoll") {
  Pair pipe = full_pipe();
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{EPOLLIN, {.u64 = 0x1122334455667788}};
  REQUIRE(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pipe.a.get(), &event) == 0);
  CHECK(with_buffer(__NR_epoll_wait, call_args(epoll.get(), 0, 8, 0), 1, 96).bytes_out(false) == 12);
  CHECK(with_buffer(__NR_epoll_pwait, call_args(epoll.get(), 0, 8, 0, 0, 8), 1, 96).bytes_out(false) == 12);
  CHECK(probe(__NR_epoll_pwait2, [&](Arena& arena) {
          return call_args(epoll.get(), arena.bytes(96), 8, arena.put(timespec{0, 0}), 0, 8);
        }).bytes_out(false) == 12);
  auto control = probe(__NR_epoll_ctl, [&](Arena& arena) {
    return call_args(epoll.get(), EPOLL_CTL_MOD, pipe.a.get(), arena.put(event));
  });
  CHECK(control.result == 0);
  CHECK(control.bytes_in(false) == 12);
}

TEST_CASE("files and directories") {
  Fd file = make_file(), root(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
     temporary(open("/tmp", O_RDONLY | O_CLOEXEC));
  const auto named = [](int64_t number, const char* name, size_t size) {
    return probe(number, [=](Arena& arena) { return call_args(arena.text(name), arena.bytes(size), size); });
  };
  const auto named_at = [](int64_t number, const char* name, size_t size) {
    return probe(number, [=](Arena& arena) {
      return call_args(AT_FDCWD, arena.text(name), arena.bytes(size), number == __NR_newfstatat ? 0 : size);
    });
  };
  auto stat = named(__NR_stat, "/tmp", 200);
  CHECK(stat.result == 0);
  CHECK(stat.bytes_in(false) == 5);
  CHECK(named(__NR_lstat, "/tmp", 200).result == 0);
  CHECK(named(__NR_stat, "/nonexistent", 200).out.empty());
  CHECK(with_buffer(__NR_fstat, call_args(file.get()), 1, 200).result == 0);
  CHECK(named_at(__NR_newfstatat, "/tmp", 200).result == 0);
  CHECK(probe(__NR_statx, [](Arena& arena) {
          return call_args(AT_FDCWD, arena.text("/tmp"), 0, 0xfff, arena.bytes(300));
        }).result == 0);
  CHECK(named(__NR_readlink, "/proc/self", 30).result > 0);
  CHECK(named_at(__NR_readlinkat, "/proc/self", 1).result == 1);
  CHECK(with_buffer(__NR_getcwd, call_args(0, 4096), 0, 4096).result > 0);
  CHECK(with_buffer(__NR_getdents64, call_args(root.get(), 0, 1000), 1, 1000).result > 0);
  CHECK(with_buffer(__NR_getdents, call_args(root.get(), 0, 1000), 1, 1000).result > 0);
  CHECK(named(__NR_statfs, "/tmp", 200).result == 0);
  CHECK(with_buffer(__NR_fstatfs, call_args(file.get()), 1, 200).result == 0);
  struct stat status;
  REQUIRE(::stat("/tmp", &status) == 0);
  with_buffer(__NR_ustat, call_args(status.st_dev), 1, 64);
  with_buffer(__NR_sysfs, call_args(2, 0, 0), 2, 256);
  probe(451 /* cachestat */, [&](Arena& arena) {
    return call_args(file.get(), arena.put(std::array<uint64_t, 2>{0, 4096}), arena.bytes(64), 0);
  });
  probe(468 /* file_getattr */,
        [](Arena& arena) { return call_args(AT_FDCWD, arena.text("/tmp"), arena.bytes(24), 24, 0); });
  for (const int flags : {0, 1 /* AT_HANDLE_MNT_ID_UNIQUE */}) {
    for (const uint32_t room : {0u, 128u}) {
      probe(__NR_name_to_handle_at, [=](Arena& arena) {
        uint8_t* handle = arena.bytes(8 + 128);
        std::memcpy(handle, &room, sizeof room);
        return call_args(AT_FDCWD, arena.text("/tmp"), handle, arena.bytes(8), flags);
      });
    }
  }
}

TEST_CASE("extended attributes") {
  Fd file = make_file();
  const char value[] = "value";
  const bool there = fsetxattr(file.get(), "user.test", value, sizeof value, 0) == 0;
  MESSAGE("extended attributes on /tmp: ", there);
  for (const size_t room : {0, 3, 64}) {
    probe(__NR_fgetxattr,
          [&](Arena& arena) { return call_args(file.get(), arena.text("user.test"), arena.bytes(64), room); });
    with_buffer(__NR_flistxattr, call_args(file.get(), 0, room), 1, 64);
    probe(464 /* getxattrat */, [&](Arena& arena) {
      uint8_t* buffer = arena.bytes(64);
      return call_args(file.get(), arena.text(""), AT_EMPTY_PATH, arena.text("user.test"),
                       arena.put(std::array{word(buffer), word(room)}), 16);
    });
    probe(465 /* listxattrat */,
          [&](Arena& arena) { return call_args(file.get(), arena.text(""), AT_EMPTY_PATH, arena.bytes(64), room); });
  }
}

TEST_CASE("mounts and security modules") {
  probe(457 /* statmount */, [](Arena& arena) {
    struct statx root;
    REQUIRE(statx(AT_FDCWD, "/", 0, 0x4000 /* STATX_MNT_ID_UNIQUE */, &root) == 0);
    const std::array<uint64_t, 3> request{24, root.stx_mnt_id, 0x3f};
    return call_args(arena.put(request), arena.bytes(2000), 2000, 0);
  });
  probe(458 /* listmount */, [](Arena& arena) {
    const std::array<uint64_t, 3> request{24, ~0ull /* LSMT_ROOT */, 0};
    return call_args(arena.put(request), arena.bytes(2000), 250, 0);
  });
  for (const uint32_t room : {1u, 256u}) {
    probe(461 /* lsm_list_modules */, [=](Arena& arena) { return call_args(arena.bytes(256), arena.put(room), 0); });
    probe(459 /* lsm_get_self_attr */,
          [=](Arena& arena) { return call_args(100, arena.bytes(256), arena.put(room), 0); });
  }
}

TEST_CASE("identity, limits and the machine") {
  CHECK(with_buffer(__NR_uname, {}, 0, 400).result == 0);
  CHECK(with_buffer(__NR_sysinfo, {}, 0, 200).result == 0);
  CHECK(with_buffer(__NR_times, {}, 0, 64).result > 0);
  CHECK(with_buffer(__NR_getrusage, call_args(RUSAGE_SELF), 1, 200).result == 0);
  CHECK(with_buffer(__NR_getrlimit, call_args(RLIMIT_NOFILE), 1, 32).result == 0);
  CHECK(probe(__NR_prlimit64, [](Arena& arena) {
          rlimit now;
          getrlimit(RLIMIT_CORE, &now);
          return call_args(0, RLIMIT_CORE, arena.put(now), arena.bytes(32));
        }).result == 0);
  with_buffer(__NR_getgroups, call_args(64), 1, 256);
  with_buffer(__NR_getgroups, call_args(0), 1, 256);
  for (const int64_t number : {__NR_getresuid, __NR_getresgid}) {
    CHECK(probe(number, [](Arena& arena) {
            return call_args(arena.bytes(4), arena.bytes(4), arena.bytes(4));
          }).result == 0);
  }
  for (const uint32_t version : {uint32_t{_LINUX_CAPABILITY_VERSION_3}, 0u}) {
    probe(__NR_capget, [=](Arena& arena) {
      return call_args(arena.put(std::array<uint32_t, 2>{version, 0}), arena.bytes(24));
    });
  }
  CHECK(probe(__NR_getcpu, [](Arena& arena) { return call_args(arena.bytes(4), arena.bytes(4), 0); }).result == 0);
  CHECK(with_buffer(__NR_getrandom, call_args(0, 40, 0), 0, 64).bytes_out(false) == 40);
  CHECK(probe(__NR_get_robust_list, [](Arena& arena) { return call_args(0, arena.bytes(8), arena.bytes(8)); }).result ==
        0);
  with_buffer(__NR_syslog, call_args(3, 0, 200), 1, 200);
  with_buffer(__NR_syslog, call_args(10, 0, 200), 1, 200);
}

TEST_CASE("prctl and arch_prctl") {
  CHECK(with_buffer(__NR_prctl, call_args(PR_GET_NAME), 1, 32).result == 0);
  CHECK(with_buffer(__NR_prctl, call_args(PR_GET_PDEATHSIG), 1, 32).result == 0);
  CHECK(with_buffer(__NR_prctl, call_args(PR_GET_CHILD_SUBREAPER), 1, 32).result == 0);
  with_buffer(__NR_prctl, call_args(PR_GET_TID_ADDRESS), 1, 32);
  with_buffer(__NR_prctl, call_args(0x41555856 /* PR_GET_AUXV */, 0, 64), 1, 512);
  CHECK(with_buffer(__NR_arch_prctl, call_args(ARCH_GET_FS), 1, 32).result == 0);
  with_buffer(__NR_arch_prctl, call_args(0x5005 /* ARCH_SHSTK_STATUS */), 1, 32);
  auto name = probe(__NR_prctl, [](Arena& arena) { return call_args(PR_SET_NAME, arena.text("unit-test")); });
  CHECK(name.bytes_in(false) == 10);
}

TEST_CASE("scheduling and placement") {
  CHECK(with_buffer(__NR_sched_getparam, call_args(0), 1, 32).result == 0);
  CHECK(with_buffer(__NR_sched_rr_get_interval, call_args(0), 1, 32).result == 0);
  CHECK(with_buffer(__NR_sched_getaffinity, call_args(0, 128), 2, 128).result > 0);
  CHECK(with_buffer(__NR_sched_getattr, call_args(0, 0, 56, 0), 1, 64).result == 0);
  auto too_big = probe(__NR_sched_setattr, [](Arena& arena) {
    uint8_t* attribute = arena.bytes(200);
    const uint32_t size = 200;
    std::memcpy(attribute, &size, sizeof size);
    return call_args(0, attribute, 0);
  });
  CHECK(too_big.result == -E2BIG);
  CHECK(too_big.out.size() == 1);
  probe(__NR_get_mempolicy, [](Arena& arena) { return call_args(arena.bytes(4), arena.bytes(128), 1024, 0, 0); });
  probe(__NR_mincore, [](Arena& arena) {
    const Address page = word(arena.bytes(2 * kPageSize)) / kPageSize * kPageSize;
    return call_args(page, kPageSize + 1, arena.bytes(8));
  });
}

TEST_CASE("time") {
  CHECK(probe(__NR_gettimeofday, [](Arena& arena) { return call_args(arena.bytes(16), arena.bytes(8)); }).result == 0);
  CHECK(with_buffer(__NR_time, {}, 0, 32).result > 0);
  CHECK(with_buffer(__NR_clock_gettime, call_args(CLOCK_MONOTONIC), 1, 32).result == 0);
  CHECK(with_buffer(__NR_clock_getres, call_args(CLOCK_MONOTONIC), 1, 32).result == 0);
  const auto query = [](Arena& arena) {
    uint8_t* timex = arena.bytes(208);
    std::memset(timex, 0, 208);
    return timex;
  };
  CHECK(probe(__NR_adjtimex, [&](Arena& arena) { return call_args(query(arena)); }).result >= 0);
  CHECK(probe(__NR_clock_adjtime, [&](Arena& arena) { return call_args(CLOCK_REALTIME, query(arena)); }).result >= 0);
  CHECK(with_buffer(__NR_getitimer, call_args(ITIMER_REAL), 1, 64).result == 0);
  CHECK(probe(__NR_setitimer, [](Arena& arena) {
          return call_args(ITIMER_VIRTUAL, arena.put(itimerval{}), arena.bytes(64));
        }).result == 0);
  int32_t timer = -1;
  CHECK(probe(__NR_timer_create, [&](Arena& arena) {
          sigevent event{};
          event.sigev_notify = SIGEV_NONE;
          return call_args(CLOCK_MONOTONIC, arena.put(event), arena.bytes(4));
        }).result == 0);
  REQUIRE(syscall(__NR_timer_create, CLOCK_MONOTONIC, nullptr, &timer) == 0);
  CHECK(probe(__NR_timer_settime, [&](Arena& arena) {
          return call_args(timer, 0, arena.put(itimerspec{{0, 0}, {1000, 0}}), arena.bytes(64));
        }).result == 0);
  CHECK(with_buffer(__NR_timer_gettime, call_args(timer), 1, 64).result == 0);
  syscall(__NR_timer_delete, timer);
  Fd clock(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  CHECK(probe(__NR_timerfd_settime, [&](Arena& arena) {
          return call_args(clock.get(), 0, arena.put(itimerspec{{0, 0}, {1000, 0}}), arena.bytes(64));
        }).result == 0);
  CHECK(with_buffer(__NR_timerfd_gettime, call_args(clock.get()), 1, 64).result == 0);
}

TEST_CASE("a sleep that a signal ends says how much was left") {
  const auto sleep = [](Arena& arena, timespec time) { return call_args(arena.put(time), arena.bytes(16)); };
  auto finished = probe(__NR_nanosleep, [&](Arena& arena) { return sleep(arena, {0, 1000}); });
  CHECK(finished.result == 0);
  CHECK(finished.writes(finished.args[1], 16));  // it may have been woken earlier
  Interrupter interrupter;
  auto interrupted = probe(__NR_nanosleep, [&](Arena& arena) { return sleep(arena, {10, 0}); });
  CHECK(interrupted.result == -EINTR);
  CHECK(interrupted.writes(interrupted.args[1], 16));
  CHECK(probe(__NR_clock_nanosleep, [](Arena& arena) {
          return call_args(CLOCK_MONOTONIC, 0, arena.put(timespec{10, 0}), arena.bytes(16));
        }).result == -EINTR);
}

TEST_CASE("signals") {
  CHECK(probe(__NR_rt_sigaction, [](Arena& arena) { return call_args(SIGUSR1, 0, arena.bytes(64), 8); }).result == 0);
  CHECK(probe(__NR_rt_sigprocmask, [](Arena& arena) {
          return call_args(SIG_BLOCK, arena.put<uint64_t>(0), arena.bytes(16), 8);
        }).result == 0);
  CHECK(with_buffer(__NR_rt_sigpending, call_args(0, 8), 0, 16).result == 0);
  CHECK(probe(__NR_sigaltstack, [](Arena& arena) { return call_args(0, arena.bytes(64)); }).result == 0);
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  REQUIRE(sigprocmask(SIG_BLOCK, &set, &old) == 0);
  CHECK(probe(__NR_rt_sigtimedwait, [](Arena& arena) {
          raise(SIGUSR1);
          return call_args(arena.put<uint64_t>(1ull << (SIGUSR1 - 1)), arena.bytes(160), arena.put(timespec{1, 0}), 8);
        }).result == SIGUSR1);
  REQUIRE(sigprocmask(SIG_SETMASK, &old, nullptr) == 0);
}

TEST_CASE("children") {
  const auto spawn = [] {
    const pid_t child = fork();
    if (child == 0) _exit(3);
    return child;
  };
  CHECK(probe(__NR_wait4, [&](Arena& arena) {
          return call_args(spawn(), arena.bytes(4), 0, arena.bytes(200));
        }).result > 0);
  CHECK(probe(__NR_waitid, [&](Arena& arena) {
          return call_args(P_PID, spawn(), arena.bytes(160), WEXITED, arena.bytes(200));
        }).result == 0);
  // The templates of stubs are children of another thread.
  CHECK(probe(__NR_waitid, [](Arena& arena) {
          return call_args(P_ALL, 0, arena.bytes(160), WEXITED | __WNOTHREAD, arena.bytes(200));
        }).result == -ECHILD);
  CHECK(probe(__NR_wait4, [](Arena& arena) {
          return call_args(-1, arena.bytes(4), __WNOTHREAD, arena.bytes(200));
        }).result == -ECHILD);

  Pair gate = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    gate.b = Fd();
    _exit(read(gate.a.get(), &byte, 1) == 0 ? 0 : 1);
  }
  auto none = probe(__NR_wait4, [](Arena& arena) { return call_args(-1, arena.bytes(4), WNOHANG, arena.bytes(200)); });
  CHECK(none.result == 0);
  CHECK(none.out.empty());
  CHECK(probe(__NR_waitid, [](Arena& arena) {
          return call_args(P_ALL, 0, arena.bytes(160), WEXITED | WNOHANG, arena.bytes(200));
        }).result == 0);
  gate.b = Fd();
  waitpid(child, nullptr, 0);
}

TEST_CASE("futexes") {
  auto wake = probe(__NR_futex, [](Arena& arena) {
    return call_args(arena.put<uint32_t>(0), FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, 1, arena.put<uint32_t>(5),
                     FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0));
  });
  CHECK(wake.result == 0);
  CHECK(wake.writes(wake.args[4], 4));
  auto wait = probe(__NR_futex, [](Arena& arena) {
    return call_args(arena.put<uint32_t>(1), FUTEX_WAIT, 2, arena.put(timespec{1, 0}));
  });
  CHECK(wait.result == -EAGAIN);
  CHECK(wait.bytes_in(false) == 16);
}

TEST_CASE("System V IPC") {
  const int shm = shmget(IPC_PRIVATE, 4096, 0600), sem = semget(IPC_PRIVATE, 7, 0600), msg = msgget(IPC_PRIVATE, 0600);
  REQUIRE(shm >= 0);
  REQUIRE(sem >= 0);
  REQUIRE(msg >= 0);
  for (const int command : {IPC_STAT, IPC_INFO, SHM_INFO}) {
    CHECK(with_buffer(__NR_shmctl, call_args(shm, command), 2, 256).result >= 0);
  }
  for (const int command : {IPC_STAT, IPC_INFO, MSG_INFO}) {
    CHECK(with_buffer(__NR_msgctl, call_args(msg, command), 2, 256).result >= 0);
  }
  for (const int command : {IPC_STAT, IPC_INFO, SEM_INFO}) {
    CHECK(with_buffer(__NR_semctl, call_args(sem, 0, command), 3, 256).result >= 0);
  }
  CHECK(with_buffer(__NR_semctl, call_args(sem, 0, GETALL), 3, 64).bytes_out(false) == 14);
  auto sent = probe(__NR_msgsnd, [&](Arena& arena) {
    return call_args(msg, arena.put(std::array<uint64_t, 3>{1, 2, 3}), 16, 0);
  });
  CHECK(sent.result == 0);
  CHECK(sent.bytes_in(true) == 16);
  auto received = with_buffer(__NR_msgrcv, call_args(msg, 0, 40, 0, 0), 1, 64);
  CHECK(received.result == 16);
  CHECK(received.bytes_out(true) == 16);
  CHECK(received.bytes_out(false) == 8);
  shmctl(shm, IPC_RMID, nullptr);
  semctl(sem, 0, IPC_RMID);
  msgctl(msg, IPC_RMID, nullptr);
}

TEST_CASE("POSIX message queues") {
  const std::string name = "/redrive-unit-" + std::to_string(getpid());
  mq_attr attributes{.mq_flags = 0, .mq_maxmsg = 4, .mq_msgsize = 64, .mq_curmsgs = 0, .__pad = {}};
  Fd queue(mq_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, &attributes));
  if (!queue) {
    MESSAGE("SKIP: no POSIX message queues here");
    return;
  }
  mq_unlink(name.c_str());
  CHECK(probe(__NR_mq_timedsend, [&](Arena& arena) {
          return call_args(queue.get(), arena.text(kText), kText.size(), 3, 0);
        }).bytes_in(true) == kText.size());
  CHECK(probe(__NR_mq_timedreceive, [&](Arena& arena) {
          return call_args(queue.get(), arena.bytes(64), 64, arena.bytes(4), 0);
        }).bytes_out(true) == kText.size());
  CHECK(with_buffer(__NR_mq_getsetattr, call_args(queue.get(), 0), 2, 96).result == 0);
}

TEST_CASE("fcntl") {
  Fd file = make_file();
  CHECK(probe(__NR_fcntl, [&](Arena& arena) {
          struct flock lock {};
          lock.l_type = F_WRLCK;
          return call_args(file.get(), F_GETLK, arena.put(lock));
        }).result == 0);
  for (const int command : {F_GETOWN_EX, F_GET_RW_HINT, F_GET_FILE_RW_HINT, 17 /* F_GETOWNER_UIDS */}) {
    with_buffer(__NR_fcntl, call_args(file.get(), command), 2, 32);
  }
  CHECK(fixed(__NR_fcntl, file.get(), F_GETFL, 0) >= 0);
}

TEST_CASE("ioctl") {
  Fd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), net(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      file = make_file(), random(open("/dev/urandom", O_RDONLY | O_CLOEXEC)),
      directory(open("/tmp", O_RDONLY | O_CLOEXEC));
  Pair pipe = full_pipe();
  const struct {
    int fd;
    uint64_t request;
  } requests[] = {{terminal.get(), TCGETS},
                  {terminal.get(), 0x802c542a /* TCGETS2 */},
                  {terminal.get(), TCGETA},
                  {terminal.get(), TIOCGWINSZ},
                  {terminal.get(), TIOCGPTN},
                  {terminal.get(), TIOCOUTQ},
                  {terminal.get(), TIOCGPTLCK},
                  {terminal.get(), TIOCGPKT},
                  {terminal.get(), TIOCGPGRP},
                  {pipe.a.get(), FIONREAD},
                  {file.get(), FIONREAD},
                  {file.get(), FIOQSIZE},
                  {file.get(), 0x80086601 /* FS_IOC_GETFLAGS */},
                  {file.get(), 0x80087601 /* FS_IOC_GETVERSION */},
                  {file.get(), 2 /* FIGETBSZ */},
                  {net.get(), SIOCATMARK},
                  {net.get(), SIOCGPGRP},
                  {random.get(), RNDGETENTCNT},
                  {directory.get(), 0x801c581f /* FS_IOC_FSGETXATTR */},
                  {directory.get(), 0x80111500 /* FS_IOC_GETFSUUID */}};
  for (const auto& request : requests) with_buffer(__NR_ioctl, call_args(request.fd, request.request), 2, 300);
  for (const uint64_t request : {SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFNETMASK, SIOCGIFMTU, SIOCGIFINDEX, SIOCGIFHWADDR,
                                 SIOCGIFTXQLEN, SIOCGIFMAP, SIOCGIFMETRIC}) {
    probe(__NR_ioctl, [&](Arena& arena) {
      ifreq interface;
      std::memset(&interface, 0xee, sizeof interface);
      std::strcpy(interface.ifr_name, "lo");
      return call_args(net.get(), request, arena.put(interface));
    });
  }
  for (const int room : {20, 2000}) {
    auto interfaces = probe(__NR_ioctl, [&](Arena& arena) {
      ifconf list{};
      list.ifc_len = room;
      list.ifc_buf = reinterpret_cast<char*>(arena.bytes(2000));
      return call_args(net.get(), SIOCGIFCONF, arena.put(list));
    });
    CHECK(interfaces.result == 0);
  }
  probe(__NR_ioctl, [&](Arena& arena) {  // the buffer lies over the structure
    uint8_t* const address = arena.bytes(2000);
    const ifconf list{2000, {reinterpret_cast<char*>(address)}};
    std::memcpy(address, &list, sizeof list);
    return call_args(net.get(), SIOCGIFCONF, address);
  });
  for (const uint32_t room : {0, 3, 50}) {
    auto extents = probe(__NR_ioctl, [&](Arena& arena) {
      fsmap_head* head = reinterpret_cast<fsmap_head*>(arena.bytes(sizeof(fsmap_head) + room * sizeof(fsmap)));
      std::memset(head, 0, sizeof *head);
      head->fmh_count = room;
      std::memset(&head->fmh_keys[1], 0xff, sizeof head->fmh_keys[1]);
      std::memset(head->fmh_keys[1].fmr_reserved, 0, sizeof head->fmh_keys[1].fmr_reserved);
      return call_args(directory.get(), FS_IOC_GETFSMAP, head);
    });
    MESSAGE("FS_IOC_GETFSMAP on /tmp: ", format_result(extents.result));
  }
}

TEST_CASE("the semaphores of another IPC namespace") {
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    int id = unshare(CLONE_NEWIPC) == 0 ? semget(IPC_PRIVATE, 100, 0600) : -1;
    _exit(write(ready[1], &id, sizeof id) == sizeof id && pause());
  }
  int id = -1;
  REQUIRE(read(ready[0], &id, sizeof id) == sizeof id);
  MESSAGE("may unshare: ", id >= 0);
  auto memory = Memory::open(child);
  REQUIRE(memory);
  const CallArgs args = call_args(id, 0, GETALL, 0x1000);
  const uint64_t room = entry_sizes(*find_row(__NR_semctl, args), args, *memory).size[3];
  if (id >= 0) CHECK(room >= 200);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]), close(ready[1]);
}

}  // namespace
}  // namespace redrive::syscall_kernel_test
