// An ELF core file of one process (core(5), elf(5)): what debuggers read of a process that is no more. It has the notes
// that Linux writes when a process dies of a signal; memory that was never touched takes no space in it.
//
// Memory is handed over in pieces, in any order, and written where it belongs, so no more than one piece is held. Gaps
// of 1 MiB or more become segments without contents, so that a reservation of a terabyte takes no space even where a
// copy of the file has no holes; smaller ones become holes.
#pragma once

#include <signal.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "checkpoint/unit_state.h"

namespace redrive {

struct CoreThread {
  int32_t tid = 0;
  user_regs_struct regs{};
  Bytes xstate;  // as in a ThreadState
};

struct CoreProcess {
  int32_t pid = 0;
  int32_t parent = 0;
  std::string command;              // the program's name, and its arguments
  std::vector<CoreThread> threads;  // debuggers begin with the first
  Bytes auxiliary_vector;           // empty: not known
  int signal = 0;                   // that the first thread is about to get; 0: none
  std::optional<siginfo_t> signal_info;
};

// A mapping, and which of its pages the file has; all others are to be read elsewhere. If they are of a file, the
// mapping's name is that file's path.
struct CoreMapping {
  Mapping mapping;
  std::vector<PageRun> held;  // in address order
};

// Closes small gaps between runs, so that the file does not have very many segments. `runs` are in address order.
std::vector<PageRun> without_small_gaps(const std::vector<PageRun>& runs);

class CoreFile {
 public:
  // Creates the file, which must not exist. All pages that it has are zero until they are written. The mappings are in
  // address order.
  static Result<CoreFile> create(const std::string& path, const CoreProcess& process,
                                 std::span<const CoreMapping> mappings);
  // Writes memory, of which only what the file is to have is written.
  Result<void> write(Address address, std::span<const uint8_t> bytes);
  // Its size in bytes, and how many of these take space on the disk.
  uint64_t size() const { return size_; }
  Result<uint64_t> size_on_disk() const;

 private:
  struct Segment {
    Address start = 0;
    Address end = 0;
    uint32_t flags = 0;   // PF_*
    bool held = false;    // the file has its pages
    bool sparse = false;  // pages that are zero need not be written
    uint64_t offset = 0;  // in the file, if it is held
  };

  CoreFile(std::string path, Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  static std::vector<Segment> segments_of(std::span<const CoreMapping> mappings);
  Result<void> write_headers(const Bytes& notes);
  Result<void> put(uint64_t offset, std::span<const uint8_t> bytes) const;

  std::string path_;
  Fd file_;
  std::vector<Segment> segments_;  // in address order
  uint64_t size_ = 0;
};

}  // namespace redrive
