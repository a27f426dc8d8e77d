// Puts images into a trace: pages first, then the image, then the journal's word that it is there.
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

// Of one thread at a time; the journal may be written by others.
class ImagePublisher {
 public:
  ImagePublisher(Storage& storage, const TraceFiles& files, JournalWriter& journal)
      : storage_(storage),
        files_(files),
        journal_(journal),
        pages_(storage, files.pages()),
        images_(storage, files.images(), FileKind::image) {}

  // As TraceWriter's. `storage_failed`: whether an error is not the reader's.
  Result<TraceWriter::ImageStats> write(UnitId unit, IntervalIndex interval, const ReadImage& read,
                                        bool& storage_failed);
  // Has the journal say of the image that was written last that it is there, although it is not synced.
  void announce() { journal_.add(ImageWritten{written_.back()}); }
  // What was written becomes part of the trace. `unsynced`: files that must be on disk before.
  Result<void> publish(std::vector<std::string> unsynced);
  // The same, but syncs if no image was written as well.
  Result<void> sync(std::vector<std::string> unsynced);
  void end_unit(UnitId unit) { note_size(unit, 0); }  // no image of it follows
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
  bool new_files_ = false;               // whose names were not synced
  std::vector<ImagePublished> written_;  // not yet in the journal
  // Pages of the units' last images, of those that go on and have most: what the next images will hold again, mostly.
  std::map<UnitId, size_t> sizes_;
  size_t sizes_sum_ = 0;
};

}  // namespace redrive
