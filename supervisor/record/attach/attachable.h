// Which running processes can be recorded from now on, and what has to be known of them before. It looks at /proc only,
// and touches nothing.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/address_space.h"

namespace redrive {

// A process, and what is found of it.
struct Attachable {
  pid_t pid = -1;
  std::string maps;                      // its mappings (proc_pid_maps(5)), before the rest was found
  std::vector<Mapping> mappings;         // the same
  std::vector<AddressRange> not_copied;  // memory that its children do not get (madvise(2))
  bool has_guards = false;               // has guard pages (madvise(2))
  bool maps_growing = false;             // more than its stack grows downwards
  bool opens_memory = false;             // has opened the memory of a process as a file
  // Objects that it has mapped shared, by device and inode, and could write to.
  std::set<std::pair<uint64_t, uint64_t>> changeable;
};

// All that has to be recorded with a process.
struct AttachableTree {
  // The process itself, or its ancestor, and others: of all that are recorded, those whose parents are not.
  std::vector<pid_t> roots;
  std::vector<Attachable> processes;  // these and their descendants, parents first
  // A process into which redrive may not look, and which may share memory with one of them; -1 if there is none.
  pid_t hidden = -1;
};

// These and their descendants that have not ended, parents first.
std::vector<pid_t> process_tree(const std::vector<pid_t>& roots);
// What has to be recorded with the process: its descendants, and those with whom it shares memory without a file, and
// their descendants. An error if one of them cannot be recorded; it says which, why, and what could be done.
Result<AttachableTree> attachable_tree(pid_t pid);
// Whether a recorder that was killed has left it as it was recorded (NativeState). If the guard was killed, too, while
// it gave everything back, the process is also left stopped. It is not traced.
bool left_by_killed_recorder(pid_t pid);
// A process of the tree, or one that was born after that; it may be stopped.
Result<Attachable> attachable(pid_t pid);
// Finds out again what may have changed since then. The process is stopped.
Result<void> look_again(Attachable& process);
// "process 1234 (nginx) cannot be attached to: WHY".
Error cannot_attach(pid_t pid, const std::string& why);
// "1234 (nginx)".
std::string describe_process(pid_t pid);
// The program and its arguments, for listings; or the title that it shows instead of these.
std::string command_of(pid_t pid);

}  // namespace redrive
