// What CRIU has dumped of one process: a directory of images, of which an image of ours is made.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "checkpoint/unit_state.h"

namespace redrive {

class CriuDump {
 public:
  // Fails if anything is missing in it, or contradicts itself.
  static Result<CriuDump> read(const Fd& directory);

  // Fails unless the process had this private memory, with these protections.
  Result<void> expect_memory(const std::vector<Mapping>& mappings) const;
  // Visits the pages in private memory of these mappings, in address order, as visit_pages() does.
  Result<void> visit_pages(const std::vector<Mapping>& mappings, const VisitRun& visit) const;
  // All images without pages, in the order of their names.
  std::vector<ProcessState::ImageFile> take_files() { return std::move(files_); }

 private:
  struct Area {
    AddressRange range;
    int protection;
    bool is_private;
  };

  Result<void> read_memory(const std::string& content);

  std::vector<Area> areas_;
  std::vector<PageRun> runs_;  // in the order of their pages
  std::shared_ptr<const uint8_t> mapped_;
  std::span<const uint8_t> pages_;
  std::vector<ProcessState::ImageFile> files_;
};

}  // namespace redrive
