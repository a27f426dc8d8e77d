#include "supervisor/replay/confined.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <new>

#include "base/fd.h"
#include "base/filter_rules.h"
#include "base/page.h"
#include "base/procfs.h"
#include "checkpoint/stub.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {
namespace {

constexpr rlim_t kMostMemory = 256 << 20;  // in addition to what the caller has
constexpr rlim_t kMostSeconds = 2;         // of CPU time
constexpr auto kReadPatience = std::chrono::seconds(60);
// Exit statuses.
constexpr int kDone = 0, kNoMemory = 2, kFailed = 3, kNotConfined = 4;

void lower(decltype(RLIMIT_AS) resource, rlim_t value, rlim_t beyond = 0) {
  rlimit limit{};
  getrlimit(resource, &limit);
  limit = {std::min(limit.rlim_cur, value), std::min(limit.rlim_max, value + beyond)};
  setrlimit(resource, &limit);
}

// Called in a child of a process with several threads, so without the lock of read_briefly().
uint64_t address_space_size() {
  const Fd file(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[32] = {};
  uint64_t pages = 0;
  const ssize_t got = ::read(file.get(), text, sizeof text);
  if (got > 0) std::from_chars(text, text + got, pages);
  return pages * kPageSize;
}

// False if some may be left open.
bool close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = 0;
  for (const int one : kept) {
    const auto fd = static_cast<unsigned>(one);
    if (fd > first && syscall(SYS_close_range, first, fd - 1, 0) != 0) break;
    first = fd + 1;
  }
  if (syscall(SYS_close_range, first, ~0u, 0) == 0) return true;
  // Before Linux 5.9.
  const std::vector<int> found = own_descriptors();
  for (const int fd : found) {
    if (!std::binary_search(kept.begin(), kept.end(), fd)) ::close(fd);
  }
  return !found.empty();
}

// After this, only the calls that the filter allows can be made.
bool confine(std::span<const int> readable, int output, const sock_fprog& filter) {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  lower(RLIMIT_AS, address_space_size() + kMostMemory);
  lower(RLIMIT_CPU, kMostSeconds, 1);
  lower(RLIMIT_CORE, 0);
  std::vector<int> kept(readable.begin(), readable.end());
  kept.push_back(output);
  if (!close_all_but(std::move(kept))) return false;
  return prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

[[noreturn]] void run_child(std::span<const int> readable, int output, const sock_fprog& filter,
                            const std::function<std::string()>& work) {
  std::set_new_handler(nullptr);
  const Untrapped untrapped;  // for good: trapping again would take a call that the filter does not allow
  int status = kNotConfined;
  try {
    if (confine(readable, output, filter)) {
      status = kFailed;
      const std::string text = work();
      const auto size = std::min(text.size(), kMostConfinedText);
      if (::write(output, text.data(), size) == static_cast<ssize_t>(size)) status = kDone;
    }
  } catch (const std::bad_alloc&) {
    status = kNoMemory;
  } catch (...) {
  }
  syscall(SYS_exit_group, status);  // ThreadSanitizer has _exit(2) write what the caller had yet to write
  __builtin_unreachable();
}

// Reads what comes until the other end is closed, or until kReadPatience is over.
std::string read_all(int pipe) {
  const auto end = std::chrono::steady_clock::now() + kReadPatience;
  std::string text(kMostConfinedText + 1, '\0');  // with room for the end
  size_t size = 0;
  while (size < text.size()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd ready{pipe, POLLIN, 0};
    const int come = left.count() > 0 ? poll(&ready, 1, static_cast<int>(left.count())) : 0;
    if (come < 0 && errno == EINTR) continue;
    if (come <= 0) break;
    const ssize_t got = ::read(pipe, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

std::string failure(int status) {
  if (WIFSIGNALED(status)) {
    switch (const int signal = WTERMSIG(status)) {
      case SIGXCPU:
        return fmt::format("it took more than {} s", kMostSeconds);
      case SIGKILL:
        return "it was killed";
      case SIGSYS:
        return "it made a system call that it must not make";
      default:
        return fmt::format("it crashed ({})", strsignal(signal));
    }
  }
  switch (WEXITSTATUS(status)) {
    case kNoMemory:
      return fmt::format("it took more than {} MiB of memory", kMostMemory >> 20);
    case kNotConfined:
      return "it cannot be confined here";
    default:
      return "it failed";
  }
}

}  // namespace

Result<std::string> run_confined(std::span<const int> readable, const std::function<std::string()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd input(ends[0]);
  Fd output(ends[1]);
  ASSIGN_OR_RETURN(auto filter, confined_filter(output.get()));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  const pid_t pid = fork();
  if (pid < 0) return errno_error("cannot fork");
  if (pid == 0) run_child(readable, output.get(), program, work);
  output = Fd();
  std::string text = read_all(input.get());
  // It has ended, or said what it has to say, or nothing for too long.
  kill(pid, SIGKILL);
  int status = 0;
  if (!wait_for(pid, status)) return errno_error("cannot wait for a child");
  if (WIFEXITED(status) && WEXITSTATUS(status) == kDone) return text;
  return Error{failure(status)};
}

Result<std::vector<sock_filter>> confined_filter(int output) {
  FilterRules rules(SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_PROCESS);
  const auto allow = [&](int number, const std::vector<scmp_arg_cmp>& conditions = {}) {
    rules.add(SECCOMP_RET_ALLOW, number, conditions);
  };
  for (const int number : {SYS_pread64, SYS_brk, SYS_munmap, SYS_mremap, SYS_rt_sigprocmask, SYS_exit_group})
    allow(number);
  allow(SYS_sysinfo);  // qsort(3) asks how much memory there is
  const scmp_arg_cmp not_executable{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0};
  allow(SYS_mmap, {not_executable, {3, SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS}});
  allow(SYS_mprotect, {not_executable});
  allow(SYS_madvise, {{2, SCMP_CMP_EQ, MADV_DONTNEED, 0}});
  // An initialization wakes the threads that could wait for it. None does.
  allow(SYS_futex, {{1, SCMP_CMP_EQ, FUTEX_WAKE_PRIVATE, 0}});
  allow(SYS_write, {{0, SCMP_CMP_EQ, static_cast<scmp_datum_t>(output), 0}});
#ifdef __SANITIZE_ADDRESS__
  allow(SYS_sigaltstack);  // it asks for the stacks at each throw
#endif
#ifdef __SANITIZE_THREAD__
  allow(SYS_madvise, {{2, SCMP_CMP_EQ, MADV_NOHUGEPAGE, 0}});  // for what it knows of new memory
#endif
  return rules.program();
}

}  // namespace redrive
