#include "supervisor/verify.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "checkpoint/address_space.h"

namespace redrive {
namespace {

// What an image says a page of one process holds.
class ExpectedPages {
 public:
  ExpectedPages(const Trace& trace, const Image& image, const UnitState& state, const ProcessState& process)
      : trace_(trace), process_(process) {
    for (const auto& page : image.pages) {
      if (page.process == process.process) stored_[page.address] = page.page_id;
    }
    for (const auto& page : state.zero_pages) {
      if (page.process == process.process) zero_.insert(page.address);
    }
  }

  const std::map<Address, uint64_t>& stored() const { return stored_; }

  Result<void> read(Address address, uint8_t (&page)[kPageSize]) {
    if (const auto it = stored_.find(address); it != stored_.end()) return trace_.read_page(it->second, page);
    std::memset(page, 0, sizeof page);
    const auto& mappings = process_.mappings;
    const auto mapping = std::upper_bound(mappings.begin(), mappings.end(), address,
                                          [](Address a, const Mapping& m) { return a < m.end; });
    const bool from_file = mapping != mappings.end() && mapping->start <= address && mapping->file;
    if (!from_file || zero_.contains(address)) return {};
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

 private:
  const Trace& trace_;
  const ProcessState& process_;
  std::map<Address, uint64_t> stored_;
  std::set<Address> zero_;
  std::map<uint64_t, Fd> files_;
};

// Takes out of a page what lies in the ranges.
void blank(uint8_t* page, Address address, const std::vector<AddressRange>& ranges) {
  for (const auto& range : ranges) {
    const Address first = std::max(range.start, address), last = std::min(range.end, address + kPageSize);
    if (first < last) std::memset(page + (first - address), 0, last - first);
  }
}

// Where two pages differ outside the ranges, if they do. `b` is scribbled on.
std::optional<Address> page_difference(Address address, uint8_t* a, uint8_t* b,
                                       const std::vector<AddressRange>& except) {
  if (std::memcmp(a, b, kPageSize) == 0) return std::nullopt;
  blank(a, address, except);
  blank(b, address, except);
  const auto differs = std::mismatch(a, a + kPageSize, b);
  if (differs.first == a + kPageSize) return std::nullopt;
  return address + static_cast<Address>(differs.first - a);
}

}  // namespace

Result<std::optional<Address>> memory_difference(const Trace& trace, const Image& image, const UnitState& state,
                                                 const ProcessState& process, const Stub& stub,
                                                 const std::vector<AddressRange>& except) {
  ExpectedPages pages(trace, image, state, process);
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid()));
  const auto wanted = [](const Mapping& m) { return m.start < kGateStart || m.start >= kGateEnd; };
  std::set<Address> seen;
  std::optional<Address> difference;
  std::optional<Error> error;
  uint8_t expected[kPageSize];
  uint8_t found[kPageSize];
  TRY(visit_pages(stub.memory(), mappings, wanted, [&](Address address, const uint8_t* page) {
    seen.insert(address);
    if (auto result = pages.read(address, expected); !result) {
      error = result.error();
      return false;
    }
    std::memcpy(found, page, sizeof found);
    difference = page_difference(address, expected, found, except);
    return !difference;
  }));
  if (error) return *error;
  if (difference) return difference;
  for (const auto& [address, id] : pages.stored()) {
    if (seen.contains(address)) continue;
    TRY(pages.read(address, expected));
    if (!stub.memory().read(address, found, sizeof found)) return std::optional<Address>(address);
    if (auto differs = page_difference(address, expected, found, except)) return differs;
  }
  return std::optional<Address>();
}

}  // namespace redrive
