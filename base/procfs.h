// What procfs says of processes (proc(5)): paths, and the values of its files. All of it may be asked of any process,
// by any thread; of one that has ended, all is empty. Files are read as base/brief_file.h says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace redrive {

// Whether /proc is there, and is that of our PID namespace (pid_namespaces(7)): in another one, a process's number is
// that of somebody else.
Result<void> check_procfs();

// /proc/PID/NAME.
std::string proc_path(pid_t pid, std::string_view name);
// By which a process's descriptor can be looked at and opened anew (proc_pid_fd(5)).
std::string descriptor_path(pid_t pid, uint64_t descriptor);
// By which this process can open a descriptor of its own anew.
std::string own_descriptor_path(int descriptor);

// A file of lines "NAME: VALUE", read once, such as proc_pid_status(5) and proc_pid_fdinfo(5).
class ProcValues {
 public:
  explicit ProcValues(const std::string& path);
  // Without the spaces around it; empty if there is no such line.
  std::string_view text(std::string_view name) const;
  // The number that the value begins with; 0 if there is none.
  uint64_t number(std::string_view name, int base = 10) const;

 private:
  std::string lines_;
};
ProcValues proc_status(pid_t pid);

// A field of proc_pid_stat(5) by its number there, from 3; empty if there is none.
std::string proc_stat_field(pid_t pid, int number);
// Which namespace of a kind ("pid", "pid_for_children", "net") it is in (namespaces(7)).
std::string proc_namespace(pid_t pid, std::string_view kind);
// The inode of its IPC namespace, within which SysV objects are numbered (ipc_namespaces(7)); 0 if that is this
// process's own.
uint64_t foreign_ipc_namespace(pid_t pid);
// The descriptors that this process has open, and maybe one more; none if they cannot be listed.
std::vector<int> own_descriptors();
// The threads of a process.
std::vector<pid_t> proc_threads(pid_t pid);

}  // namespace redrive
