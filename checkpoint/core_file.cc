#include "checkpoint/core_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace redrive {
namespace {

// As of a gap in a file, gdb and lldb read a gap in memory as zeros, or as what is in the file that is mapped there.
// Smaller gaps are not worth a segment.
constexpr uint64_t kSmallGap = 1 << 20;
constexpr size_t kLegacyRegisters = sizeof(elf_fpregset_t);  // x87 and SSE, with which an XSAVE area begins

template <typename T>
std::span<const uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

// The notes of a core file, in the order in which Linux writes them.
class Notes {
 public:
  void add(const char* owner, uint32_t type, std::span<const uint8_t> content) {
    const Elf64_Nhdr header{static_cast<Elf64_Word>(std::strlen(owner) + 1), static_cast<Elf64_Word>(content.size()),
                            type};
    append(bytes_of(header));
    append({reinterpret_cast<const uint8_t*>(owner), header.n_namesz});
    append(content);
  }
  Bytes take() { return std::move(bytes_); }

 private:
  void append(std::span<const uint8_t> bytes) {
    constexpr size_t kAlignment = 4;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
  }

  Bytes bytes_;
};

elf_prpsinfo process_info(const CoreProcess& process) {
  constexpr char kStopped = 'T', kStoppedState = 3;
  elf_prpsinfo info{};
  info.pr_state = kStoppedState;
  info.pr_sname = kStopped;
  info.pr_pid = info.pr_pgrp = process.pid;
  info.pr_ppid = process.parent;
  const std::string name = process.command.substr(0, process.command.find(' '));
  name.copy(info.pr_fname, sizeof info.pr_fname - 1);
  process.command.copy(info.pr_psargs, sizeof info.pr_psargs - 1);
  return info;
}

// As in the kernel's cores, all threads have the signal (fill_thread_core_info(), fs/binfmt_elf.c).
void add_thread(Notes& notes, const CoreProcess& process, const CoreThread& thread) {
  elf_prstatus status{};
  status.pr_pid = thread.tid;
  status.pr_ppid = process.parent;
  status.pr_pgrp = process.pid;
  status.pr_cursig = static_cast<short>(process.signal);
  status.pr_info.si_signo = process.signal;
  static_assert(sizeof status.pr_reg == sizeof thread.regs);
  std::memcpy(&status.pr_reg, &thread.regs, sizeof thread.regs);
  status.pr_fpvalid = thread.xstate.size() >= kLegacyRegisters;
  notes.add("CORE", NT_PRSTATUS, bytes_of(status));
}

// Debuggers know where an XSAVE area has its parts by its size only, and gdb does not know the layout of AMD's
// processors with AVX-512 (gdb 13) or only if they have protection keys (gdb 16). Such an area is given Intel's layout.
Bytes known_layout(const Bytes& area) {
  constexpr uint64_t kMpx = 0x18, kAvx512 = 0xe0, kKeys = 0x200;
  constexpr size_t kFeaturesAt = 464;  // where the kernel says which parts there are
  struct Part {
    size_t from, to, size;
  };
  static constexpr Part kParts[] = {{832, 1088, 64}, {896, 1152, 512}, {1408, 1664, 1024}, {2432, 2688, 8}};
  constexpr size_t kBase = 832, kShort = 2432, kLong = 2440, kMoved = 256;
  if (area.size() != kShort && area.size() != kLong) return area;
  uint64_t features;
  std::memcpy(&features, area.data() + kFeaturesAt, sizeof features);
  if ((features & kAvx512) != kAvx512 || (features & kMpx) != 0) return area;
  if (((features & kKeys) != 0) != (area.size() == kLong)) return area;
  Bytes moved(area.size() + kMoved);
  std::copy_n(area.begin(), kBase, moved.begin());
  for (const auto& [from, to, size] : kParts) {
    if (from < area.size())
      std::copy_n(area.begin() + static_cast<long>(from), size, moved.begin() + static_cast<long>(to));
  }
  return moved;
}

void add_extended(Notes& notes, const CoreThread& thread) {
  if (thread.xstate.size() < kLegacyRegisters) return;
  notes.add("CORE", NT_FPREGSET, std::span(thread.xstate).first(kLegacyRegisters));
  notes.add("LINUX", NT_X86_XSTATE, known_layout(thread.xstate));
}

bool shows_file(const Mapping& mapping) { return mapping.name.starts_with('/'); }

// Which files are mapped where (fill_files_note(), fs/binfmt_elf.c).
Bytes file_note(std::span<const CoreMapping> mappings) {
  Encoder numbers, names;
  uint64_t count = 0;
  for (const auto& [mapping, held] : mappings) {
    if (!shows_file(mapping)) continue;
    ++count;
    for (const uint64_t number : {mapping.start, mapping.end, mapping.offset / kPageSize}) numbers.fixed64(number);
    names.raw(mapping.name.c_str(), mapping.name.size() + 1);
  }
  Encoder note;
  note.fixed64(count);
  note.fixed64(kPageSize);
  note.raw(numbers.data().data(), numbers.size());
  note.raw(names.data().data(), names.size());
  return note.take();
}

Bytes notes_of(const CoreProcess& process, std::span<const CoreMapping> mappings) {
  Notes notes;
  for (const CoreThread& thread : process.threads) {
    add_thread(notes, process, thread);
    if (&thread == &process.threads.front()) {
      notes.add("CORE", NT_PRPSINFO, bytes_of(process_info(process)));
      if (process.signal_info) notes.add("CORE", NT_SIGINFO, bytes_of(*process.signal_info));
      if (!process.auxiliary_vector.empty()) notes.add("CORE", NT_AUXV, process.auxiliary_vector);
      notes.add("CORE", NT_FILE, file_note(mappings));
    }
    add_extended(notes, thread);
  }
  return notes.take();
}

uint32_t segment_flags(int protection) {
  return (protection & PROT_READ ? PF_R : 0u) | (protection & PROT_WRITE ? PF_W : 0u) |
         (protection & PROT_EXEC ? PF_X : 0u);
}

}  // namespace

std::vector<PageRun> without_small_gaps(const std::vector<PageRun>& runs) {
  std::vector<PageRun> out;
  for (const PageRun& run : runs) {
    const Address end = out.empty() ? 0 : out.back().start + out.back().pages * kPageSize;
    if (!out.empty() && run.start - end < kSmallGap) {
      out.back().pages = (run.start - out.back().start) / kPageSize + run.pages;
    } else {
      out.push_back(run);
    }
  }
  return out;
}

std::vector<CoreFile::Segment> CoreFile::segments_of(std::span<const CoreMapping> mappings) {
  std::vector<Segment> segments;
  for (const auto& [mapping, held] : mappings) {
    const uint32_t flags = segment_flags(mapping.protection);
    Address at = mapping.start;
    for (const PageRun& run : held) {
      const Address end = run.start + run.pages * kPageSize;
      ASSERT(at <= run.start && end <= mapping.end);
      if (at < run.start) segments.push_back({at, run.start, flags});
      segments.push_back({run.start, end, flags, true, !mapping.file});
      at = end;
    }
    if (at < mapping.end) segments.push_back({at, mapping.end, flags});
  }
  return segments;
}

Result<CoreFile> CoreFile::create(const std::string& path, const CoreProcess& process,
                                  std::span<const CoreMapping> mappings) {
  ASSERT(!process.threads.empty());
  Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return errno_error("cannot create " + path);
  CoreFile core(path, std::move(file));
  core.segments_ = segments_of(mappings);
  TRY(core.write_headers(notes_of(process, mappings)));
  return core;
}

Result<void> CoreFile::write_headers(const Bytes& notes) {
  const size_t count = segments_.size() + 1;  // one with the notes
  const bool many = count >= PN_XNUM;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_CORE;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = static_cast<Elf64_Half>(many ? PN_XNUM : count);

  const uint64_t notes_at = sizeof header + count * sizeof(Elf64_Phdr);
  uint64_t end = notes_at + notes.size();
  Elf64_Shdr extended{};  // says how many segments there are, if that does not fit into the header
  if (many) {
    header.e_shoff = end;
    header.e_shentsize = sizeof extended;
    header.e_shnum = 1;
    extended.sh_info = static_cast<Elf64_Word>(count);
    extended.sh_size = header.e_shnum;
    end += sizeof extended;
  }

  size_ = page_up(end);
  std::vector<Elf64_Phdr> headers;
  Elf64_Phdr note{};
  note.p_type = PT_NOTE;
  note.p_offset = notes_at;
  note.p_filesz = notes.size();
  note.p_align = 4;
  headers.push_back(note);
  for (Segment& segment : segments_) {
    segment.offset = size_;
    Elf64_Phdr load{};
    load.p_type = PT_LOAD;
    load.p_flags = segment.flags;
    load.p_offset = size_;
    load.p_vaddr = segment.start;
    load.p_memsz = segment.end - segment.start;
    load.p_filesz = segment.held ? load.p_memsz : 0;
    load.p_align = kPageSize;
    size_ += load.p_filesz;
    headers.push_back(load);
  }

  TRY(put(0, bytes_of(header)));
  TRY(put(header.e_phoff, {reinterpret_cast<const uint8_t*>(headers.data()), count * sizeof(Elf64_Phdr)}));
  TRY(put(notes_at, notes));
  if (many) TRY(put(header.e_shoff, bytes_of(extended)));
  if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) return errno_error("cannot write " + path_);
  return {};
}

Result<void> CoreFile::put(uint64_t offset, std::span<const uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_error("cannot write " + path_);
    offset += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

Result<void> CoreFile::write(Address address, std::span<const uint8_t> bytes) {
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), address,
                                  [](Address at, const Segment& each) { return at < each.end; });
  const Address last = address + bytes.size();
  for (; segment != segments_.end() && segment->start < last; ++segment) {
    if (!segment->held) continue;
    const Address end = std::min(last, segment->end);
    for (Address at = std::max(address, segment->start); at < end;) {
      // As many pages as are to be written, or none.
      const auto is_hole = [&](Address page) {
        return segment->sparse && end - page >= kPageSize && is_zero_page(bytes.data() + (page - address));
      };
      Address stop = at;
      while (stop < end && !is_hole(stop)) stop = std::min(end, page_down(stop) + kPageSize);
      if (stop > at) TRY(put(segment->offset + (at - segment->start), bytes.subspan(at - address, stop - at)));
      at = stop < end ? stop + kPageSize : stop;
    }
  }
  return {};
}

Result<uint64_t> CoreFile::size_on_disk() const {
  constexpr uint64_t kBlock = 512;
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return errno_error("cannot look at " + path_);
  return static_cast<uint64_t>(info.st_blocks) * kBlock;
}

}  // namespace redrive
