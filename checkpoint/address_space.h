// A process's mappings and the pages that a checkpoint must store (proc_pid_maps(5), proc_pid_pagemap(5)).
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/unit_state.h"

namespace redrive {

struct AddressRange {
  Address start = 0;
  Address end = 0;

  bool operator==(const AddressRange&) const = default;
  // Whether this and the mapping have memory in common.
  bool meets(const Mapping& mapping) const { return start < mapping.end && mapping.start < end; }
};

// Names of mappings of shared memory without a file, to which the kernel gives names all the same: System V segments,
// and these and anonymous memory.
inline bool is_sysv_segment(std::string_view name) { return name.starts_with("/SYSV"); }
inline bool is_shared_without_file(std::string_view name) {
  return is_sysv_segment(name) || name.starts_with("/dev/zero");
}

// The mappings of a process, in address order, without the kernel's own ([vdso], [vvar], [vsyscall]). `file` is not
// filled in. SysV shared memory of another IPC namespace than this process's own has that namespace in the upper half
// of its device, because the kernel numbers it in each namespace anew.
Result<std::vector<Mapping>> read_mappings(pid_t pid);
// The same from what was read of its file `maps`.
std::vector<Mapping> parse_mappings(pid_t pid, std::string_view maps);
// The mapping that holds the address; null if there is none.
const Mapping* mapping_at(const std::vector<Mapping>& mappings, Address address);
Mapping* mapping_at(std::vector<Mapping>& mappings, Address address);
// The mapping of a process that holds the address, for callers that need no other. Fails if there is none. Where the
// kernel can be asked for a single mapping (ioctl(2) PROCMAP_QUERY, Linux 6.11), this takes a few microseconds, however
// many mappings there are.
Result<Mapping> mapping_of(pid_t pid, Address address);
// The process's first mapping that ends after the address, without its name, [vdso] and [vvar] included; found in the
// same way. None if there is no such mapping.
Result<std::optional<Mapping>> mapped_from(pid_t pid, Address address);
// The mappings of a process that lie in a range, in part or as a whole, without their names, [vdso] and [vvar]
// included; found in the same way.
Result<std::vector<Mapping>> mappings_in(pid_t pid, AddressRange range);
// The executable mappings of a process, found in the same way. Those of files may come without their names.
Result<std::vector<Mapping>> code_mappings(pid_t pid);
// Where memory is mapped, in address order, [vdso] and [vvar] included; found in the same way.
Result<std::vector<AddressRange>> mapped_ranges(pid_t pid);
std::vector<AddressRange> ranges_of(const std::vector<Mapping>& mappings);
// A mapping with its VmFlags (proc_pid_smaps(5)), each of two letters, between spaces. `file` is not filled in.
struct FlaggedMapping {
  Mapping mapping;
  std::string flags;

  bool is(const char* flag) const { return flags.find(" " + std::string(flag) + " ") != std::string::npos; }
};
// Like read_mappings(), but it looks at each page, which takes long for much memory.
Result<std::vector<FlaggedMapping>> flagged_mappings(pid_t pid);
// Adds to a process's mappings what only their flags tell: fork_advice, and that a mapping grows downwards, which it is
// named a stack for, because /proc/PID/maps names only the one that holds the program's first frame.
Result<void> note_flags(pid_t pid, std::vector<Mapping>& mappings);
// Whether it has pages that fault without being mappings of their own (madvise(2), MADV_GUARD_INSTALL). False, too, if
// the kernel does not say which these are (Linux 6.13 and 6.14).
bool has_guard_pages(pid_t pid);
// Where the kernel mapped its vDSO; 0 if it did not.
Address vdso_address(pid_t pid);

// Resident private memory, roughly: what an image of the process will hold in addition to shared memory. 0 if it has
// ended.
uint64_t private_bytes(pid_t pid);

// Paths of a mapped file. The first path needs a capability; the second one will do as long as it names the same file
// (proc_pid_map_files(5)).
std::array<std::string, 2> paths_of(pid_t pid, const Mapping& mapping);
// The file or memory object behind a shared mapping, opened for reading, if that is possible.
Fd open_object(pid_t pid, const Mapping& mapping);

// The size of that object in bytes, if it could be opened.
std::optional<uint64_t> object_size(pid_t pid, const Mapping& mapping);

struct FileRange {
  uint64_t start = 0;
  uint64_t end = 0;
};
// The ranges between two offsets where a file holds data; holes are left out (lseek(2), SEEK_DATA).
std::vector<FileRange> data_ranges(int file, uint64_t start, uint64_t end);

// A run of pages with contents of their own: written private pages, and pages that a shared object holds.
struct PageRun {
  Address start = 0;
  uint64_t pages = 0;
};
// The written private pages of a whole process, in address order, including those of the kernel's own mappings.
std::vector<PageRun> private_pages(pid_t pid);
// A process's page table.
class PageTable {
 public:
  static Result<PageTable> open(pid_t pid);
  // The runs of one mapping. Pages that equal the mapped file because they were never written are left out.
  std::vector<PageRun> stored_pages(const Mapping& mapping) const;

 private:
  PageTable(pid_t pid, Fd fd) : pid_(pid), fd_(std::move(fd)) {}

  pid_t pid_;
  Fd fd_;
};

// Visits adjacent pages, which are valid until it returns. An error ends the visit.
using VisitRun = std::function<Result<void>(const Mapping&, Address, std::span<const uint8_t>)>;
// Reads pages of one mapping, in the runs' order, at most 1 MiB at a time. Unreadable pages (beyond a file's end) are
// skipped.
Result<void> read_runs(const Memory& memory, const Mapping& mapping, const std::vector<PageRun>& runs,
                       const VisitRun& visit);
// The stored pages of all mappings for which `wanted` holds, in address order.
Result<void> visit_pages(const Memory& memory, const std::vector<Mapping>& mappings,
                         const std::function<bool(const Mapping&)>& wanted, const VisitRun& visit);

}  // namespace redrive
