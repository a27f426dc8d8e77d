// Gives a process that waits (Keeper) the memory, the threads and the registers that a re-driven one has where it
// stands, and lets it go. The process is traced. It makes the mappings by calls at a page of ours (kLiveGate), and
// their contents come through /proc/PID/mem. Then come threads, registers, masks and timers, and the page of ours goes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/unit_state.h"
#include "logstore/trace.h"
#include "supervisor/live/image_directory.h"
#include "supervisor/live/keeper.h"
#include "supervisor/live/live_calls.h"
#include "supervisor/live/live_spec.h"
#include "supervisor/live/shared_objects.h"

namespace redrive {

// Copies of mapped files, or the files themselves, if they are equal.
class MappedPaths {
 public:
  // The copies are the trace's, or copies of these in `images`, which may be null.
  MappedPaths(const Trace& trace, ImageDirectory* images) : trace_(trace), images_(images) {}

  // By which a process can open what was mapped.
  Result<std::string> of(uint64_t file);
  const std::string& recorded(uint64_t file) const { return trace_.files().at(file).path; }  // after of()
  const std::string& copy_of(uint64_t file) const { return copies_.at(file); }               // the trace's; after of()
  // Files that are not what they were.
  const std::vector<std::string>& changed() const { return changed_; }

 private:
  const Trace& trace_;
  ImageDirectory* const images_;
  std::map<uint64_t, std::string> paths_, copies_;
  std::vector<std::string> changed_;
};

class Transplant {
 public:
  // Seizes the process. Everything is done by one thread.
  static Result<Transplant> begin(pid_t pid);

  // `from`: the memory of the process that stands. `shared`: where the objects that it shows are open.
  Result<void> give_memory(const ProcessState& state, const Memory& from, MappedPaths& paths, const LiveShared& shared,
                           const Keeper& keeper, UnitId unit);
  Result<void> give_threads(const LiveProcess& process);
  // All of it is there: takes away what only we needed.
  Result<void> finish(const LiveProcess& process);
  // It runs, or stands stopped (SIGSTOP).
  Result<void> let_go(bool stopped);

 private:
  Transplant(pid_t pid, Memory memory) : pid_(pid), memory_(std::move(memory)) {}
  Result<void> forget_sequences();
  Result<void> map(const Mapping& mapping, MappedPaths& paths, const LiveShared& shared, const Keeper& keeper,
                   UnitId unit);
  Result<void> fill(const ProcessState& state, const Memory& from, MappedPaths& paths);
  Result<void> describe_layout(const ProcessState& state, const Memory& from, MappedPaths& paths);
  Result<void> send_pending(size_t thread, const LiveProcess& process);
  Result<int> open(const std::string& path, int flags);
  Result<int> open_program(uint64_t file, MappedPaths& paths);

  pid_t pid_;
  Memory memory_;
  std::vector<pid_t> tids_;  // as we know them, in the order of the process's threads
  bool killed_ = false;      // SIGKILL is pending: it dies when it is let go
};

}  // namespace redrive
