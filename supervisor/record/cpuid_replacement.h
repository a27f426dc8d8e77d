// Which instructions stand in for cpuid in mapped files, on processors that cannot be told to trap it: they trap
// instead. What is found in a file is remembered, by its version, and told to the cache of files.
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
  // `cache`: null if there is none. It must outlive this.
  explicit CpuidReplacement(FileCache* cache) : cache_(cache) {}

  // Where the file holds cpuid. Null if it cannot be read.
  const std::vector<CpuidSite>* sites_of(const MappedFile& file);
  // The lengths of the instructions in front of the one at this offset (CpuidSite); none if it is not known.
  std::vector<uint8_t> front(const FileVersion& file, uint64_t offset) const;

  struct Replaced {
    std::vector<Address> sites;  // where instructions stand in for cpuid now
    bool failed = false;         // they could not be written there
  };
  // Replaces them in a private mapping of the file that was just made, in the memory of a process that is stopped.
  // Nothing if they cannot be looked for. `file`: null if it cannot be reached.
  std::optional<Replaced> replace(const Memory& memory, const Mapping& mapping, const MappedFile* file);

 private:
  FileCache* cache_;
  std::map<FileVersion, std::vector<CpuidSite>> known_;
};

}  // namespace redrive
