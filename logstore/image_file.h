// images.seg: of each checkpoint's image the header, and which stored page lies where. Up to format 3 each had a file
// of its own, images/U-I.img.
#pragma once

#include "logstore/record_file.h"
#include "logstore/trace.h"

namespace redrive {

// Sorts the pages and adds the image's records; nothing is written yet. Returns the first one's item.
uint64_t add_image(RecordWriter& writer, const Bytes& header, std::vector<Image::Page>& pages);
// The image that begins at that item of the file.
Result<Image> read_image(const RecordFile& file, uint64_t first_item);

}  // namespace redrive
