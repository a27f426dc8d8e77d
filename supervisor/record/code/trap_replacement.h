// Replaces instructions with nondeterministic results in mapped files by others that trap, on machines that cannot be
// told to trap these. Where a version of a file holds them is looked for once, and the cache of files remembers it,
// with what its cpuid instructions ask: that is answered in later recordings as soon as the file is mapped, because
// asking the processor costs 10 us on a virtual machine. A question that nobody has asked stops at the instruction that
// stands in for cpuid.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/remote.h"
#include "interceptors/trap_sites.h"
#include "interceptors/trapped_instructions.h"
#include "logstore/file_cache.h"
#include "supervisor/record/code/mapped_file.h"

namespace redrive {

class TrapReplacement {
 public:
  // `cache` must outlive this object; null if there is none.
  TrapReplacement(FileCache* cache, ProcessorTraps traps) : cache_(cache), traps_(traps) {}

  // Where the file holds instructions that do not trap. Null if it cannot be read.
  const std::vector<TrapSite>* sites_of(const MappedFile& file);
  // What programs have asked with the file's cpuid instructions, in this recording and in earlier ones.
  std::span<const CpuidQuestion> questions(const FileVersion& file) const;
  // A program has asked that with an instruction of the file, whose sites are known.
  void add_question(const MappedFile& file, const CpuidQuestion& question);
  // The lengths of the instructions before the one at this offset (TrapSite); empty if they are not known.
  std::vector<uint8_t> front(const FileVersion& file, uint64_t offset) const;

  struct Replaced {
    std::map<Address, TrappedInstruction> sites;  // what was replaced
    bool failed = false;                          // the instructions could not be written
  };
  // Replaces them in a private mapping of the file that was just made. The process must be stopped. Nullopt if the
  // file cannot be searched. `file`: null if it cannot be reached.
  std::optional<Replaced> replace(const Memory& memory, const Mapping& mapping, const MappedFile* file);

 private:
  FileCache* cache_;
  ProcessorTraps traps_;
  std::map<FileVersion, FoundTrapSites> known_;
};

}  // namespace redrive
