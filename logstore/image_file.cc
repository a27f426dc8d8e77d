#include "logstore/image_file.h"

#include <algorithm>
#include <tuple>

namespace redrive {
namespace {

constexpr size_t kPagesPerList = 64 << 10;
constexpr int kListLevel = 1;

bool before(const Image::Page& a, const Image::Page& b) {
  return std::tie(a.process, a.address) < std::tie(b.process, b.address);
}

// The most likely next page: the one that follows, in memory and in the store. Only differences from it are written.
Image::Page expected_after(const Image::Page& page) {
  return {page.process, page.address + kPageSize, page.page_id + 1};
}

void encode_page(const Image::Page& page, Image::Page& expected, Encoder& out) {
  out.u(page.process - expected.process);
  out.s(static_cast<int64_t>(page.address - expected.address));
  out.s(static_cast<int64_t>(page.page_id - expected.page_id));
  expected = expected_after(page);
}

Image::Page decode_page(Decoder& in, Image::Page& expected) {
  Image::Page page{};
  const uint64_t process = in.u() + expected.process;
  if (process > UINT32_MAX) in.fail();
  page.process = static_cast<uint32_t>(process);
  page.address = expected.address + static_cast<uint64_t>(in.s());
  page.page_id = expected.page_id + static_cast<uint64_t>(in.s());
  expected = expected_after(page);
  return page;
}

}  // namespace

uint64_t add_image(RecordWriter& writer, const Bytes& header, std::vector<Image::Page>& pages) {
  if (!std::is_sorted(pages.begin(), pages.end(), before)) std::sort(pages.begin(), pages.end(), before);
  const uint64_t first_item = writer.items();
  Compressor compressor(kListLevel);
  writer.add(RecordType::image_header, header, 1, &compressor);
  for (size_t first = 0; first < pages.size(); first += kPagesPerList) {
    const size_t count = std::min(kPagesPerList, pages.size() - first);
    Encoder out;
    Image::Page expected{};
    for (size_t i = 0; i < count; i++) encode_page(pages[first + i], expected, out);
    writer.add(RecordType::image_pages, out.data(), static_cast<uint32_t>(count), &compressor);
  }
  return first_item;
}

Result<Image> read_image(const RecordParts& images, uint64_t first_item, uint64_t pages) {
  const RecordFile& file = images.file();
  ASSIGN_OR_RETURN(const auto records, images.from(first_item));
  if (records.empty()) return damage(file.path(), file.size_on_disk(), "an image is missing");
  const RecordHeader& header = records.front();
  if (header.type != RecordType::image_header || header.first_item != first_item) {
    return damage(file.path(), header.offset, "no image begins here");
  }
  Image image;
  ASSIGN_OR_RETURN(image.header, file.payload(header));
  for (auto record = std::next(records.begin()); record != records.end() && record->type == RecordType::image_pages;
       ++record) {
    const size_t had = image.pages.size();
    if (record->items > pages - had) return damage(file.path(), record->offset, "more pages than the journal says");
    ASSIGN_OR_RETURN(const Bytes payload, file.payload(*record));
    Decoder in(payload);
    Image::Page expected{};
    for (uint32_t i = 0; i < record->items && in.ok(); i++) image.pages.push_back(decode_page(in, expected));
    if (!in.ok() || !in.at_end()) return damage(file.path(), record->offset, "list of pages cannot be decoded");
    // Before the next list is read: a packed list of 2 KB can be one of millions of pages.
    const auto first = image.pages.begin() + static_cast<ptrdiff_t>(had > 0 ? had - 1 : 0);
    if (!std::is_sorted(first, image.pages.end(), before)) {
      return damage(file.path(), record->offset, "pages are not in order");
    }
  }
  return image;
}

}  // namespace redrive
