#include "checkpoint/address_space.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/brief_file.h"
#include "base/procfs.h"

namespace redrive {
namespace {

constexpr Address kKernelStart = 1ull << 63;  // [vsyscall] lies behind
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kFileOrShared = uint64_t{1} << 61;

// Parses one line of /proc/PID/maps; false if it has another form.
bool parse_line(std::string_view line, Mapping& m) {
  bool good = true;
  const auto number = [&](int base, char after) -> uint64_t {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value, base);
    const auto length = static_cast<size_t>(end - line.data());
    good = good && error == std::errc() && length < line.size() && *end == after;
    if (good) line.remove_prefix(length + 1);
    return value;
  };
  m.start = number(16, '-');
  m.end = number(16, ' ');
  const std::string_view perms = line.substr(0, 5);
  if (perms.size() < 5) return false;
  line.remove_prefix(perms.size());
  m.offset = number(16, ' ');
  const auto major_number = static_cast<unsigned>(number(16, ':'));
  const auto minor_number = static_cast<unsigned>(number(16, ' '));
  m.inode = number(10, ' ');
  if (!good) return false;
  m.protection =
      (perms[0] == 'r' ? PROT_READ : 0) | (perms[1] == 'w' ? PROT_WRITE : 0) | (perms[2] == 'x' ? PROT_EXEC : 0);
  m.shared = perms[3] == 's';
  m.device = makedev(major_number, minor_number);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  m.name = line;
  return true;
}

// Tells SysV shared memory apart that has the same number in several IPC namespaces.
void note_namespace(pid_t pid, Mapping& m) {
  if (m.shared && is_sysv_segment(m.name)) m.device |= foreign_ipc_namespace(pid) << 32;
}

std::vector<Mapping> parse_all(pid_t pid, std::string_view text) {
  std::vector<Mapping> found;
  while (!text.empty()) {
    const size_t length = std::min(text.find('\n'), text.size());
    Mapping mapping;
    if (parse_line(text.substr(0, length), mapping)) {
      note_namespace(pid, mapping);
      found.push_back(std::move(mapping));
    }
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return found;
}

Result<std::vector<Mapping>> all_mappings(pid_t pid) {
  const std::string path = proc_path(pid, "maps");
  errno = 0;
  const std::string text = read_briefly(path);
  if (text.empty() && errno != 0) return errno_error("cannot read " + path);
  return parse_all(pid, text);
}

// For kernels that cannot be asked for single mappings.
Result<std::vector<Mapping>> all_mappings_in(pid_t pid, AddressRange range) {
  ASSIGN_OR_RETURN(auto mappings, all_mappings(pid));
  std::erase_if(mappings, [&](const Mapping& mapping) { return !range.meets(mapping); });
  return mappings;
}

bool kernels_own(const Mapping& m) {
  return m.name.starts_with("[vdso") || m.name.starts_with("[vvar") || m.name == "[vsyscall]";
}

// From Linux's include/uapi/linux/fs.h.
struct MappingQuery {
  uint64_t size, query_flags, query_address;
  uint64_t start, end, flags, page_size, offset, inode;
  uint32_t device_major, device_minor;
  uint32_t name_size, build_id_size;
  uint64_t name_address, build_id_address;
};
constexpr unsigned long kQueryMapping = _IOWR('f', 17, MappingQuery);
constexpr uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8, kCoveringOrNext = 16;

Result<Fd> open_maps(pid_t pid) {
  const std::string path = proc_path(pid, "maps");
  Fd file = open_briefly(path);
  if (!file) return errno_error("cannot open " + path);
  return file;
}

// Finds one mapping, including the kernel's own; its name, which takes the kernel longest, only if that is wanted. If
// there is none, errno is ENOENT; if the kernel cannot be asked, it is another error.
std::optional<Mapping> query(int maps, Address address, uint64_t flags, bool named = true) {
  char name[PATH_MAX];
  name[0] = '\0';
  MappingQuery query{};
  query.size = sizeof query;
  query.query_flags = flags;
  query.query_address = address;
  if (named) query.name_address = reinterpret_cast<uint64_t>(name), query.name_size = sizeof name;
  if (ioctl(maps, kQueryMapping, &query) != 0) return std::nullopt;
  Mapping m;
  m.start = query.start;
  m.end = query.end;
  m.protection = (query.flags & kReadable ? PROT_READ : 0) | (query.flags & kWritable ? PROT_WRITE : 0) |
                 (query.flags & kExecutable ? PROT_EXEC : 0);
  m.shared = query.flags & kShared;
  m.offset = query.offset;
  m.device = makedev(query.device_major, query.device_minor);
  m.inode = query.inode;
  m.name = name;
  return m;
}

// ioctl(2) PAGEMAP_SCAN, Linux 6.7, as in include/uapi/linux/fs.h. It finds pages without looking at memory that has no
// page tables.
struct PageRegion {
  uint64_t start, end, categories;
};
struct PageScan {
  uint64_t size, flags, start, end, walk_end, regions, region_count, max_pages;
  uint64_t inverted, all_of, any_of, returned;
};
constexpr unsigned long kScanPages = _IOWR('f', 16, PageScan);
constexpr uint64_t kFileCategory = 1 << 2, kPresentCategory = 1 << 3, kSwappedCategory = 1 << 4,
                   kGuardCategory = 1 << 8;
constexpr Address kUserEnd = (uint64_t{1} << 47) - kPageSize;

void add_run(std::vector<PageRun>& runs, Address start, Address end) {
  if (!runs.empty() && runs.back().start + runs.back().pages * kPageSize == start) {
    runs.back().pages += (end - start) / kPageSize;
  } else {
    runs.push_back({start, (end - start) / kPageSize});
  }
}

// Written private pages; nullopt if the kernel does not support this request.
std::optional<std::vector<PageRun>> scan_pages(int pagemap, const Mapping& mapping) {
  constexpr uint64_t kHeld = kPresentCategory | kSwappedCategory;
  std::vector<PageRun> runs;
  PageRegion regions[256];
  PageScan scan{};
  scan.size = sizeof scan;
  scan.end = mapping.end;
  scan.regions = reinterpret_cast<uint64_t>(regions);
  scan.region_count = std::size(regions);
  scan.inverted = scan.all_of = kFileCategory;
  scan.any_of = scan.returned = kHeld;
  for (scan.start = mapping.start; scan.start < mapping.end; scan.start = scan.walk_end) {
    const int found = ioctl(pagemap, kScanPages, &scan);
    if (found < 0) return std::nullopt;
    for (int i = 0; i < found; ++i) add_run(runs, regions[i].start, regions[i].end);
    if (scan.walk_end <= scan.start) return std::nullopt;
  }
  return runs;
}

// The same, by reading the whole page table, 8 bytes per page.
std::vector<PageRun> read_page_table(int pagemap, const Mapping& mapping) {
  constexpr uint64_t kEntriesPerRead = 16384;
  const uint64_t total = mapping.length() / kPageSize;
  std::vector<PageRun> runs;
  std::vector<uint64_t> entries(std::min(total, kEntriesPerRead));
  for (uint64_t done = 0; done < total;) {
    const size_t want = std::min<uint64_t>(entries.size(), total - done);
    const ssize_t got = ::pread(pagemap, entries.data(), want * sizeof(uint64_t),
                                static_cast<off_t>((mapping.start / kPageSize + done) * sizeof(uint64_t)));
    if (got <= 0) break;
    for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(uint64_t); ++i) {
      const uint64_t entry = entries[i];
      if (!(entry & (kPresent | kSwapped)) || (entry & kFileOrShared)) continue;
      const Address at = mapping.start + (done + i) * kPageSize;
      add_run(runs, at, at + kPageSize);
    }
    done += static_cast<size_t>(got) / sizeof(uint64_t);
  }
  return runs;
}

}  // namespace

std::array<std::string, 2> paths_of(pid_t pid, const Mapping& mapping) {
  return {fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.start, mapping.end),
          fmt::format("/proc/{}/root{}", pid, mapping.name)};
}

Fd open_object(pid_t pid, const Mapping& mapping) {
  const auto [object, name] = paths_of(pid, mapping);
  const auto open = [&](const std::string& path, bool by_name) -> Fd {
    Fd file = open_briefly(path, O_NONBLOCK);
    struct stat info {};
    if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_ino != mapping.inode) return {};
    // Some file systems, such as overlayfs, show another device in /proc/PID/maps than stat(2) does.
    return by_name && info.st_dev != mapping.device ? Fd() : std::move(file);
  };
  Fd file = open(object, false);
  return file ? std::move(file) : open(name, true);
}

std::optional<uint64_t> object_size(pid_t pid, const Mapping& mapping) {
  const Fd object = open_object(pid, mapping);
  struct stat info {};
  if (!object || fstat(object.get(), &info) != 0) return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

std::vector<FileRange> data_ranges(int file, uint64_t start, uint64_t end) {
  std::vector<FileRange> ranges;
  for (off_t at = static_cast<off_t>(start); at < static_cast<off_t>(end);) {
    const off_t data = lseek(file, at, SEEK_DATA);
    if (data < 0) {
      // Either no data follows, or the file system cannot tell; in that case everything counts as data.
      if (errno != ENXIO) ranges.push_back({static_cast<uint64_t>(at), end});
      break;
    }
    if (data >= static_cast<off_t>(end)) break;
    const off_t hole = lseek(file, data, SEEK_HOLE);
    const uint64_t last = hole < 0 ? end : std::min(end, static_cast<uint64_t>(hole));
    ranges.push_back({static_cast<uint64_t>(data), last});
    at = static_cast<off_t>(last);
  }
  return ranges;
}

const Mapping* mapping_at(const std::vector<Mapping>& mappings, Address address) {
  const auto it = std::find_if(mappings.begin(), mappings.end(),
                               [&](const Mapping& m) { return m.start <= address && address < m.end; });
  return it == mappings.end() ? nullptr : &*it;
}

Mapping* mapping_at(std::vector<Mapping>& mappings, Address address) {
  return const_cast<Mapping*>(mapping_at(std::as_const(mappings), address));
}

Result<Mapping> mapping_of(pid_t pid, Address address) {
  ASSIGN_OR_RETURN(const Fd maps, open_maps(pid));
  if (auto found = query(maps.get(), address, 0)) {
    note_namespace(pid, *found);
    if (!kernels_own(*found)) return *found;
  } else if (errno != ENOENT) {
    ASSIGN_OR_RETURN(const auto mappings, read_mappings(pid));
    if (const Mapping* mapping = mapping_at(mappings, address)) return *mapping;
  }
  return Error{"nothing is mapped there"};
}

Result<std::vector<Mapping>> code_mappings(pid_t pid) {
  ASSIGN_OR_RETURN(const Fd maps, open_maps(pid));
  std::vector<Mapping> code;
  Address from = 0;
  while (auto found = query(maps.get(), from, kExecutable | kCoveringOrNext, false)) {
    from = found->end;
    if (found->inode == 0) found = query(maps.get(), found->start, 0);  // is it the kernel's?
    if (found && !kernels_own(*found)) code.push_back(std::move(*found));
  }
  if (errno == ENOENT) return code;
  ASSIGN_OR_RETURN(code, read_mappings(pid));
  std::erase_if(code, [](const Mapping& m) { return !(m.protection & PROT_EXEC); });
  return code;
}

std::vector<Mapping> parse_mappings(pid_t pid, std::string_view maps) {
  auto mappings = parse_all(pid, maps);
  std::erase_if(mappings, kernels_own);
  return mappings;
}

Result<std::vector<Mapping>> read_mappings(pid_t pid) {
  ASSIGN_OR_RETURN(auto mappings, all_mappings(pid));
  std::erase_if(mappings, kernels_own);
  return mappings;
}

Result<std::vector<Mapping>> mappings_in(pid_t pid, AddressRange range) {
  ASSIGN_OR_RETURN(const Fd maps, open_maps(pid));
  std::vector<Mapping> found;
  for (Address from = range.start; from < range.end; from = found.back().end) {
    auto next = query(maps.get(), from, kCoveringOrNext, false);
    if (!next && errno != ENOENT) return all_mappings_in(pid, range);
    if (!next || next->start >= range.end) break;
    found.push_back(std::move(*next));
  }
  return found;
}

Result<std::vector<AddressRange>> mapped_ranges(pid_t pid) {
  ASSIGN_OR_RETURN(const auto mappings, mappings_in(pid, {0, kKernelStart}));
  return ranges_of(mappings);
}

Result<std::optional<Mapping>> mapped_from(pid_t pid, Address address) {
  ASSIGN_OR_RETURN(const Fd maps, open_maps(pid));
  auto found = query(maps.get(), address, kCoveringOrNext, false);
  if (found || errno == ENOENT) return found;
  ASSIGN_OR_RETURN(auto mappings, all_mappings_in(pid, {address, kKernelStart}));
  return mappings.empty() ? std::optional<Mapping>() : std::move(mappings.front());
}

std::vector<AddressRange> ranges_of(const std::vector<Mapping>& mappings) {
  std::vector<AddressRange> ranges;
  for (const Mapping& mapping : mappings) ranges.push_back({mapping.start, mapping.end});
  return ranges;
}

Result<std::vector<FlaggedMapping>> flagged_mappings(pid_t pid) {
  constexpr std::string_view kFlags = "VmFlags:";
  const std::string path = proc_path(pid, "smaps");
  std::istringstream file(read_briefly(path));
  if (file.view().empty()) return errno_error("cannot open " + path);
  std::vector<FlaggedMapping> found;
  Mapping mapping;
  for (std::string line; std::getline(file, line);) {
    if (Mapping next; parse_line(line, next)) {
      note_namespace(pid, next);
      mapping = next;
    }
    if (!line.starts_with(kFlags) || kernels_own(mapping)) continue;
    found.push_back({mapping, line.substr(kFlags.size()) + " "});
  }
  return found;
}

Result<void> note_flags(pid_t pid, std::vector<Mapping>& mappings) {
  ASSIGN_OR_RETURN(const auto flagged, flagged_mappings(pid));
  auto next = flagged.begin();
  for (auto& mapping : mappings) {
    next = std::find_if(next, flagged.end(), [&](const auto& each) { return each.mapping.start >= mapping.start; });
    if (next == flagged.end()) break;
    if (next->mapping.start != mapping.start) continue;
    if (next->is("gd")) mapping.name = "[stack]";
    if (next->is("dc")) mapping.fork_advice |= uint64_t{1} << MADV_DONTFORK;
    if (next->is("wf")) mapping.fork_advice |= uint64_t{1} << MADV_WIPEONFORK;
  }
  return {};
}

bool has_guard_pages(pid_t pid) {
  const Fd table = open_briefly(proc_path(pid, "pagemap"));
  PageRegion first{};
  PageScan scan{};
  scan.size = sizeof scan;
  scan.end = kUserEnd;
  scan.regions = reinterpret_cast<uint64_t>(&first);
  scan.region_count = scan.max_pages = 1;
  scan.all_of = scan.returned = kGuardCategory;
  return ioctl(table.get(), kScanPages, &scan) > 0;
}

Address vdso_address(pid_t pid) {
  const auto is_vdso = [](const Mapping& mapping) { return mapping.name == "[vdso]"; };
  // Where it was at first.
  const std::string auxiliary = read_briefly(proc_path(pid, "auxv"));
  uint64_t entry[2] = {};
  for (size_t at = 0; at + sizeof entry <= auxiliary.size(); at += sizeof entry) {
    std::memcpy(entry, auxiliary.data() + at, sizeof entry);
    const auto maps = entry[0] == AT_SYSINFO_EHDR ? open_maps(pid) : Error{""};
    const auto found = maps ? query(maps->get(), entry[1], 0) : std::nullopt;
    if (found && is_vdso(*found)) return found->start;
  }
  const auto mappings = all_mappings(pid);
  if (!mappings) return 0;
  const auto found = std::find_if(mappings->begin(), mappings->end(), is_vdso);
  return found == mappings->end() ? 0 : found->start;
}

uint64_t private_bytes(pid_t pid) {
  std::istringstream file(read_briefly(proc_path(pid, "statm")));
  uint64_t size = 0, resident = 0, shared = 0;
  if (!(file >> size >> resident >> shared)) return 0;
  return (resident - std::min(shared, resident)) * kPageSize;
}

std::vector<PageRun> private_pages(pid_t pid) {
  const Fd table = open_briefly(proc_path(pid, "pagemap"));
  Mapping all;
  all.end = kUserEnd;
  if (auto runs = scan_pages(table.get(), all)) return std::move(*runs);
  std::vector<PageRun> runs;
  const auto mappings = read_mappings(pid);
  for (size_t i = 0; mappings && i < mappings->size(); ++i) {
    if ((*mappings)[i].shared) continue;
    const auto more = read_page_table(table.get(), (*mappings)[i]);
    runs.insert(runs.end(), more.begin(), more.end());
  }
  return runs;
}

Result<PageTable> PageTable::open(pid_t pid) {
  const std::string path = proc_path(pid, "pagemap");
  Fd fd = open_briefly(path);
  if (!fd) return errno_error("cannot open " + path);
  return PageTable(pid, std::move(fd));
}

std::vector<PageRun> PageTable::stored_pages(const Mapping& mapping) const {
  if (!mapping.shared) {
    if (auto found = scan_pages(fd_.get(), mapping)) return *found;
    return read_page_table(fd_.get(), mapping);
  }
  // Another process may have written shared pages that this one has never touched, so this one's page table is not
  // enough. Reading pages that the object does not hold would create them.
  const Fd object = open_object(pid_, mapping);
  if (!object) return {{mapping.start, mapping.length() / kPageSize}};
  std::vector<PageRun> runs;
  for (const FileRange& range : data_ranges(object.get(), mapping.offset, mapping.offset + mapping.length())) {
    const uint64_t first = range.start / kPageSize * kPageSize;
    const uint64_t last = (range.end + kPageSize - 1) / kPageSize * kPageSize;
    add_run(runs, mapping.start + (first - mapping.offset), mapping.start + (last - mapping.offset));
  }
  return runs;
}

Result<void> read_runs(const Memory& memory, const Mapping& mapping, const std::vector<PageRun>& runs,
                       const VisitRun& visit) {
  constexpr uint64_t kPagesPerRead = 256;
  Bytes buffer;
  for (const auto& run : runs) {
    for (uint64_t done = 0; done < run.pages;) {
      const uint64_t count = std::min(kPagesPerRead, run.pages - done);
      const Address at = run.start + done * kPageSize;
      buffer.resize(count * kPageSize);
      const size_t got = memory.read_some(at, buffer.data(), buffer.size()) / kPageSize;
      if (got > 0) TRY(visit(mapping, at, std::span(buffer).first(got * kPageSize)));
      done += got < count ? got + 1 : count;  // skip the page that could not be read
    }
  }
  return {};
}

Result<void> visit_pages(const Memory& memory, const std::vector<Mapping>& mappings,
                         const std::function<bool(const Mapping&)>& wanted, const VisitRun& visit) {
  ASSIGN_OR_RETURN(const PageTable table, PageTable::open(memory.pid()));
  for (const auto& mapping : mappings) {
    if (wanted(mapping)) TRY(read_runs(memory, mapping, table.stored_pages(mapping), visit));
  }
  return {};
}

}  // namespace redrive
