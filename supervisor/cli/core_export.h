// A directory with core files of processes of a recording, and with the files that these had mapped.
//
// A core has what the kernel's default would put there (core(5), coredump_filter): written pages, shared memory, and
// the first page of each ELF file, with its build-id. It needs no other pages of files, because debuggers read the
// files: neither gdb nor lldb unwinds by what is in a core. The trace's copies of them lie beside the cores, under
// their own names and those by which the loader knows them, so that backtraces are right on any machine. Code is the
// program's own: it has neither jumps of the in-process tier nor instructions that stand in for cpuid and rdtsc.
//
// What an image lacks is found elsewhere: the auxiliary vector at the end of the stack, where no program changes it;
// numbers of threads in the events that made them; the siginfo of a signal in the frame of its handler, or in the fault
// that a replay runs into. Of another signal that kills, only the number is known.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/core_file.h"
#include "checkpoint/unit_state.h"
#include "logstore/trace.h"
#include "supervisor/cli/file_tree.h"
#include "supervisor/cli/recorded_memory.h"

namespace redrive {

class CoreExport {
 public:
  struct Place {
    UnitId unit = 0;
    IntervalIndex interval = 0;
    EventIndex event = 0;            // the next one
    std::optional<siginfo_t> fault;  // as in a StoppedUnit
  };
  struct Core {
    Place place;
    int32_t pid = 0;
    size_t threads = 0;
    uint64_t bytes = 0;   // that it takes on the disk
    std::string file;     // its path
    std::string root;     // the directory with the files that it had mapped
    std::string program;  // the path of its program there; empty if that is not known
  };

  // Creates the directory, which must not exist. `file_pages`: cores also have what mapped files hold, and need no file
  // to be read whole.
  static Result<std::unique_ptr<CoreExport>> begin(const Trace& trace, const std::string& directory, bool file_pages);
  // Removes the directory, unless all is done.
  ~CoreExport();

  // Adds a core for each process of a unit. `memory`: that of a process that has its own.
  using MemoryOf = std::function<Result<std::unique_ptr<RecordedMemory>>(const ProcessState& process)>;
  Result<void> add(const Place& place, const UnitState& state, const MemoryOf& memory);
  // All is there: the directory stays. Fails if something of the trace was damaged.
  Result<void> finish();

  OpenCopies& copies() { return copies_; }
  const std::vector<Core>& cores() const { return cores_; }
  uint64_t root_bytes() const { return tree_.bytes(); }

 private:
  CoreExport(const Trace& trace, std::string directory, bool file_pages)
      : trace_(trace),
        directory_(std::move(directory)),
        file_pages_(file_pages),
        copies_(trace),
        tree_(trace, copies_, directory_) {}
  struct NextEvent {
    std::optional<ThreadSerial> thread;
    int signal = 0;
    std::optional<siginfo_t> signal_info;
  };
  Result<NextEvent> next_event(const Place& place) const;
  Result<std::vector<CoreThread>> threads_of(const Place& place, const UnitState& state, const ProcessState& process,
                                             std::optional<ThreadSerial> first) const;
  Result<std::vector<CoreMapping>> mappings_of(const RecordedMemory& memory);
  Result<void> add_process(const Place& place, const CoreProcess& process, const RecordedMemory& memory);
  Result<void> write(CoreFile& core, const std::vector<CoreMapping>& mappings, const RecordedMemory& memory);

  const Trace& trace_;
  const std::string directory_;
  const bool file_pages_;
  OpenCopies copies_;
  FileTree tree_;
  std::vector<Core> cores_;
  bool done_ = false;
};

}  // namespace redrive
