// Replaces cpuid in mapped files by instructions that trap, on processors that cannot be told to trap cpuid. Where a
// version of a file holds cpuid is looked for once, and the cache of files remembers it.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/remote.h"
#include "interceptors/cpuid_sites.h"
#include "logstore/file_cache.h"
#include "supervisor/record/mapped_file.h"

namespace redrive {

class CpuidReplacement {
 public:
  // `cache` must outlive this object; null if there is none.
  explicit CpuidReplacement(FileCache* cache) : cache_(cache) {}

  // Where the file holds cpuid. Null if it cannot be read.
  const std::vector<CpuidSite>* sites_of(const MappedFile& file);
  // The lengths of the instructions before the one at this offset (CpuidSite); empty if they are not known.
  std::vector<uint8_t> front(const FileVersion& file, uint64_t offset) const;

  struct Replaced {
    std::vector<Address> sites;  // where cpuid was replaced
    bool failed = false;         // the instructions could not be written
  };
  // Replaces cpuid in a private mapping of the file that was just made. The process must be stopped. Nullopt if the
  // file cannot be searched. `file`: null if it cannot be reached.
  std::optional<Replaced> replace(const Memory& memory, const Mapping& mapping, const MappedFile* file);

 private:
  FileCache* cache_;
  std::map<FileVersion, std::vector<CpuidSite>> known_;
};

}  // namespace redrive
