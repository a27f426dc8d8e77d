#include "supervisor/replay/verify.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "checkpoint/address_space.h"

namespace redrive {
namespace {

// Zeroes what lies in the ranges in a page.
void blank(uint8_t* page, Address address, const std::vector<AddressRange>& ranges) {
  for (const auto& range : ranges) {
    const Address first = std::max(range.start, address), last = std::min(range.end, address + kPageSize);
    if (first < last) std::memset(page + (first - address), 0, last - first);
  }
}

// The memory of a re-driven process compared with what an image says of it.
class MemoryComparison {
 public:
  MemoryComparison(const Trace& trace, const ProcessState& process, const Stub& stub,
                   const std::vector<AddressRange>& except)
      : trace_(trace), process_(process), stub_(stub), except_(except) {}

  // Compares with the pages that the image holds.
  Result<void> stored(const std::vector<Image::Page>& pages) {
    constexpr size_t kAtOnce = 256;  // a page that the program holds many times comes that often
    return trace_.read_pages(pages, [&](std::span<const PageRef> expected) -> Result<void> {
      for (; !expected.empty(); expected = expected.subspan(std::min(kAtOnce, expected.size()))) {
        stored(expected.first(std::min(kAtOnce, expected.size())));
      }
      return {};
    });
  }

  // Compares what the process holds apart from these with zeros and files. `zero`: pages of file mappings that are
  // zero.
  Result<void> others(const std::vector<Image::Page>& stored, const std::set<Address>& zero) {
    ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub_.pid()));
    ASSIGN_OR_RETURN(const PageTable table, PageTable::open(stub_.pid()));
    for (const auto& mapping : mappings) {
      if (mapping.start >= kGateStart && mapping.start < kGateEnd) continue;
      if (mapping.shared && shows_copy(mapping.start)) continue;
      TRY(read_runs(stub_.memory(), mapping, without(table.stored_pages(mapping), stored),
                    [&](const Mapping&, Address address, std::span<const uint8_t> pages) -> Result<void> {
                      for (size_t at = 0; at < pages.size(); at += kPageSize) {
                        uint8_t expected[kPageSize] = {};
                        if (!zero.contains(address + at)) TRY(read_file(address + at, expected));
                        compare(address + at, expected, pages.data() + at);
                      }
                      return {};
                    }));
    }
    return {};
  }

  std::optional<Address> first_difference() const { return difference_; }

 private:
  void stored(std::span<const PageRef> expected) {
    found_.resize(expected.size() * kPageSize);
    pieces_.clear();
    for (size_t i = 0; i < expected.size(); ++i) {
      pieces_.push_back({expected[i].address, found_.data() + i * kPageSize, kPageSize});
    }
    const bool all = stub_.memory().read(pieces_);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!all && !stub_.memory().read(pieces_[i].address, pieces_[i].data, kPageSize)) {
        note(expected[i].address);
      } else {
        compare(expected[i].address, expected[i].data, pieces_[i].data);
      }
    }
  }
  // The pages of the runs that are not in the list; both ascend.
  static std::vector<PageRun> without(const std::vector<PageRun>& runs, const std::vector<Image::Page>& pages) {
    std::vector<PageRun> rest;
    for (const auto& run : runs) {
      const Address end = run.start + run.pages * kPageSize;
      Address at = run.start;
      auto page = std::lower_bound(pages.begin(), pages.end(), at,
                                   [](const Image::Page& p, Address address) { return p.address < address; });
      for (; page != pages.end() && page->address < end; ++page) {
        if (page->address > at) rest.push_back({at, (page->address - at) / kPageSize});
        at = page->address + kPageSize;
      }
      if (at < end) rest.push_back({at, (end - at) / kPageSize});
    }
    return rest;
  }

  // Whether a shared mapping shows a file copy there that no process can change.
  bool shows_copy(Address address) const {
    const Mapping* const mapping = mapping_at(process_.mappings, address);
    return mapping && mapping->file && mapping->shared_object;
  }

  // What the image's mapping of a file holds there; leaves the page as it is where no file is mapped.
  Result<void> read_file(Address address, uint8_t (&page)[kPageSize]) {
    const auto& mappings = process_.mappings;
    const auto mapping = std::upper_bound(mappings.begin(), mappings.end(), address,
                                          [](Address a, const Mapping& m) { return a < m.end; });
    if (mapping == mappings.end() || mapping->start > address || !mapping->file) return {};
    Fd& fd = files_[mapping->file];
    if (!fd) {
      ASSIGN_OR_RETURN(const std::string path, trace_.file_path(mapping->file));
      fd = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd) return errno_error("cannot open " + path);
    }
    const auto offset = static_cast<off_t>(mapping->offset + (address - mapping->start));
    if (pread(fd.get(), page, sizeof page, offset) < 0) return errno_error("cannot read a file of the trace");
    return {};
  }

  void compare(Address address, const uint8_t* expected, const uint8_t* found) {
    if (std::memcmp(expected, found, kPageSize) == 0) return;
    uint8_t a[kPageSize], b[kPageSize];
    std::memcpy(a, expected, sizeof a);
    std::memcpy(b, found, sizeof b);
    blank(a, address, except_);
    blank(b, address, except_);
    const auto differs = std::mismatch(a, a + kPageSize, b);
    if (differs.first != a + kPageSize) note(address + static_cast<Address>(differs.first - a));
  }

  void note(Address address) { difference_ = std::min(address, difference_.value_or(address)); }

  const Trace& trace_;
  const ProcessState& process_;
  const Stub& stub_;
  const std::vector<AddressRange>& except_;
  std::map<uint64_t, Fd> files_;
  std::vector<MemoryPiece> pieces_;
  Bytes found_;
  std::optional<Address> difference_;
};

}  // namespace

Result<std::optional<Address>> memory_difference(const Trace& trace, const Image& image, const UnitState& state,
                                                 const ProcessState& process, const Stub& stub,
                                                 const std::vector<AddressRange>& except) {
  std::vector<Image::Page> stored;
  std::copy_if(image.pages.begin(), image.pages.end(), std::back_inserter(stored),
               [&](const Image::Page& page) { return page.process == process.process; });
  std::set<Address> zero;
  for (const auto& page : state.zero_pages) {
    if (page.process == process.process) zero.insert(page.address);
  }
  MemoryComparison comparison(trace, process, stub, except);
  TRY(comparison.stored(stored));
  TRY(comparison.others(stored, zero));
  return comparison.first_difference();
}

}  // namespace redrive
