#include "supervisor/record/attachable.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/brief_file.h"
#include "base/fd.h"
#include "base/procfs.h"
#include "base/text.h"

namespace redrive {
namespace {

std::string link_of(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t tid : proc_threads(pid)) {
    std::istringstream numbers(read_briefly(fmt::format("/proc/{}/task/{}/children", pid, tid)));
    for (pid_t child = 0; numbers >> child;) children.push_back(child);
  }
  return children;
}

char state_of(pid_t pid) {
  const std::string state(proc_status(pid).text("State"));
  return state.empty() ? 'X' : state[0];
}

bool has_ended(pid_t pid) {
  const char state = state_of(pid);
  return state == 'X' || (state == 'Z' && proc_threads(pid).size() <= 1);
}

bool is_kernels(pid_t pid) {
  constexpr int kFlagsField = 9;
  constexpr uint64_t kKernelThread = 0x00200000;  // PF_KTHREAD
  return parse_number(proc_stat_field(pid, kFlagsField)).value_or(0) & kKernelThread;
}

Result<void> check_program(pid_t pid) {
  const Fd file = open_briefly(proc_path(pid, "exe"));
  unsigned char head[EI_NIDENT] = {};
  if (!file || ::read(file.get(), head, sizeof head) != sizeof head) {
    return Error{fmt::format("process {} cannot be attached to: its program cannot be read", describe_process(pid))};
  }
  if (head[EI_CLASS] == ELFCLASS64) return {};
  return Error{fmt::format("process {} cannot be attached to: it is a 32-bit program", describe_process(pid))};
}

Result<void> check_state(pid_t pid) {
  const std::string name = describe_process(pid);
  if (is_kernels(pid)) return Error{fmt::format("process {} cannot be attached to: it is a kernel thread", name)};
  const Fd memory = open_briefly(proc_path(pid, "mem"));
  if (!memory) {
    return Error{
        fmt::format("process {} cannot be attached to: {} (attaching needs the process's user or root; where "
                    "/proc/sys/kernel/yama/ptrace_scope is not 0, root)",
                    name, strerror(errno))};
  }
  for (const pid_t tid : proc_threads(pid)) {
    const ProcValues status = proc_status(tid);
    if (const uint64_t tracer = status.number("TracerPid")) {
      return Error{fmt::format("process {} cannot be attached to: process {} traces it already (end that first)", name,
                               describe_process(static_cast<pid_t>(tracer)))};
    }
    const std::string_view state = status.text("State");
    if (state.starts_with('T')) {
      return Error{
          fmt::format("process {} cannot be attached to: it is stopped (let it continue: kill -CONT {})", name, pid)};
    }
    if (tid == pid && state.starts_with('Z')) {
      return Error{fmt::format("process {} cannot be attached to: its first thread has ended", name)};
    }
  }
  return check_program(pid);
}

// What the kernel does behind its back, or in memory that no call names.
Result<void> check_descriptors(Attachable& process) {
  constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {{"anon_inode:[io_uring]", "io_uring"},
                                                                        {"anon_inode:[userfaultfd]", "userfaultfd"},
                                                                        {"anon_inode:kvm-vcpu", "a virtual machine"},
                                                                        {"anon_inode:[perf_event]", "perf_event_open"}};
  std::error_code error;
  const std::string directory = proc_path(process.pid, "fd");
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string link = link_of(it->path().string());
    for (const auto& [begins, what] : kEscapes) {
      if (!link.starts_with(begins)) continue;
      return Error{fmt::format("process {} cannot be attached to: it uses {}, which cannot be recorded",
                               describe_process(process.pid), what)};
    }
    process.opens_memory |= link.starts_with("/proc/") && link.ends_with("/mem");
  }
  return {};
}

bool is_device(const std::string& name) {
  if (name.starts_with("socket:") || name.starts_with("anon_inode:") || name.starts_with("/[aio]")) return true;
  return name.starts_with("/dev/") && !name.starts_with("/dev/zero") && !name.starts_with("/dev/shm/") &&
         !name.starts_with("/dev/hugepages/");
}

Result<void> check_memory(Attachable& process) {
  ASSIGN_OR_RETURN(const auto mappings, flagged_mappings(process.pid));
  for (const auto& each : mappings) {
    const Mapping& mapping = each.mapping;
    if (is_device(mapping.name)) {
      return Error{
          fmt::format("process {} cannot be attached to: it has mapped {}, in which memory changes without a "
                      "system call",
                      describe_process(process.pid), printable(mapping.name))};
    }
    if (!mapping.shared && (each.is("dc") || each.is("wf"))) {
      process.not_copied.push_back({mapping.start, mapping.end});
    }
    process.maps_growing |= each.is("gd") && !mapping.is_stack();
    if (mapping.shared && each.is("mw")) process.changeable.emplace(mapping.device, mapping.inode);
  }
  return {};
}

Result<void> check_sharing(pid_t parent, pid_t child) {
  for (const auto& [kind, what] : {std::pair{KCMP_VM, "memory"}, std::pair{KCMP_FILES, "descriptors"}}) {
    if (syscall(SYS_kcmp, parent, child, kind, 0, 0) != 0) continue;
    return Error{
        fmt::format("process {} cannot be attached to: it shares its {} with its parent, {} (this may be over "
                    "soon; try again)",
                    describe_process(child), what, describe_process(parent))};
  }
  return {};
}

}  // namespace

std::string describe_process(pid_t pid) {
  const std::string line = read_briefly(proc_path(pid, "comm"));
  const std::string name = line.substr(0, line.find('\n'));
  return name.empty() ? std::to_string(pid) : fmt::format("{} ({})", pid, printable(name));
}

std::string command_of(pid_t pid) {
  constexpr size_t kMost = 200;
  std::string words = read_briefly(proc_path(pid, "cmdline"));
  while (!words.empty() && (words.back() == '\0' || words.back() == ' ')) words.pop_back();
  const size_t slash = words.substr(0, words.find('\0')).rfind('/');
  const bool is_title = words.find('\0') == std::string::npos && words.find(' ') != std::string::npos;
  std::string command = is_title || slash == std::string::npos ? words : words.substr(slash + 1);
  const size_t colon = command.find(": ");
  if (is_title && colon < command.find(' ')) command.erase(colon, 1);
  std::replace(command.begin(), command.end(), '\0', ' ');
  if (command.size() > kMost) command.resize(kMost);
  return command;
}

std::vector<pid_t> process_tree(pid_t root) {
  std::vector<pid_t> tree{root};
  for (size_t next = 0; next < tree.size(); ++next) {
    for (const pid_t child : children_of(tree[next])) {
      const bool known = std::find(tree.begin(), tree.end(), child) != tree.end();
      if (!known && !has_ended(child)) tree.push_back(child);
    }
  }
  return tree;
}

Result<std::vector<Attachable>> attachable_tree(pid_t root) {
  if (kill(root, 0) != 0 && errno == ESRCH) return Error{fmt::format("there is no process {}", root)};
  if (has_ended(root)) return Error{fmt::format("process {} has ended", describe_process(root))};
  const uint64_t group = proc_status(root).number("Tgid");
  if (group != static_cast<uint64_t>(root)) {
    return Error{
        fmt::format("{} is a thread of process {} (give that)", root, describe_process(static_cast<pid_t>(group)))};
  }
  std::vector<Attachable> tree;
  for (const pid_t pid : process_tree(root)) {
    if (pid == getpid()) {
      return Error{fmt::format("process {} cannot be attached to: redrive itself is one of its descendants",
                               describe_process(root))};
    }
    Attachable process;
    process.pid = pid;
    auto checked = check_state(pid);
    if (checked) checked = check_descriptors(process);
    if (checked) checked = check_memory(process);
    const auto parent = static_cast<pid_t>(proc_status(pid).number("PPid"));
    if (checked && pid != root) checked = check_sharing(parent, pid);
    if (checked) {
      tree.push_back(std::move(process));
    } else if (pid == root || !has_ended(pid)) {
      return checked.error();
    }
  }
  return tree;
}

}  // namespace redrive
