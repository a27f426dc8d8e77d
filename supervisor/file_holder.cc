#include "supervisor/file_holder.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <string>

namespace redrive {
namespace {

constexpr int kFile = 0;  // its number in the holder
constexpr int kEnd = 1;

// Only system calls: the threads of the process that this was forked from may have held locks.
[[noreturn]] void hold(int file, int end, uid_t user, gid_t group) {
  const bool is_theirs = syscall(SYS_setgroups, 0, nullptr) == 0 && syscall(SYS_setresgid, group, group, group) == 0 &&
                         syscall(SYS_setresuid, user, user, user) == 0;
  // Whoever has changed its user may not be looked into, and lives on when its parent ends.
  const bool is_open = prctl(PR_SET_DUMPABLE, 1) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (!is_theirs || !is_open || dup3(file, kFile, 0) < 0 || dup3(end, kEnd, 0) < 0) _exit(1);
  syscall(SYS_close_range, kEnd + 1, ~0U, 0);
  char ready = 1;
  if (write(kEnd, &ready, 1) != 1) _exit(1);
  while (read(kEnd, &ready, 1) != 0) continue;
  _exit(0);
}

}  // namespace

FileHolder::FileHolder(int file, uid_t user, gid_t group) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  end_ = Fd(ends[0]);
  thread_ = std::thread([this, file, user, group, theirs = Fd(ends[1])]() mutable {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    const pid_t holder = fork();
    if (holder == 0) hold(file, theirs.get(), user, group);
    theirs = Fd();
    if (holder < 0) return;
    path_ = "/proc/" + std::to_string(holder) + "/fd/" + std::to_string(kFile);
    TEMP_FAILURE_RETRY(waitpid(holder, nullptr, 0));
  });
  char ready = 0;
  if (TEMP_FAILURE_RETRY(read(end_.get(), &ready, 1)) != 1) {
    thread_.join();
    path_.clear();
  }
}

FileHolder::~FileHolder() {
  end_ = Fd();
  if (thread_.joinable()) thread_.join();
}

}  // namespace redrive
