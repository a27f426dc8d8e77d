#include "supervisor/record/process_status.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/brief_file.h"

namespace redrive {
namespace {

// Empty if there is no such process.
std::string status_of(pid_t tid) { return read_briefly("/proc/" + std::to_string(tid) + "/status"); }

pid_t innermost_pid(const std::string& status) {
  constexpr char kName[] = "\nNSpid:";
  const size_t at = status.find(kName);
  if (at == std::string::npos) return -1;
  const size_t end = status.find('\n', at + 1);
  const size_t last = status.find_last_of(" \t", end);
  return static_cast<pid_t>(std::strtol(status.c_str() + last, nullptr, 10));
}

}  // namespace

SignalMasks signal_masks(pid_t tid) {
  SignalMasks masks;
  const std::string text = status_of(tid);
  const auto take = [&](const char* name, uint64_t& mask) {
    const size_t at = text.find(name);
    if (at != std::string::npos) mask |= std::strtoull(text.c_str() + at + std::strlen(name), nullptr, 16);
  };
  take("\nSigPnd:", masks.pending);
  take("\nShdPnd:", masks.pending);
  take("\nSigBlk:", masks.blocked);
  take("\nSigIgn:", masks.ignored);
  take("\nSigCgt:", masks.caught);
  masks.init = innermost_pid(text) == 1;
  return masks;
}

pid_t pid_in_own_namespace(pid_t pid) { return innermost_pid(status_of(pid)); }

bool sleeps(pid_t tid) { return status_of(tid).find("\nState:\tS") != std::string::npos; }

bool forks_into_namespace(pid_t pid) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/ns/";
  char own[64] = {}, children[64] = {};
  return readlink((directory + "pid").c_str(), own, sizeof own - 1) > 0 &&
         (readlink((directory + "pid_for_children").c_str(), children, sizeof children - 1) <= 0 ||
          std::strcmp(own, children) != 0);
}

}  // namespace redrive
