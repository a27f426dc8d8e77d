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

// A process, and what is found of it. Some of this takes long to find, so it is looked for while the process runs, and
// may have changed when it is stopped.
struct Attachable {
  pid_t pid = -1;
  std::vector<AddressRange> not_copied;  // memory that its children do not get (madvise(2))
  bool maps_growing = false;             // more than its stack grows downwards
  bool opens_memory = false;             // has opened the memory of a process as a file
  // Objects that it has mapped shared, by device and inode, and could write to.
  std::set<std::pair<uint64_t, uint64_t>> changeable;
};

// The process and its descendants that have not ended, parents first.
std::vector<pid_t> process_tree(pid_t root);
// ... if all can be recorded; otherwise an error that says which of them cannot, why, and what could be done.
Result<std::vector<Attachable>> attachable_tree(pid_t root);
// "1234 (nginx)".
std::string describe_process(pid_t pid);
// The program and its arguments, for listings; or the title that it shows instead of these.
std::string command_of(pid_t pid);

}  // namespace redrive
