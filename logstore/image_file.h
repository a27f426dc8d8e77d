// images/U-I.img: the header of one checkpoint's image and which stored page lies where. Published whole.
#pragma once

#include "logstore/record_file.h"
#include "logstore/trace.h"

namespace redrive {

// Sorts the pages and writes the file (not synced). Returns its size.
Result<uint64_t> write_image(Storage& storage, const std::string& path, UnitId unit, IntervalIndex interval,
                             const Bytes& header, std::vector<Image::Page>& pages);
// `size`: what the journal says the file has.
Result<Image> read_image(Storage& storage, const std::string& path, UnitId unit, IntervalIndex interval, uint64_t size);

}  // namespace redrive
