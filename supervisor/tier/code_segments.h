// Where the instructions of mapped files can be replaced by jumps.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "base/remote.h"
#include "checkpoint/unit_state.h"
#include "interceptors/patch_window.h"
#include "interceptors/trap_sites.h"
#include "supervisor/tier/code_file.h"
#include "supervisor/tier/trampoline.h"

namespace redrive {

// What replays have learnt about the sites in mapped files: where a jump fits, and which sites are worth one.
// Thread-safe.
class CodeSegments {
 public:
  // Call this if a thread will come to the site `times` times. Nullopt if the mapping is not the unchanging code of a
  // file, if the site has no window, or if searching for one is not worth the time yet: code is searched once stops in
  // it have cost about as much as the search.
  std::optional<PatchWindow> window(const Memory& memory, const Mapping& mapping, Address site, SiteKind kind,
                                    uint64_t times);
  // The same for any instruction (CodeSegment::window_at).
  std::optional<PatchWindow> window_at(const Memory& memory, const Mapping& mapping, Address place);
  // Whether the file is that of a program that is linked with libraries.
  bool is_program(const Mapping& mapping);

 private:
  struct Site {
    SiteKind kind = SiteKind::syscall;
    uint64_t times = 0;
    bool examined = false;
    std::optional<PatchWindow> window;  // set once it was examined
  };
  struct Segment {
    std::optional<CodeFile> file;
    std::optional<CodeSegment> code;             // set once it was read
    uint64_t times = 0;                          // at all sites
    std::map<uint64_t, Site> sites;              // by the distance from the start
    std::optional<std::vector<TrapSite>> traps;  // of the file; set once they were looked for
  };
  static std::vector<uint8_t> front_of_cpuid(Segment& segment, const Mapping& mapping, uint64_t at);
  static bool is_unchanging(const Mapping& mapping);
  static const CodeSegment& code_of(Segment& segment, const Memory& memory, const Mapping& mapping);
  static auto key(const Mapping& mapping) {
    return std::make_tuple(mapping.device, mapping.inode, mapping.offset, mapping.length());
  }

  Mutex mutex_;
  std::map<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>, Segment> segments_
      GUARDED_BY(mutex_);  // device, inode, offset, length
};

}  // namespace redrive
