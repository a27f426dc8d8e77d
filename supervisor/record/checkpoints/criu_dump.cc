#include "supervisor/record/checkpoints/criu_dump.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/page.h"
#include "checkpoint/criu_files.h"
#include "checkpoint/criu_images.pb.h"

namespace redrive {
namespace {

constexpr uint64_t kMostAtOnce = 1 << 20;

Result<std::vector<std::string>> names_in(const Fd& directory) {
  const int again = openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(again < 0 ? nullptr : fdopendir(again), closedir);
  if (!list) return errno_error("cannot read CRIU's images");
  std::vector<std::string> names;
  while (const dirent* entry = readdir(list.get())) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> content_of(const Fd& directory, const std::string& name) {
  const Fd file(openat(directory.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) return errno_error("cannot read CRIU's image " + name);
  std::string content(static_cast<size_t>(info.st_size), '\0');
  if (pread(file.get(), content.data(), content.size(), 0) == info.st_size) return content;
  return Error{fmt::format("CRIU's image {} cannot be read", name)};
}

Error cut_short(const std::string& name) { return Error{fmt::format("CRIU's image {} is cut short", name)}; }

// Whether it is the image of a process of which there is one for each, such as "mm-17.img".
bool is_of_process(const std::string& name, const std::string& kind) {
  return name.size() > kind.size() + 1 && name.starts_with(kind + "-") && std::isdigit(name[kind.size() + 1]);
}

}  // namespace

Result<CriuDump> CriuDump::read(const Fd& directory) {
  ASSIGN_OR_RETURN(const auto names, names_in(directory));
  CriuDump dump;
  for (const std::string& name : names) {
    const bool image = name.ends_with(".img");
    if (!image || name.starts_with("pages-") || name.starts_with("pagemap-")) continue;
    ASSIGN_OR_RETURN(std::string content, content_of(directory, name));
    if (is_of_process(name, "mm")) TRY(dump.read_memory(content));
    dump.files_.push_back({name, std::move(content)});
  }
  const auto pagemap =
      std::find_if(names.begin(), names.end(), [](const auto& name) { return is_of_process(name, "pagemap"); });
  if (pagemap == names.end() || dump.areas_.empty()) return Error{"CRIU has dumped no memory"};
  ASSIGN_OR_RETURN(const std::string content, content_of(directory, *pagemap));
  ASSIGN_OR_RETURN(CriuFileReader messages, CriuFileReader::open(content, CriuFile::pagemap));
  criu::pagemap_head head;
  if (!messages.next(head)) return cut_short(*pagemap);
  uint64_t count = 0;
  while (!messages.at_end()) {
    criu::pagemap_entry entry;
    if (!messages.next(entry)) return cut_short(*pagemap);
    if (!(entry.flags() & criu_value::kPagePresent)) return Error{"CRIU has left out pages"};
    dump.runs_.push_back({entry.vaddr(), entry.nr_pages()});
    count += entry.nr_pages();
  }
  if (count == 0) return dump;
  const Fd pages(openat(directory.get(), fmt::format("pages-{}.img", head.pages_id()).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!pages || fstat(pages.get(), &info) != 0) return errno_error("cannot read CRIU's pages");
  const auto size = static_cast<size_t>(info.st_size);
  if (size != count * kPageSize) return cut_short("pages");
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, pages.get(), 0);
  if (mapped == MAP_FAILED) return errno_error("cannot map CRIU's pages");
  dump.mapped_ = {static_cast<const uint8_t*>(mapped),
                  [size](const uint8_t* first) { munmap(const_cast<uint8_t*>(first), size); }};
  dump.pages_ = {dump.mapped_.get(), size};
  return dump;
}

Result<void> CriuDump::read_memory(const std::string& content) {
  ASSIGN_OR_RETURN(CriuFileReader messages, CriuFileReader::open(content, CriuFile::mm));
  criu::mm_entry memory;
  if (!messages.next(memory)) return cut_short("mm");
  for (const auto& vma : memory.vmas()) {
    areas_.push_back({{vma.start(), vma.end()}, static_cast<int>(vma.prot()), (vma.flags() & MAP_TYPE) == MAP_PRIVATE});
  }
  return {};
}

Result<void> CriuDump::expect_memory(const std::vector<Mapping>& mappings) const {
  for (const Mapping& mapping : mappings) {
    if (mapping.shared_object) continue;
    Address address = mapping.start;
    while (address < mapping.end) {
      const auto area = std::find_if(areas_.begin(), areas_.end(), [&](const Area& each) {
        return each.range.start <= address && address < each.range.end;
      });
      if (area == areas_.end() || !area->is_private || area->protection != mapping.protection) {
        return Error{fmt::format("CRIU has not found the memory at {:#x} that was there", address)};
      }
      address = area->range.end;
    }
  }
  return {};
}

Result<void> CriuDump::visit_pages(const std::vector<Mapping>& mappings, const VisitRun& visit) const {
  auto mapping = mappings.begin();
  uint64_t before = 0;  // bytes of pages_ that earlier runs have
  for (const PageRun& run : runs_) {
    const Address run_end = run.start + run.pages * kPageSize;
    Address address = run.start;
    while (address < run_end) {
      while (mapping != mappings.end() && mapping->end <= address) ++mapping;
      if (mapping == mappings.end()) return {};
      if (mapping->start > address) {
        address = std::min(mapping->start, run_end);
        continue;
      }
      const uint64_t size = std::min({run_end - address, mapping->end - address, kMostAtOnce});
      if (!mapping->shared_object) {
        TRY(visit(*mapping, address, pages_.subspan(before + (address - run.start), size)));
      }
      address += size;
    }
    before += run.pages * kPageSize;
  }
  return {};
}

}  // namespace redrive
