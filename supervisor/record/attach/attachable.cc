#include "supervisor/record/attach/attachable.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/brief_file.h"
#include "base/fd.h"
#include "base/procfs.h"
#include "base/text.h"
#include "supervisor/record/code/vdso_patch.h"
#include "supervisor/record/kernel/process_status.h"
#include "supervisor/record/tracees/proc_file.h"

namespace redrive {
namespace {

constexpr int kLooks = 400;  // with these pauses, on a busy machine
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);

std::string link_of(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

pid_t parent_of(pid_t pid) { return static_cast<pid_t>(proc_status(pid).number("PPid")); }

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
    return cannot_attach(pid, "its program cannot be read");
  }
  if (head[EI_CLASS] == ELFCLASS64) return {};
  return cannot_attach(pid, "it is a 32-bit program");
}

Result<void> check_state(pid_t pid) {
  if (is_kernels(pid)) return cannot_attach(pid, "it is a kernel thread");
  if (state_of(pid) == 'Z') return cannot_attach(pid, "its first thread has ended");
  const Fd memory = open_briefly(proc_path(pid, "mem"));
  if (!memory) {
    return cannot_attach(pid, fmt::format("{} (attaching needs the process's user or root; where "
                                          "/proc/sys/kernel/yama/ptrace_scope is not 0, root)",
                                          strerror(errno)));
  }
  for (const pid_t tid : proc_threads(pid)) {
    const ProcValues status = proc_status(tid);
    if (const uint64_t tracer = status.number("TracerPid")) {
      return cannot_attach(pid, fmt::format("process {} traces it already (end that first)",
                                            describe_process(static_cast<pid_t>(tracer))));
    }
    if (status.text("State").starts_with('T') && !left_by_killed_recorder(pid)) {
      return cannot_attach(pid, fmt::format("it is stopped (let it continue: kill -CONT {})", pid));
    }
  }
  return {};
}

// What the kernel does behind its back, or in memory that no call names.
Result<void> check_descriptors(Attachable& process) {
  constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {{"anon_inode:[io_uring]", "io_uring"},
                                                                        {"anon_inode:[userfaultfd]", "userfaultfd"},
                                                                        {"/dev/fuse", "FUSE"},
                                                                        {"anon_inode:kvm-vcpu", "a virtual machine"},
                                                                        {"anon_inode:[perf_event]", "perf_event_open"}};
  std::error_code error;
  const std::string directory = proc_path(process.pid, "fd");
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string link = link_of(it->path().string());
    for (const auto& [begins, what] : kEscapes) {
      if (!link.starts_with(begins)) continue;
      return cannot_attach(process.pid, fmt::format("it uses {}, which cannot be recorded", what));
    }
    const auto number = parse_number(it->path().filename().string());
    process.opens_memory |= number && ProcFile::behind(process.pid, *number, "mem");
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
      return cannot_attach(process.pid, fmt::format("it has mapped {}, in which memory changes without a system call",
                                                    printable(mapping.name)));
    }
    if (mapping.name.starts_with("/secretmem")) {
      return cannot_attach(process.pid, "it has mapped memory that no other process may read (memfd_secret)");
    }
    if (each.is("dc") || each.is("wf")) process.not_copied.push_back({mapping.start, mapping.end});
    process.maps_growing |= each.is("gd") && !mapping.is_stack();
    if (mapping.shared && each.is("mw")) process.changeable.emplace(mapping.device, mapping.inode);
  }
  process.has_guards = has_guard_pages(process.pid);
  return {};
}

// A child of vfork(2) shares its parent's memory for a moment.
Result<void> check_sharing(pid_t pid) {
  const pid_t parent = parent_of(pid);
  for (const auto& [kind, what] : {std::pair{KCMP_VM, "memory"}, std::pair{KCMP_FILES, "descriptors"}}) {
    if (syscall(SYS_kcmp, parent, pid, kind, 0, 0) != 0) continue;
    return cannot_attach(
        pid, fmt::format("it shares its {} with its parent, {} (if vfork(2) has just made it, try again)", what,
                         describe_process(parent)));
  }
  return {};
}

using Object = std::pair<uint64_t, uint64_t>;  // device, inode

// Memory without a file, which processes have in common with an ancestor (mmap(2)), or with anybody (shmget(2)). What
// the others write there comes at no event, so they have to be recorded, too.
std::set<Object> shared_memory_of(pid_t pid) {
  std::set<Object> found;
  const auto mappings = read_mappings(pid);
  for (size_t i = 0; mappings && i < mappings->size(); ++i) {
    const Mapping& mapping = (*mappings)[i];
    if (mapping.shared && is_shared_without_file(mapping.name)) found.emplace(mapping.device, mapping.inode);
  }
  return found;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    if (const auto pid = parse_number(it->path().filename().string())) found.push_back(static_cast<pid_t>(*pid));
  }
  return found;
}

// Adds those that share memory with what is there, until there are no more.
void add_sharers(AttachableTree& tree) {
  std::set<Object> known;
  for (;;) {
    const auto members = process_tree(tree.roots);
    std::set<Object> objects;
    for (const pid_t pid : members) objects.merge(shared_memory_of(pid));
    if (objects == known) break;
    known = objects;
    for (const pid_t pid : all_processes()) {
      if (std::find(members.begin(), members.end(), pid) != members.end()) continue;
      const auto its = shared_memory_of(pid);
      if (std::any_of(its.begin(), its.end(), [&](const Object& object) { return objects.contains(object); })) {
        tree.roots.push_back(pid);
      }
    }
  }
  const auto members = process_tree(tree.roots);
  std::erase_if(tree.roots, [&](pid_t root) {
    return std::find(members.begin(), members.end(), parent_of(root)) != members.end();
  });
  for (pid_t pid = parent_of(tree.roots.front()); !known.empty() && pid > 1; pid = parent_of(pid)) {
    if (!read_mappings(pid)) tree.hidden = pid;
  }
}

}  // namespace

Error cannot_attach(pid_t pid, const std::string& why) {
  return Error{fmt::format("process {} cannot be attached to: {}", describe_process(pid), why)};
}

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

std::vector<pid_t> process_tree(const std::vector<pid_t>& roots) {
  std::vector<pid_t> tree = roots;
  for (size_t next = 0; next < tree.size(); ++next) {
    for (const pid_t child : children_of(tree[next])) {
      const bool known = std::find(tree.begin(), tree.end(), child) != tree.end();
      if (!known && !has_ended(child)) tree.push_back(child);
    }
  }
  return tree;
}

bool left_by_killed_recorder(pid_t pid) {
  const auto memory = Memory::open(pid);
  const auto patch = memory ? VdsoPatch::of_process(pid, *memory) : Result<VdsoPatch>(memory.error());
  return patch && patch->was_patched();
}

Result<Attachable> attachable(pid_t pid) {
  Attachable process;
  process.pid = pid;
  process.maps = read_briefly(proc_path(pid, "maps"));
  process.mappings = parse_mappings(pid, process.maps);
  TRY(check_program(pid));
  TRY(check_descriptors(process));
  TRY(check_memory(process));
  return process;
}

// To look into all of its memory takes some 11 ms for each GB. It is left out if the mappings are the same, and there
// was no advice (madvise(2)) for any. If it was given meanwhile, for exactly one mapping, a copy shows that
// (Attacher::copies_all, ImageJob::Copy).
Result<void> look_again(Attachable& process) {
  const bool same = process.not_copied.empty() && read_briefly(proc_path(process.pid, "maps")) == process.maps;
  if (same) return check_descriptors(process);
  ASSIGN_OR_RETURN(process, attachable(process.pid));
  return {};
}

namespace {

Result<Attachable> look_at(pid_t pid) {
  TRY(check_state(pid));
  TRY(check_sharing(pid));
  return attachable(pid);
}

}  // namespace

Result<AttachableTree> attachable_tree(pid_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return Error{fmt::format("there is no process {}", pid)};
  if (has_ended(pid)) return Error{fmt::format("process {} has ended", describe_process(pid))};
  const uint64_t group = proc_status(pid).number("Tgid");
  if (group != static_cast<uint64_t>(pid)) {
    return Error{
        fmt::format("{} is a thread of process {} (give that)", pid, describe_process(static_cast<pid_t>(group)))};
  }
  TRY(check_state(pid));
  AttachableTree tree;
  tree.roots = {pid};
  add_sharers(tree);
  for (const pid_t member : process_tree(tree.roots)) {
    if (member == getpid() || member == getppid()) {
      return cannot_attach(pid, member == pid ? "it is redrive itself" : "redrive itself is one of its descendants");
    }
    auto process = look_at(member);
    // While it ends or begins its program, it cannot be looked into.
    for (int look = 0; look < kLooks && !process && member != pid && !has_ended(member); ++look) {
      std::this_thread::sleep_for(kBetweenLooks);
      process = look_at(member);
    }
    if (process) {
      tree.processes.push_back(std::move(*process));
    } else if (member == pid || !has_ended(member)) {
      return process.error();
    }
  }
  return tree;
}

}  // namespace redrive
