#include "logstore/image_publisher.h"

#include <utility>

#include "base/check.h"
#include "logstore/image_file.h"

namespace redrive {

Result<TraceWriter::ImageStats> ImagePublisher::write(UnitId unit, IntervalIndex interval, const ReadImage& read,
                                                      bool& storage_failed) {
  const uint64_t bytes_before = pages_.bytes();
  const uint64_t pages_before = pages_.pages();
  std::vector<Image::Page> list;
  storage_failed = false;
  const AddPages add = [&](uint32_t process, Address address, std::span<const uint8_t> run) -> Result<void> {
    CHECK(run.size() % kPageSize == 0);
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
  storage_failed = true;
  if (pages_.pages()) TRY(pages_.write());
  const std::string path = temporary(files_.image(unit, interval));
  ASSIGN_OR_RETURN(const uint64_t image_size, write_image(storage_, path, unit, interval, header, list));
  written_.push_back({unit, interval, list.size(), image_size, pages_.bytes(), pages_.pages()});
  return TraceWriter::ImageStats{list.size(), pages_.pages() - pages_before,
                                 image_size + pages_.bytes() - bytes_before};
}

Result<void> ImagePublisher::publish(std::vector<std::string> unsynced) {
  if (written_.empty()) return {};
  const std::vector<ImagePublished> images = std::exchange(written_, {});
  if (pages_.exists()) unsynced.push_back(pages_.path());
  for (const auto& image : images) unsynced.push_back(temporary(files_.image(image.unit, image.interval)));
  TRY(storage_.sync(unsynced));
  for (const auto& image : images) {
    const std::string path = files_.image(image.unit, image.interval);
    TRY(storage_.rename(temporary(path), path));
  }
  TRY(storage_.sync({files_.images()}));
  for (const auto& image : images) journal_.add(image);
  return {};
}

}  // namespace redrive
