#include "supervisor/record/tracer.h"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include "base/check.h"

namespace redrive {
namespace {

constexpr int kSyscallStop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD

TraceeEnd end_of(int status) {
  return WIFSIGNALED(status) ? TraceeEnd{0, WTERMSIG(status)} : TraceeEnd{WEXITSTATUS(status), 0};
}

// What waitpid(2) adds to a stop's signal; 0: nothing.
int event_of(int status) { return WIFSTOPPED(status) ? status >> 16 : 0; }

}  // namespace

bool has_message(int status) {
  switch (event_of(status)) {
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_EXEC:
    case PTRACE_EVENT_EXIT:
      return true;
    default:
      return false;
  }
}

Stop stop_of(int status, unsigned long message) {
  if (!WIFSTOPPED(status)) return Gone{end_of(status)};
  const int signal = WSTOPSIG(status);
  switch (event_of(status)) {
    case 0:
      if (signal == kSyscallStop) return SyscallExit{};
      return SignalStop{signal};
    case PTRACE_EVENT_SECCOMP:
      return SyscallEntry{};
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
      return Birth{static_cast<pid_t>(message)};
    case PTRACE_EVENT_EXEC:
      return Exec{static_cast<pid_t>(message)};
    case PTRACE_EVENT_STOP:
      if (signal == SIGTRAP) return Interrupted{};
      return GroupStop{signal};
    default:
      break;
  }
  CHECK(event_of(status) == PTRACE_EVENT_EXIT);  // others are not asked for
  return Exiting{end_of(static_cast<int>(message))};
}

}  // namespace redrive
