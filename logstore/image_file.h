// images.seg: the header of each checkpoint's image, and which stored page lies where in it. Up to format 3, each image
// had a file of its own, images/U-I.img.
#pragma once

#include "logstore/record_file.h"
#include "logstore/trace.h"

namespace redrive {

// Sorts the pages and adds the image's records, without writing anything yet. Returns the item number of the first
// record.
uint64_t add_image(RecordWriter& writer, const Bytes& header, std::vector<Image::Page>& pages);
// Reads the image that begins at that item of the file, and has so many pages.
Result<Image> read_image(const RecordParts& images, uint64_t first_item, uint64_t pages);

}  // namespace redrive
