#include "supervisor/tier/code_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/fd.h"
#include "supervisor/tier/mapped_code.h"

namespace redrive {
namespace {

constexpr uint64_t kWorthPatching = 2;      // times that a thread comes to a site: many sites are used only once
constexpr uint64_t kReadAStop = 16 * 1024;  // bytes of code that can be read in about the time of a stop

// The contents of the mapped file; empty if it cannot be read or no longer exists.
Bytes contents_of(const Mapping& mapping) {
  const Fd file(::open(mapping.name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || info.st_dev != mapping.device || info.st_ino != mapping.inode)
    return {};
  // A stranger's file may claim any size.
  if (lseek(file.get(), 0, SEEK_HOLE) < info.st_size || lseek(file.get(), 0, SEEK_SET) != 0) return {};
  Bytes contents(static_cast<size_t>(info.st_size));
  const ssize_t got = ::read(file.get(), contents.data(), contents.size());
  contents.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return contents;
}

}  // namespace

std::optional<PatchWindow> CodeSegments::window(const Memory& memory, const Mapping& mapping, Address address,
                                                SiteKind kind, uint64_t times) {
  if (!is_unchanging(mapping)) return std::nullopt;
  const Lock lock(mutex_);
  Segment& known = segments_[key(mapping)];
  const uint64_t at = address - mapping.start;
  Site& site = known.sites[at];
  site.kind = kind;
  site.times += times;
  known.times += times;
  // Stops are cheaper than reading code in which there are few of them.
  if (site.times < kWorthPatching || known.times < mapping.length() / kReadAStop) return std::nullopt;
  if (std::exchange(site.examined, true)) return site.window;
  const CodeSegment& code = code_of(known, memory, mapping);
  const auto front = kind == SiteKind::cpuid ? front_of_cpuid(known, mapping, at) : std::vector<uint8_t>();
  return site.window = window_of(kind, code, at, front, memory, mapping.start);
}

// The lengths of the instructions before a cpuid, as far as the file says.
std::vector<uint8_t> CodeSegments::front_of_cpuid(Segment& segment, const Mapping& mapping, uint64_t at) {
  if (!segment.traps) segment.traps = trap_sites(contents_of(mapping), {.counter = true, .cpuid = false});
  const auto site = std::find_if(segment.traps->begin(), segment.traps->end(),
                                 [&](const TrapSite& each) { return each.offset == mapping.offset + at; });
  return site == segment.traps->end() ? std::vector<uint8_t>() : site->front;
}

std::optional<PatchWindow> CodeSegments::window_at(const Memory& memory, const Mapping& mapping, Address place) {
  if (!is_unchanging(mapping)) {
    // The code that is there now. Only compiled functions are expected here, into which nothing jumps from far away.
    constexpr uint64_t kAround = 64 << 10;
    const Address start = std::max(mapping.start, place - std::min(place, kAround));
    Bytes code(std::min(mapping.end, place + kAround) - start);
    code.resize(memory.read_some(start, code.data(), code.size()));
    return CodeSegment(std::move(code)).window_at(place - start, mapped_at(memory, start));
  }
  const Lock lock(mutex_);
  return code_of(segments_[key(mapping)], memory, mapping)
      .window_at(place - mapping.start, mapped_at(memory, mapping.start));
}

bool CodeSegments::is_unchanging(const Mapping& mapping) {
  return mapping.inode != 0 && !mapping.shared && !(mapping.protection & PROT_WRITE);
}

const CodeSegment& CodeSegments::code_of(Segment& segment, const Memory& memory, const Mapping& mapping) {
  if (!segment.code) segment.code.emplace(mapped_code(memory, mapping));
  return *segment.code;
}

bool CodeSegments::is_program(const Mapping& mapping) {
  const Lock lock(mutex_);
  auto& file = segments_[key(mapping)].file;
  if (!file) file = code_file(mapping.name);
  return file == CodeFile::program;
}

}  // namespace redrive
