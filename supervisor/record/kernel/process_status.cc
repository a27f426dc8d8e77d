#include "supervisor/record/kernel/process_status.h"

#include <endian.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/xattr.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <string_view>

#include "base/brief_file.h"
#include "base/procfs.h"
#include "base/text.h"

namespace redrive {
namespace {

pid_t innermost_pid(const ProcValues& status) {
  const std::string_view numbers = status.text("NSpid");
  const auto last = parse_number(numbers.substr(numbers.find_last_of('\t') + 1));
  return last ? static_cast<pid_t>(*last) : -1;
}

// One for each PID namespace, the innermost last.
std::vector<pid_t> numbers_in(const ProcValues& status, std::string_view name) {
  std::istringstream text{std::string(status.text(name))};
  std::vector<pid_t> numbers;
  for (pid_t number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

// Whether its programs are executed without the privileges that they would give (mount(2), MS_NOSUID).
bool grants_nothing(const std::string& file) {
  struct statvfs mounted {};
  return statvfs(file.c_str(), &mounted) == 0 && (mounted.f_flag & ST_NOSUID);
}

// Whether a user or group, as this process sees it, has a number in the process's user namespace. `map`: the file with
// these numbers (user_namespaces(7)).
bool maps(pid_t pid, const char* map, uint64_t id) {
  if (proc_namespace(pid, "user") == proc_namespace(getpid(), "user")) return true;
  std::istringstream ranges(read_briefly(proc_path(pid, map)));
  for (uint64_t inside = 0, outside = 0, count = 0; ranges >> inside >> outside >> count;) {
    if (id >= outside && id - outside < count) return true;
  }
  return false;
}

}  // namespace

SignalMasks signal_masks(pid_t tid) {
  SignalMasks masks;
  const ProcValues status = proc_status(tid);
  masks.pending = status.number("SigPnd", 16) | status.number("ShdPnd", 16);
  masks.blocked = status.number("SigBlk", 16);
  masks.ignored = status.number("SigIgn", 16);
  masks.caught = status.number("SigCgt", 16);
  masks.init = innermost_pid(status) == 1;
  return masks;
}

pid_t pid_in_own_namespace(pid_t pid) { return innermost_pid(proc_status(pid)); }

pid_t group_seen_by(pid_t viewer, pid_t pid) {
  const size_t namespaces = numbers_in(proc_status(viewer), "NSpid").size();
  const auto groups = numbers_in(proc_status(pid), "NSpgid");
  return namespaces > 0 && namespaces <= groups.size() ? groups[namespaces - 1] : -1;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t tid : proc_threads(pid)) {
    std::istringstream numbers(read_briefly(fmt::format("/proc/{}/task/{}/children", pid, tid)));
    for (pid_t child = 0; numbers >> child;) children.push_back(child);
  }
  return children;
}

int exit_signal(pid_t pid) {
  constexpr int kExitSignalField = 38;
  const auto signal = parse_number(proc_stat_field(pid, kExitSignalField));
  return signal ? static_cast<int>(*signal) : -1;
}

Fd pidfd_of_thread(pid_t tid) {
  constexpr unsigned kOfThread = O_EXCL;  // PIDFD_THREAD
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, tid, kOfThread)));
}

bool sleeps(pid_t tid) { return proc_status(tid).text("State").starts_with('S'); }

bool would_gain(pid_t pid, const std::string& file, const struct stat& info) {
  constexpr mode_t kGroup = S_ISGID | S_IXGRP;
  const bool sets_user = info.st_mode & S_ISUID, sets_group = (info.st_mode & kGroup) == kGroup;
  if (!sets_user && !sets_group) return false;
  const ProcValues status = proc_status(pid);
  const auto effective = [&](std::string_view name) {
    std::istringstream numbers{std::string(status.text(name))};
    uint64_t real = 0, used = 0;
    return numbers >> real >> used ? used : ~0ull;
  };
  const bool gains = (sets_user && effective("Uid") != info.st_uid) || (sets_group && effective("Gid") != info.st_gid);
  return gains && !grants_nothing(file) && maps(pid, "uid_map", info.st_uid) && maps(pid, "gid_map", info.st_gid);
}

bool would_gain_capabilities(pid_t pid, const std::string& file) {
  vfs_ns_cap_data granted{};  // of older formats, the beginning
  const ssize_t size = getxattr(file.c_str(), XATTR_NAME_CAPS, &granted, sizeof granted);
  if (size < static_cast<ssize_t>(XATTR_CAPS_SZ_1)) return false;
  const auto word = [](__le32 low, __le32 high) { return le32toh(low) | uint64_t{le32toh(high)} << 32; };
  const uint64_t permitted = word(granted.data[0].permitted, granted.data[1].permitted);
  const uint64_t inheritable = word(granted.data[0].inheritable, granted.data[1].inheritable);
  const ProcValues status = proc_status(pid);
  if (grants_nothing(file)) return false;
  const uint64_t gets = (permitted & status.number("CapBnd", 16)) | (inheritable & status.number("CapInh", 16));
  return gets & ~status.number("CapPrm", 16);
}

bool may_look_into_all() {
  static const bool may = (proc_status(getpid()).number("CapEff", 16) & 1ull << CAP_SYS_PTRACE) != 0;
  return may;
}

bool may_look_into(pid_t pid) {
  if (may_look_into_all()) return true;
  const ProcValues status = proc_status(pid);
  const auto all_are = [&](std::string_view name, uint64_t ours) {
    std::istringstream numbers{std::string(status.text(name))};
    constexpr int kUsed = 3;  // real, effective, saved
    uint64_t number = 0;
    for (int i = 0; i < kUsed; ++i) {
      if (!(numbers >> number) || number != ours) return false;
    }
    return true;
  };
  if (all_are("Uid", geteuid()) && all_are("Gid", getegid())) return true;
  // The user who made a user namespace has all capabilities in it (user_namespaces(7)).
  const std::string users = proc_namespace(pid, "user");
  return !users.empty() && users != proc_namespace(getpid(), "user");
}

bool forks_into_namespace(pid_t pid) {
  const std::string own = proc_namespace(pid, "pid");
  return !own.empty() && own != proc_namespace(pid, "pid_for_children");
}

}  // namespace redrive
