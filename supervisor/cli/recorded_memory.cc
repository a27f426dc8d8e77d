#include "supervisor/cli/recorded_memory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

namespace redrive {
namespace {

bool earlier(const Image::Page& page, Address address) { return page.address < address; }

class ImageMemory final : public RecordedMemory {
 public:
  ImageMemory(const Trace& trace, OpenCopies& copies, const ProcessState& process)
      : trace_(trace), copies_(copies), process_(process) {}

  // Takes the pages of the process from the image.
  Result<void> take(const UnitState& state, const Image& image) {
    for (const Image::Page& page : image.pages) {
      if (page.process == process_.process) pages_.push_back(page);
    }
    for (const UnitState::ZeroPage& page : state.zero_pages) {
      if (page.process == process_.process) zeros_.push_back(page.address);
    }
    std::sort(zeros_.begin(), zeros_.end());
    Address before = 0;
    for (const Mapping& mapping : process_.mappings) {
      if (mapping.start < before || mapping.end <= mapping.start || mapping.start % kPageSize ||
          mapping.end % kPageSize) {
        return Error{"the mappings of the image contradict each other", Status::damaged};
      }
      before = mapping.end;
    }
    const auto outside = [&](Address address) {
      const auto mapping = std::upper_bound(process_.mappings.begin(), process_.mappings.end(), address,
                                            [](Address at, const Mapping& each) { return at < each.end; });
      return address % kPageSize != 0 || mapping == process_.mappings.end() || address < mapping->start;
    };
    const bool all_inside =
        std::none_of(pages_.begin(), pages_.end(), [&](const auto& page) { return outside(page.address); }) &&
        std::none_of(zeros_.begin(), zeros_.end(), outside);
    const auto in_order = [](const auto& a, const auto& b) { return a.address < b.address; };
    if (!all_inside || !std::is_sorted(pages_.begin(), pages_.end(), in_order)) {
      return Error{"the image holds a page outside every mapping", Status::damaged};
    }
    return {};
  }

  const std::vector<Mapping>& mappings() const override { return process_.mappings; }

  Result<std::vector<PageRun>> own_pages(const Mapping& mapping) const override {
    std::vector<Address> all;
    auto page = std::lower_bound(pages_.begin(), pages_.end(), mapping.start, earlier);
    for (; page != pages_.end() && page->address < mapping.end; ++page) all.push_back(page->address);
    const auto stored = static_cast<long>(all.size());
    auto zero = std::lower_bound(zeros_.begin(), zeros_.end(), mapping.start);
    for (; zero != zeros_.end() && *zero < mapping.end; ++zero) all.push_back(*zero);
    std::inplace_merge(all.begin(), all.begin() + stored, all.end());
    std::vector<PageRun> runs;
    for (const Address address : all) {
      if (!runs.empty() && runs.back().start + runs.back().pages * kPageSize == address) {
        ++runs.back().pages;
      } else if (runs.empty() || runs.back().start + runs.back().pages * kPageSize < address) {
        runs.push_back({address, 1});
      }
    }
    return runs;
  }

  Result<void> visit_own(const Visit& visit) const override {
    TRY(trace_.read_pages(pages_, [&](std::span<const PageRef> found) { return visit_joined(found, visit); }));
    static constexpr uint8_t kZeros[kPageSize] = {};
    for (const Address address : zeros_) TRY(visit(address, kZeros));
    return {};
  }

  Result<bool> read(Address from, std::span<uint8_t> to) const override {
    const Address end = from + to.size();
    std::fill(to.begin(), to.end(), 0);
    for (Address at = from; at < end;) {
      const Mapping* const mapping = mapping_at(process_.mappings, at);
      if (!mapping) return false;
      const Address last = std::min(end, mapping->end);
      if (mapping->file) TRY(copies_.read(*mapping, at, to.subspan(at - from, last - at)));
      at = last;
    }
    const auto put = [&](Address page, const uint8_t* data) {
      const Address first = std::max(from, page), last = std::min(end, page + kPageSize);
      for (Address at = first; at < last; ++at) to[at - from] = data ? data[at - page] : 0;
    };
    for (const Address zero : zeros_) {
      if (zero < end && from < zero + kPageSize) put(zero, nullptr);
    }
    const auto first = std::lower_bound(pages_.begin(), pages_.end(), page_down(from), earlier);
    const auto last = std::lower_bound(first, pages_.end(), end, earlier);
    TRY(trace_.read_pages({first, last}, [&](std::span<const PageRef> found) -> Result<void> {
      for (const PageRef& page : found) put(page.address, page.data);
      return {};
    }));
    return true;
  }

 private:
  // Pages that are adjacent here and there become one piece.
  static Result<void> visit_joined(std::span<const PageRef> pages, const Visit& visit) {
    for (size_t first = 0; first < pages.size();) {
      size_t last = first + 1;
      while (last < pages.size() && pages[last].address == pages[last - 1].address + kPageSize &&
             pages[last].data == pages[last - 1].data + kPageSize) {
        ++last;
      }
      TRY(visit(pages[first].address, {pages[first].data, (last - first) * kPageSize}));
      first = last;
    }
    return {};
  }

  const Trace& trace_;
  OpenCopies& copies_;
  const ProcessState& process_;
  std::vector<Image::Page> pages_;  // in address order
  std::vector<Address> zeros_;      // likewise
};

class StoppedMemory final : public RecordedMemory {
 public:
  StoppedMemory(const Memory& memory, const ProcessState& process) : memory_(memory), process_(process) {}

  const std::vector<Mapping>& mappings() const override { return process_.mappings; }

  Result<std::vector<PageRun>> own_pages(const Mapping& mapping) const override {
    ASSIGN_OR_RETURN(const PageTable table, PageTable::open(memory_.pid()));
    return table.stored_pages(mapping);
  }

  Result<void> visit_own(const Visit& visit) const override {
    return visit_pages(
        memory_, process_.mappings, [](const Mapping&) { return true; },
        [&](const Mapping&, Address address, std::span<const uint8_t> pages) { return visit(address, pages); });
  }

  Result<bool> read(Address from, std::span<uint8_t> to) const override {
    return memory_.read(from, to.data(), to.size());
  }

 private:
  const Memory& memory_;
  const ProcessState& process_;
};

}  // namespace

Result<int> OpenCopies::get(uint64_t file) {
  Fd& copy = open_[file];
  if (!copy) {
    ASSIGN_OR_RETURN(const std::string path, trace_.file_path(file));
    copy = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info {};
    if (!copy || fstat(copy.get(), &info) != 0) return errno_error("cannot open " + path);
    if (!S_ISREG(info.st_mode)) return Error{path + " is not a regular file", Status::damaged};
  }
  return copy.get();
}

Result<void> OpenCopies::read(const Mapping& mapping, Address from, std::span<uint8_t> to) {
  ASSIGN_OR_RETURN(const int copy, get(mapping.file));
  for (size_t done = 0; done < to.size();) {
    const uint64_t offset = mapping.offset + (from - mapping.start) + done;
    const ssize_t got = pread(copy, to.data() + done, to.size() - done, static_cast<off_t>(offset));
    if (got < 0) return errno_error("cannot read a copy of " + mapping.name);
    if (got == 0) {
      std::fill(to.begin() + static_cast<long>(done), to.end(), 0);
      break;
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

Result<uint64_t> OpenCopies::extent(const Mapping& mapping) {
  ASSIGN_OR_RETURN(const int copy, get(mapping.file));
  struct stat info {};
  if (fstat(copy, &info) != 0) return errno_error("cannot look at a copy of " + mapping.name);
  const auto size = static_cast<uint64_t>(info.st_size);
  return std::min(mapping.length(), size > mapping.offset ? size - mapping.offset : 0);
}

Result<std::unique_ptr<RecordedMemory>> memory_in_image(const Trace& trace, OpenCopies& copies, const UnitState& state,
                                                        const Image& image, const ProcessState& process) {
  auto memory = std::make_unique<ImageMemory>(trace, copies, process);
  TRY(memory->take(state, image));
  return std::unique_ptr<RecordedMemory>(std::move(memory));
}

std::unique_ptr<RecordedMemory> memory_of_stopped(const Memory& memory, const ProcessState& process) {
  return std::make_unique<StoppedMemory>(memory, process);
}

}  // namespace redrive
