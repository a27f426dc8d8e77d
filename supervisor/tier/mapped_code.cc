#include "supervisor/tier/mapped_code.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/fd.h"
#include "checkpoint/address_space.h"

namespace redrive {
namespace {

// Reads from an address up to the first unreadable page: a mapping may be much longer than its file.
Bytes read_readable(const Memory& memory, Address start, uint64_t length) {
  constexpr uint64_t kAtOnce = 4 << 20;
  Bytes bytes;
  while (bytes.size() < length) {
    const size_t had = bytes.size(), wanted = std::min(kAtOnce, length - had);
    bytes.resize(had + wanted);
    const size_t got = memory.read_some(start + had, bytes.data() + had, wanted);
    bytes.resize(had + got);
    if (got < wanted) break;
  }
  return bytes;
}

// A file with what a process has changed of it. Offsets are those in the mapping.
struct ChangedFile {
  Fd file;
  uint64_t start = 0;  // of the mapping, in the file
  uint64_t size = 0;   // of the part of the file that is mapped
  std::map<uint64_t, Bytes> changed;

  size_t read(uint64_t offset, std::span<uint8_t> to) const {
    to = to.first(std::min<uint64_t>(to.size(), size - std::min(offset, size)));
    const ssize_t got = pread(file.get(), to.data(), to.size(), static_cast<off_t>(start + offset));
    if (got < 0 || static_cast<size_t>(got) < to.size()) return 0;
    auto at = changed.upper_bound(offset);
    if (at != changed.begin()) --at;
    for (; at != changed.end() && at->first < offset + to.size(); ++at) {
      const auto& [first, bytes] = *at;
      const uint64_t from = std::max(first, offset), end = std::min(first + bytes.size(), offset + to.size());
      if (from < end) std::copy_n(&bytes[from - first], end - from, &to[from - offset]);
    }
    return to.size();
  }
};

// Null if the file cannot be read, or if what the process has changed is not known.
std::shared_ptr<const ChangedFile> changed_file(const Memory& memory, const Mapping& mapping) {
  auto code = std::make_shared<ChangedFile>();
  code->file = open_object(memory.pid(), mapping);
  struct stat info {};
  if (!code->file || fstat(code->file.get(), &info) != 0) return nullptr;
  const auto length = static_cast<uint64_t>(std::max<off_t>(info.st_size, 0));
  code->start = mapping.offset;
  code->size = std::min(mapping.length(), length - std::min(length, mapping.offset));
  const auto pages = PageTable::open(memory.pid());
  if (!pages) return nullptr;
  for (const PageRun& run : pages->stored_pages(mapping)) {
    Bytes bytes(run.pages * kPageSize);
    if (!memory.read(run.start, bytes.data(), bytes.size())) return nullptr;
    code->changed.emplace(run.start - mapping.start, std::move(bytes));
  }
  return code;
}

}  // namespace

CodeSegment mapped_code(const Memory& memory, const Mapping& mapping) {
  const auto code = changed_file(memory, mapping);
  if (!code) return CodeSegment(read_readable(memory, mapping.start, mapping.length()));
  return {code->size, [code](uint64_t offset, std::span<uint8_t> to) { return code->read(offset, to); }};
}

CodeSegment::Mapped mapped_at(const Memory& memory, Address start) {
  return {start, [&memory, start](int64_t offset, std::span<uint8_t> to) {
            return memory.read_some(start + static_cast<uint64_t>(offset), to.data(), to.size());
          }};
}

std::optional<PatchWindow> window_of(SiteKind kind, const CodeSegment& code, uint64_t at,
                                     const std::vector<uint8_t>& front, const Memory& memory, Address start) {
  const CodeSegment::Mapped mapped = mapped_at(memory, start);
  switch (kind) {
    case SiteKind::syscall:
      return code.window(at, mapped);
    case SiteKind::cpuid:
      return code.window(at, front, mapped);
    case SiteKind::rdtsc:
    case SiteKind::rdtscp:
      return code.counter_window(at, instruction_size(kind), mapped);
    case SiteKind::pausing:
    case SiteKind::polling:
      return code.window_at(at, mapped);
  }
  return std::nullopt;
}

}  // namespace redrive
