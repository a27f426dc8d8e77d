#include "supervisor/record/kernel/process_status.h"

#include <sstream>
#include <string>
#include <string_view>

#include "base/procfs.h"
#include "base/text.h"

namespace redrive {
namespace {

pid_t innermost_pid(const ProcValues& status) {
  const std::string_view numbers = status.text("NSpid");
  const auto last = parse_number(numbers.substr(numbers.find_last_of('\t') + 1));
  return last ? static_cast<pid_t>(*last) : -1;
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

bool sleeps(pid_t tid) { return proc_status(tid).text("State").starts_with('S'); }

bool would_gain(pid_t pid, const struct stat& file) {
  const ProcValues status = proc_status(pid);
  const auto effective = [&](std::string_view name) {
    std::istringstream numbers{std::string(status.text(name))};
    uint64_t real = 0, used = 0;
    return numbers >> real >> used ? used : ~0ull;
  };
  constexpr mode_t kGroup = S_ISGID | S_IXGRP;
  return ((file.st_mode & S_ISUID) && effective("Uid") != file.st_uid) ||
         ((file.st_mode & kGroup) == kGroup && effective("Gid") != file.st_gid);
}

bool forks_into_namespace(pid_t pid) {
  const std::string own = proc_namespace(pid, "pid");
  return !own.empty() && own != proc_namespace(pid, "pid_for_children");
}

}  // namespace redrive
