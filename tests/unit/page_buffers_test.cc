// Pages that are read while a unit is stopped lie in buffers that are used again.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "checkpoint/address_space.h"
#include "supervisor/record/checkpoints/image_worker.h"
#include "tests/unit/unit_test.h"

namespace redrive::page_buffers_test {

namespace {

constexpr size_t kPages = PageBuffers::kSize / kPageSize;

Bytes numbered_pages(size_t pages, uint8_t first) {
  Bytes bytes(pages * kPageSize);
  for (size_t page = 0; page < pages; ++page) {
    std::memset(bytes.data() + page * kPageSize, first + static_cast<int>(page), kPageSize);
  }
  return bytes;
}

ptrdiff_t resident_pages(const uint8_t* buffer) {
  unsigned char pages[kPages] = {};
  REQUIRE(mincore(const_cast<uint8_t*>(buffer), PageBuffers::kSize, pages) == 0);
  return std::count_if(std::begin(pages), std::end(pages), [](unsigned char page) { return page & 1; });
}

}  // namespace

TEST_CASE("page buffers come back from any thread and are used again") {
  PageBuffers buffers;
  auto buffer = buffers.take();
  const uint8_t* const first = buffer.get();
  CHECK(resident_pages(first) == 0);
  PageBuffers::populate(buffer.get() + kPageSize, 3 * kPageSize);
  CHECK(resident_pages(first) == 3);
  CHECK(buffers.take().get() != first);
  std::thread([used = std::move(buffer)]() mutable { used.reset(); }).join();
  CHECK(buffers.take().get() == first);
}

TEST_CASE("page buffers are made before they are wanted") {
  PageBuffers buffers;
  buffers.prepare(3 * PageBuffers::kSize - 1);
  std::set<const uint8_t*> different;
  std::vector<std::shared_ptr<uint8_t>> taken;
  for (int i = 0; i < 3; ++i) {
    taken.push_back(buffers.take());
    different.insert(taken.back().get());
    CHECK(resident_pages(taken.back().get()) == kPages);
  }
  CHECK(different.size() == 3);
}

// A run that does not fit into what is left of a buffer goes on in the next.
TEST_CASE("page buffers hold an image's pages, in several runs where one buffer is full") {
  PageBuffers buffers;
  ImageJob job;
  Mapping mapping;
  mapping.start = 0x10000000;
  mapping.end = mapping.start + 4 * PageBuffers::kSize;
  const Bytes first = numbered_pages(kPages - 1, 1), second = numbered_pages(3, 7);
  const Address next = mapping.start + first.size();
  job.add(0, mapping, mapping.start, first, buffers);
  job.add(0, mapping, next, second, buffers);
  CHECK(job.bytes() == first.size() + second.size());
  REQUIRE(job.runs.size() == 3);
  CHECK(std::ranges::equal(job.runs[0].pages, first));
  CHECK(job.runs[1].address == next);
  CHECK(std::ranges::equal(job.runs[1].pages, std::span(second).first(kPageSize)));
  CHECK(job.runs[2].address == next + kPageSize);
  CHECK(std::ranges::equal(job.runs[2].pages, std::span(second).subspan(kPageSize)));
}

TEST_CASE("mappings are parsed from the text of maps, without those of the kernel") {
  const auto found =
      parse_mappings(getpid(),
                     "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a program\n"
                     "7f0000000000-7f0000002000 rw-s 00000000 00:01 42                         /dev/zero (deleted)\n"
                     "this is no mapping\n"
                     "7f0000010000-7f0000011000 ---p 00000000 00:00 0 \n"
                     "7ffff7fc1000-7ffff7fc5000 r--p 00000000 00:00 0                          [vvar]\n"
                     "7ffff7fc5000-7ffff7fc7000 r-xp 00000000 00:00 0                          [vdso]");
  REQUIRE(found.size() == 3);
  CHECK(found[0].start == 0x400000);
  CHECK(found[0].end == 0x452000);
  CHECK(found[0].protection == (PROT_READ | PROT_EXEC));
  CHECK(found[0].offset == 0x1000);
  CHECK(found[0].inode == 173521);
  CHECK(found[0].name == "/usr/bin/a program");
  CHECK_FALSE(found[0].shared);
  CHECK(found[1].shared);
  CHECK(found[1].name == "/dev/zero (deleted)");
  CHECK(found[2].name.empty());
  CHECK(found[2].protection == PROT_NONE);
}

}  // namespace redrive::page_buffers_test
