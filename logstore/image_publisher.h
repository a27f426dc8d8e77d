// Puts images into a trace: first the pages, then the image, then the journal record that announces it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "logstore/journal.h"
#include "logstore/page_store.h"
#include "logstore/record_file.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"

namespace redrive {

// For one thread at a time; others may write to the journal.
class ImagePublisher {
 public:
  ImagePublisher(Storage& storage, const TraceFiles& files, JournalWriter& journal)
      : storage_(storage),
        files_(files),
        journal_(journal),
        pages_(storage, files.pages()),
        images_(storage, files.images(), FileKind::image) {}

  // The same as TraceWriter's. `storage_failed`: whether an error comes from the storage rather than from the reader.
  Result<TraceWriter::ImageStats> write(UnitId unit, IntervalIndex interval, const ReadImage& read,
                                        bool& storage_failed);
  // Notes in the journal that the image that was written last exists, although it is not synced.
  void announce() { journal_.add(ImageWritten{written_.back()}); }
  // Makes what was written part of the trace. `unsynced`: files that must be on disk first.
  Result<void> publish(std::vector<std::string> unsynced);
  // The same, but syncs even if no image was written.
  Result<void> sync(std::vector<std::string> unsynced);
  void end_unit(UnitId unit) { note_size(unit, 0); }  // no image of the unit follows
  bool pending() const { return !written_.empty(); }
  PageStoreWriter& pages() { return pages_; }
  RecordWriter& images() { return images_; }

 private:
  void note_size(UnitId unit, size_t pages);

  Storage& storage_;
  const TraceFiles& files_;
  JournalWriter& journal_;
  PageStoreWriter pages_;
  RecordWriter images_;
  bool new_files_ = false;               // files whose names were not synced
  std::vector<ImagePublished> written_;  // not yet in the journal
  // The number of pages in the last image of those units that continue and have the most pages. The next images will
  // mostly hold the same pages again.
  std::map<UnitId, size_t> sizes_;
  size_t sizes_sum_ = 0;
};

}  // namespace redrive
