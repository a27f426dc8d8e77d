// redrive check --host: whether this host can record, and if not, why.
#include "supervisor/cli/host.h"

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/limits.h"
#include "base/procfs.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/criu.h"
#include "checkpoint/stub.h"
#include "checkpoint/stub_namespaces.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/columns.h"
#include "supervisor/record/criu_cost.h"
#include "supervisor/record/kernel/process_status.h"
#include "supervisor/replay/probe.h"

namespace redrive {
namespace {

struct Check {
  std::string name;
  bool required = true;
  bool ok = false;
  std::string detail;
};

Check kernel() {
  utsname name{};
  uname(&name);
  char* end = nullptr;
  const long major_number = std::strtol(name.release, &end, 10);
  const long minor_number = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
  const bool new_enough = major_number > 5 || (major_number == 5 && minor_number >= 11);
  return {"kernel 5.11 or newer", true, new_enough, name.release};
}

Check tracing() {
  auto stub = Stub::spawn();
  if (stub) return {"ptrace of child processes", true, true, "works"};
  if (stub_program().empty()) return {"ptrace of child processes", true, false, stub.error().message};
  std::string scope = "unknown";
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return {"ptrace of child processes", true, false, stub.error().message + " (yama ptrace_scope: " + scope + ")"};
}

Check process_files() {
  const auto own = check_procfs();
  return {"/proc of this PID namespace", true, static_cast<bool>(own), own ? "mounted" : own.error().message};
}

Check seccomp() {
  uint32_t action = 0x7ff00000;  // SECCOMP_RET_TRACE
  constexpr unsigned kGetActionAvail = 2;
  const bool ok = syscall(SYS_seccomp, kGetActionAvail, 0, &action) == 0;
  return {"seccomp filters that stop (RET_TRACE)", true, ok, ok ? "available" : "not supported by this kernel"};
}

Check namespaces() {
  const std::string& missing = StubNamespaces::ours().missing();
  return {"namespaces for re-driven code", false, missing.empty(),
          missing.empty() ? "work" : "not allowed (" + missing + "): only a seccomp filter contains it"};
}

Check other_users() {
  const bool ok = may_look_into_all() || geteuid() != 0;
  return {"programs that become other users", false, ok,
          ok ? "can be recorded, if this user may start them"
             : "cannot be recorded: root lacks CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)"};
}

Check descriptors() {
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  const int copy = self < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_getfd, self, 0, 0));
  const bool ok = copy >= 0;
  if (copy >= 0) close(copy);
  if (self >= 0) close(self);
  return {"pidfd_getfd (pairing of endpoints)", false, ok, ok ? "works" : "not allowed: every receive will be logged"};
}

// Which instructions trap: tried in a child, because it cannot be undone for the libraries that we use.
ProcessorTraps traps() {
  const pid_t child = fork();
  if (child == 0) {
    const ProcessorTraps found = trap_own_instructions();
    _exit((found.counter ? 1 : 0) | (found.cpuid ? 2 : 0));
  }
  int status = 0;
  wait_for(child, status);
  const int found = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return {(found & 1) != 0, (found & 2) != 0};
}

Check trapping(const std::string& instruction, bool traps) {
  return {
      instruction + " trapping", false, traps,
      traps ? "works" : "not supported by this machine: " + instruction + " instructions in mapped files are replaced"};
}

Check debug_registers() {
  const bool works = debug_registers_work();
  return {"debug registers", false, works,
          works ? "work" : "not supported by this machine: some places of preemption in written code are not verified"};
}

// What CRIU's dumps cost is kept, for `record --checkpoint-engine auto`.
Check criu() {
  Check check{"criu (record --checkpoint-engine)", false, false, {}};
  if (const auto found = Criu::find("checkpoints by CRIU"); !found) {
    check.detail = found.error().message;
    return check;
  }
  const auto cost = measure_criu_cost();
  check.ok = static_cast<bool>(cost);
  check.detail = cost ? fmt::format("a dump costs {} of CPU time, and {} more for each megabyte",
                                    format_duration(cost->dump_s), format_duration(cost->megabyte_s))
                      : cost.error().message;
  if (cost) keep_criu_cost(*cost);
  return check;
}

}  // namespace

Result<void> prepare_to_trace() {
  lift_limits_of_programs();
  TRY(check_limits());
  return check_procfs();
}

Result<void> check_host(bool json) {
  lift_limits_of_programs();
  std::vector<Check> checks{kernel(), process_files()};
  if (checks.back().ok) {  // without it, other processes would be taken for those that the checks start
    const ProcessorTraps found = traps();
    checks.insert(checks.end(),
                  {tracing(), seccomp(), namespaces(), other_users(), descriptors(), trapping("rdtsc", found.counter),
                   trapping("cpuid", found.cpuid), debug_registers(), criu()});
  }
  bool can_record = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& check : checks) {
    can_record &= check.ok || !check.required;
    list.push_back({{"name", check.name}, {"ok", check.ok}, {"required", check.required}, {"detail", check.detail}});
    const char* const answer = check.ok ? "ok" : check.required ? "NO" : "no";
    if (!json) fmt::print("{:<40} {:<4} {}\n", check.name, answer, printable(check.detail));
  }
  if (json) print_json({{"can_record", can_record}, {"checks", list}});
  if (!can_record) return Error{"this host cannot record: see the lines marked NO"};
  if (!json) fmt::print("This host can record.\n");
  return {};
}

}  // namespace redrive
