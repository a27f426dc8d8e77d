// What a recording has learnt of the syscall sites in mapped files: how often calls there stopped that could have been
// served, and where a jump fits. A site that has proved worth it is patched at once in whatever maps that file next, in
// this recording and, through the cache of files, in later ones. A plan belongs to one version of a file, by its times
// and size, and applies to a window only if that holds the same bytes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "interceptors/patch_window.h"
#include "logstore/file_cache.h"
#include "supervisor/record/code/mapped_file.h"
#include "supervisor/tier/code_file.h"
#include "supervisor/tier/gate.h"

namespace redrive {

// An executable file as programs in this recording execute it.
struct Program {
  bool ended = false;  // one of them has ended: which code it executes is known
};

struct CodeSite {
  uint64_t offset = 0;  // in the file
  uint64_t stops = 0;   // of calls that could have been served
  SiteKind kind = SiteKind::syscall;
  std::vector<uint8_t> front;  // of a cpuid instruction (TrapSite)
  bool examined = false;
  std::optional<PatchWindow> window;  // once it was examined; none if it cannot be patched
  Bytes original;                     // what the window holds; empty until it was patched somewhere
  std::set<const Program*> used_by;

  // Counts a stop. Returns whether to patch the site, as far as can be known without having examined it: a system call
  // not before its second stop in all programs that map the file, because many sites are used only once. Files hold few
  // other instructions, and each program that comes to them executes most of these once. Loops do not stop.
  bool stopped() {
    const bool often = is_loop(kind) || ++stops > (kind == SiteKind::syscall ? 1 : 0);
    return often && (!examined || window);
  }
  // Whether it is known for good what can be done about it.
  bool settled() const { return examined && (!window || !original.empty()); }
};

// A patch to be made in an address space, and its site in the plans.
struct PlannedPatch {
  SitePatch patch;
  CodeSite* site = nullptr;
};

// An executable segment of one version of a file.
class CodePlan {
 public:
  CodePlan(std::string name, uint64_t offset) : name_(std::move(name)), offset_(offset) {}

  const std::string& name() const { return name_; }
  // The site at this distance from the segment's start.
  CodeSite& site(uint64_t at);
  const std::map<uint64_t, CodeSite>& sites() const { return sites_; }
  // The window at the site, whose segment this memory has mapped there. It is looked for only once.
  std::optional<PatchWindow> examine(CodeSite& site, const Memory& memory, const Mapping& mapping);
  // What is to be patched where the segment is mapped from `start` on, before the program executes it. Null: any
  // program. Once a process of the program has ended, others are patched only at sites that one of them reached,
  // because patching copies each page that holds a site.
  std::vector<PlannedPatch> ready(Address start, const Program* program);

 private:
  std::string name_;
  uint64_t offset_;
  std::map<uint64_t, CodeSite> sites_;
  std::optional<CodeSegment> code_;
};

// The plans of one version of a file, by offset and length of the segment.
using FilePlans = std::map<std::pair<uint64_t, uint64_t>, CodePlan>;
// Encodes the settled sites, to be kept; empty if there are none.
Bytes encode(const FilePlans& plans);
// Nullopt if encode() cannot have made the bytes. `name`: the file's.
std::optional<FilePlans> decode_plans(std::span<const uint8_t> bytes, const std::string& name);

class PatchPlans {
 public:
  // `cache`: null if there is none.
  explicit PatchPlans(FileCache* cache = nullptr) : cache_(cache) {}

  // Null if the mapping is not the unchanging code of a file.
  CodePlan* of(MappedFiles& files, const Mapping& mapping) {
    const MappedFile* file = is_code(mapping) ? files.of(mapping) : nullptr;
    return file ? &of(*file, mapping) : nullptr;
  }
  CodePlan& of(const MappedFile& file, const Mapping& mapping);
  CodeFile kind(const MappedFile& file, const std::string& name);
  // Whether any segment of the file, which has this name, has a site that can be patched at once.
  bool any_ready(const MappedFile& file, const std::string& name);
  Program& program(const FileVersion& file) { return programs_[file]; }
  static bool is_code(const Mapping& mapping);

  // The sites at which the most calls stopped that could have been served, in descending order.
  struct Stopping {
    const CodePlan* plan;
    const CodeSite* site;
  };
  std::vector<Stopping> worst(size_t count) const;
  // Tells the cache.
  void keep() const;

 private:
  struct Known {
    FileFacts* facts = nullptr;    // the cache's
    std::optional<CodeFile> kind;  // once it was asked for
    FilePlans plans;
  };
  Known& known(const MappedFile& file, const std::string& name);

  FileCache* cache_;
  std::map<FileVersion, Known> files_;
  std::map<FileVersion, Program> programs_;
};

}  // namespace redrive
