#include "logstore/image_publisher.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "logstore/image_file.h"

namespace redrive {

Result<TraceWriter::ImageStats> ImagePublisher::write(UnitId unit, IntervalIndex interval, const ReadImage& read,
                                                      bool& storage_failed) {
  const uint64_t bytes_before = pages_.bytes();
  const uint64_t pages_before = pages_.pages();
  std::vector<Image::Page> list;
  storage_failed = false;
  const AddPages add = [&](uint32_t process, Address address, std::span<const uint8_t> run) -> Result<void> {
    ASSERT(run.size() % kPageSize == 0);
    pages_.expect(2 * (sizes_sum_ + list.size() + run.size() / kPageSize));
    for (size_t at = 0; at < run.size(); at += kPageSize) {
      const uint8_t* page = run.data() + at;
      if (is_zero_page(page)) continue;
      const auto id = pages_.add(page);
      storage_failed = !id;
      if (!id) return id.error();
      list.push_back({process, address + at, *id});
    }
    return {};
  };
  ASSIGN_OR_RETURN(const Bytes header, read(add));
  note_size(unit, list.size());
  storage_failed = true;
  new_files_ |= !pages_.exists() || !images_.exists();
  if (pages_.pages()) TRY(pages_.write());
  const uint64_t images_before = images_.written();
  const uint64_t first_item = add_image(images_, header, list);
  TRY(images_.write());
  const uint64_t image_size = images_.written() - images_before;
  written_.push_back(
      {unit, interval, list.size(), images_.written(), pages_.bytes(), pages_.pages(), first_item, false});
  return TraceWriter::ImageStats{list.size(), pages_.pages() - pages_before,
                                 image_size + pages_.bytes() - bytes_before};
}

void ImagePublisher::note_size(UnitId unit, size_t pages) {
  constexpr size_t kUnits = 64;
  if (const auto former = sizes_.extract(unit)) sizes_sum_ -= former.mapped();
  if (pages == 0) return;
  sizes_[unit] = pages;
  sizes_sum_ += pages;
  if (sizes_.size() <= kUnits) return;
  const auto least =
      std::min_element(sizes_.begin(), sizes_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  sizes_sum_ -= least->second;
  sizes_.erase(least);
}

Result<void> ImagePublisher::publish(std::vector<std::string> unsynced) {
  return written_.empty() ? Result<void>() : sync(std::move(unsynced));
}

Result<void> ImagePublisher::sync(std::vector<std::string> unsynced) {
  const std::vector<ImagePublished> images = std::exchange(written_, {});
  if (pages_.exists()) unsynced.push_back(pages_.path());
  if (images_.exists()) unsynced.push_back(images_.path());
  if (std::exchange(new_files_, false)) unsynced.push_back(files_.directory);
  TRY(storage_.sync(unsynced));
  for (const auto& image : images) journal_.add(image);
  return {};
}

}  // namespace redrive
