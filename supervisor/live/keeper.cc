#include "supervisor/live/keeper.h"

#include <asm/prctl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/page.h"
#include "checkpoint/stub.h"
#include "supervisor/live/object_maker.h"
#include "supervisor/live/temporary_directory.h"
#include "supervisor/live/write_setting.h"

namespace redrive {
namespace {

constexpr int kSignals = 64;
constexpr int kSignalStatus = 128;

// What a process reports: its index, or why it cannot be made.
struct Report {
  static constexpr int kFailed = -1, kInit = -2;
  int process = kFailed;
  char error[240] = {};
};

void report(int socket, const Report& what) {
  const ssize_t sent = send(socket, &what, sizeof what, MSG_NOSIGNAL);
  static_cast<void>(sent);
}

[[noreturn]] void fail(int socket, const Error& error) {
  Report what;
  std::snprintf(what.error, sizeof what.error, "%s", error.message.c_str());
  report(socket, what);
  _exit(1);
}

int status_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalStatus + WTERMSIG(status); }

// All of this runs in processes of one thread, which know each other by being each other's children.
class Maker {
 public:
  Maker(const LiveSpec& spec, int first, const std::vector<int>& shared, int socket, const DumpedKeep* dumped)
      : spec_(spec), objects_(spec, first), first_(first), shared_(shared), socket_(socket), dumped_(dumped) {}

  // Never returns. `lifeline`: whose end ends processes that are to be dumped.
  [[noreturn]] void keep(int lifeline) {
    if (!dumped_) prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP}) ::signal(signal, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);
    if (const auto made = make_namespaces(); !made) fail(socket_, made.error());
    const pid_t init = fork();
    if (init < 0) fail(socket_, errno_error("cannot fork"));
    if (init == 0) run_init();
    if (dumped_) {
      dup2(lifeline, STDIN_FILENO);
      close_range(STDIN_FILENO + 1, ~0u, 0);
      char any = 0;
      while (read(STDIN_FILENO, &any, sizeof any) < 0 && errno == EINTR) continue;
      kill(init, SIGKILL);
    }
    close_range(STDERR_FILENO + 1, ~0u, 0);
    int status = 0;
    wait_for(init, status);
    if (dumped_) rmdir(dumped_->group.c_str());  // also if redrive was killed
    _exit(status_of(status));
  }

 private:
  Result<void> make_namespaces() const {
    const uid_t user = geteuid();
    const gid_t group = getegid();
    if (user != 0) {
      if (unshare(CLONE_NEWUSER) != 0) {
        return Error{"processes cannot have their numbers again: user namespaces are not allowed here; run it as root"};
      }
      write_setting("/proc/self/setgroups", "deny");
      write_setting("/proc/self/uid_map", fmt::format("{} {} 1", user, user));
      write_setting("/proc/self/gid_map", fmt::format("{} {} 1", group, group));
    }
    if (unshare(dumped_ ? CLONE_NEWPID : CLONE_NEWPID | CLONE_NEWNS) != 0)
      return errno_error("cannot make a PID namespace");
    constexpr uint64_t kSecond = 1'000'000'000;
    if (spec_.clock_ns == 0) return {};
    if (unshare(CLONE_NEWTIME) != 0) return errno_error("the clock cannot go on where it was (a time namespace)");
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto ahead =
        static_cast<int64_t>(spec_.clock_ns) - (now.tv_sec * static_cast<int64_t>(kSecond) + now.tv_nsec);
    int64_t seconds = ahead / static_cast<int64_t>(kSecond), rest = ahead % static_cast<int64_t>(kSecond);
    if (rest < 0) --seconds, rest += static_cast<int64_t>(kSecond);
    if (!write_setting("/proc/self/timens_offsets",
                       fmt::format("monotonic {} {}\nboottime {} {}\n", seconds, rest, seconds, rest))) {
      return errno_error("cannot set the clock of a time namespace");
    }
    return {};
  }

  [[noreturn]] void run_init() {
    if (dumped_) {
      if (!write_setting(dumped_->group + "/cgroup.procs", "0"))
        fail(socket_, errno_error("cannot join a control group"));
      setsid();
    } else {
      prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
      mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
    }
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (size_t i = 0; i < shared_.size(); ++i) {
      if (dup2(shared_[i], first_ + static_cast<int>(i)) < 0) fail(socket_, errno_error("too many open files"));
    }
    const int socket = first_ + static_cast<int>(shared_.size());
    if (socket_ != socket && dup3(socket_, socket, O_CLOEXEC) < 0) fail(socket_, errno_error("too many open files"));
    socket_ = socket;
    close_range(static_cast<unsigned>(socket) + 1, ~0u, 0);  // what redrive has open
    ::signal(SIGPIPE, SIG_IGN);                              // what is put into a pipe may have lost its reader
    for (const LiveProcess& process : spec_.processes) {
      std::error_code ignored;  // the process that enters it finds that it is missing
      if (process.directory && !dumped_) std::filesystem::create_directories(*process.directory, ignored);
    }
    if (const auto made = objects_.make_all(); !made) fail(socket_, made.error());
    make_children(std::nullopt);
    if (dumped_) become_init();
    if (objects_.withholds()) put_withheld();
    close_range(3, ~0u, 0);
    int first_status = 0;
    for (;;) {
      int status = 0;
      const pid_t ended = waitpid(-1, &status, __WALL);
      if (ended < 0 && errno == EINTR) continue;
      if (ended < 0) _exit(status_of(first_status));
      if (ended == spec_.processes.front().pid) first_status = status;
    }
  }

  // Nothing of redrive is left in it, nor open.
  [[noreturn]] void become_init() {
    Report here;
    here.process = Report::kInit;
    report(socket_, here);
    if (chdir("/") != 0) fail(socket_, errno_error("cannot change to /"));
    close_range(0, ~0u, CLOSE_RANGE_CLOEXEC);
    close(STDIN_FILENO);
    open("/dev/null", O_RDONLY);  // crit does not know processes without any descriptor
    for (int signal = 1; signal <= kSignals; ++signal) set_action(signal, KernelAction{});
    char name[] = "init";
    char* const arguments[] = {name, nullptr};
    char* const environment[] = {nullptr};
    execve(dumped_->init.c_str(), arguments, environment);
    fail(socket_, errno_error("cannot execute " + dumped_->init));
  }

  // When somebody says that it is time.
  void put_withheld() {
    objects_.close_others();
    char any = 0;
    while (recv(socket_, &any, sizeof any, 0) < 0 && errno == EINTR) continue;
    if (const auto put = objects_.put_withheld(); !put) fail(socket_, put.error());
    report(socket_, Report{0, {}});
  }

  void make_children(std::optional<size_t> parent) {
    for (size_t i = 0; i < spec_.processes.size(); ++i) {
      const LiveProcess& process = spec_.processes[i];
      if (process.parent != parent) continue;
      pid_t number = process.pid;
      clone_args how{};
      how.exit_signal = SIGCHLD;
      how.set_tid = reinterpret_cast<uint64_t>(&number);
      how.set_tid_size = 1;
      const long made = syscall(SYS_clone3, &how, sizeof how);
      if (made < 0) fail(socket_, errno_error(fmt::format("cannot make process {} again", number)));
      if (made == 0) become(i);
      // Its parent ignores its end (SIGCHLD) now, but will have handlers.
      siginfo_t ended;
      if (process.wait_status) waitid(P_PID, static_cast<id_t>(made), &ended, WEXITED | WNOWAIT);
    }
  }

  [[noreturn]] void become(size_t index) {
    const LiveProcess& process = spec_.processes[index];
    for (int signal = 1; signal <= kSignals; ++signal) set_action(signal, KernelAction{});
    if (process.leads_session) setsid();
    if (!process.leads_session && process.group) setpgid(0, process.group == process.pid ? 0 : process.group);
    if (process.wait_status) end(*process.wait_status);
    make_children(index);
    uint64_t all = ~uint64_t{0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof all);
    if (const auto done = give_descriptors(index); !done) fail(socket_, done.error());
    for (const auto& [signal, action] : process.actions) set_action(signal, action);
    prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
    // mkdtemp(3) looks at the clock, and nobody handles traps here.
    if (const auto entered = enter_directory(process.directory); !entered) fail(socket_, entered.error());
    if (process.umask) umask(*process.umask);
    void* const gate = mmap(reinterpret_cast<void*>(kLiveGate), 2 * kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (gate == MAP_FAILED) fail(socket_, errno_error("cannot map memory"));
    constexpr uint8_t kSyscall[] = {0x0f, 0x05};
    std::memcpy(gate, kSyscall, sizeof kSyscall);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    Report done;
    done.process = static_cast<int>(index);
    report(socket_, done);
    for (;;) syscall(SYS_pause);
  }

  // `directory`: none: one that is removed.
  static Result<void> enter_directory(const std::optional<std::string>& directory) {
    std::optional<TemporaryDirectory> temporary;
    if (!directory) temporary.emplace();
    const std::string& path = directory ? *directory : temporary->path();
    return chdir(path.c_str()) == 0 ? Result<void>() : errno_error("cannot change to " + path);
  }

  [[noreturn]] static void end(int32_t status) {
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (;;) syscall(SYS_kill, getpid(), WTERMSIG(status));
  }

  static void set_action(int signal, const KernelAction& action) {
    syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof action.mask);
  }

  Result<void> give_descriptors(size_t index) const {
    const auto& table = spec_.processes[index].descriptors;
    for (const auto& [fd, descriptor] : table) {
      if (dup3(objects_.descriptor(descriptor.object), fd, descriptor.close_on_exec ? O_CLOEXEC : 0) < 0) {
        return errno_error(fmt::format("cannot give process {} its descriptor {}", spec_.processes[index].pid, fd));
      }
    }
    unsigned next = 0;
    for (const auto& [fd, descriptor] : table) {
      if (static_cast<unsigned>(fd) > next) close_range(next, static_cast<unsigned>(fd) - 1, 0);
      next = static_cast<unsigned>(fd) + 1;
    }
    if (next < static_cast<unsigned>(first_)) close_range(next, static_cast<unsigned>(first_) - 1, 0);
    for (const auto& [fd, descriptor] : table) TRY(watch_again(index, fd, descriptor.object));
    objects_.close_all();
    return {};
  }

  // The first process that has an epoll instance tells it what to watch.
  Result<void> watch_again(size_t index, int fd, ObjectNumber number) const {
    const LiveObject& object = spec_.objects[number];
    const auto has = [&](const LiveProcess& process) {
      return std::any_of(process.descriptors.begin(), process.descriptors.end(),
                         [&](const auto& entry) { return entry.second.object == number; });
    };
    const auto first = std::find_if(spec_.processes.begin(), spec_.processes.end(), has);
    if (first != spec_.processes.begin() + static_cast<long>(index)) return {};
    for (const auto& [watched, event] : object.watched) {
      const auto its = spec_.processes[index].descriptors.find(watched);
      const auto wanted = object.watched_objects.find(watched);
      if (its == spec_.processes[index].descriptors.end() || its->second.object != wanted->second) continue;
      epoll_event copy = event;
      if (epoll_ctl(fd, EPOLL_CTL_ADD, watched, &copy) != 0 && errno != EEXIST) {
        return errno_error(fmt::format("cannot watch descriptor {} again (epoll_ctl(2))", watched));
      }
    }
    return {};
  }

  const LiveSpec& spec_;
  ObjectMaker objects_;
  const int first_;
  const std::vector<int>& shared_;
  int socket_;
  const DumpedKeep* const dumped_;  // null: they are to live
};

// Receives a report, and who has sent it. Nothing at the end.
std::optional<std::pair<Report, pid_t>> next_report(int socket) {
  Report what;
  iovec piece{&what, sizeof what};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof what) return std::nullopt;
  ucred sender{};
  for (const cmsghdr* each = CMSG_FIRSTHDR(&message); each; each = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(each))) {
    if (each->cmsg_type == SCM_CREDENTIALS) std::memcpy(&sender, CMSG_DATA(each), sizeof sender);
  }
  return std::pair(what, sender.pid);
}

}  // namespace

Result<std::unique_ptr<Keeper>> Keeper::start(const LiveSpec& spec, const std::vector<int>& shared,
                                              const std::optional<DumpedKeep>& dumped) {
  std::unique_ptr<Keeper> keeper(new Keeper());
  int highest = STDERR_FILENO;
  size_t living = 0;
  for (const LiveProcess& process : spec.processes) {
    if (!process.descriptors.empty()) highest = std::max(highest, process.descriptors.rbegin()->first);
    living += !process.wait_status;
  }
  for (const int fd : shared) highest = std::max(highest, fd);
  keeper->pids_.assign(spec.processes.size(), -1);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return errno_error("cannot make a socket");
  keeper->first_number_ = std::max(highest, ends[1]) + 1;  // what is in use meanwhile stays
  Fd& ours = keeper->reports_;
  ours = Fd(ends[0]);
  Fd its(ends[1]);
  const int yes = 1;
  setsockopt(ours.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
  Fd lifeline;
  if (dumped) {
    if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
    lifeline = Fd(ends[0]);
    keeper->lifeline_ = Fd(ends[1]);
  }
  keeper->pid_ = fork();
  if (keeper->pid_ < 0) return errno_error("cannot fork");
  if (keeper->pid_ == 0) {
    keeper->lifeline_ = Fd();
    Maker(spec, keeper->first_number_, shared, its.get(), dumped ? &*dumped : nullptr).keep(lifeline.get());
  }
  its = Fd();
  const size_t all = dumped ? living + 1 : living;
  for (size_t i = 0; i < all; ++i) {
    const auto next = next_report(ours.get());
    if (!next) return Error{"the processes could not be made: their keeper has ended"};
    const auto& [what, pid] = *next;
    if (what.process == Report::kFailed) return Error{what.error};
    (what.process == Report::kInit ? keeper->init_ : keeper->pids_[static_cast<size_t>(what.process)]) = pid;
  }
  return keeper;
}

Result<pid_t> Keeper::await_init() {
  const auto next = next_report(reports_.get());  // its socket is closed when it executes its program
  if (next) return Error{next->first.error};
  return init_;
}

Result<void> Keeper::put_withheld() {
  const char any = 0;
  const bool asked = send(reports_.get(), &any, sizeof any, MSG_NOSIGNAL) == sizeof any;
  const auto next = asked ? next_report(reports_.get()) : std::nullopt;
  if (!next) return Error{"what was withheld cannot be delivered: the processes have ended"};
  if (next->first.process == Report::kFailed) return Error{next->first.error};
  return {};
}

Keeper::~Keeper() {
  if (pid_ < 0) return;
  if (lifeline_) {
    lifeline_ = Fd();
  } else {
    kill(pid_, SIGKILL);  // which ends the others (PR_SET_PDEATHSIG)
  }
  wait();
}

int Keeper::wait() {
  int status = 0;
  wait_for(pid_, status);
  pid_ = -1;
  return status_of(status);
}

}  // namespace redrive
