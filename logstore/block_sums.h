// Checksums of files that must stay plain because others open them by path: catalog.sqlite and file copies. The sums
// are in FILE.sum, beside the file: one record with a hash for every 64 KiB.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "logstore/hash.h"
#include "logstore/record_file.h"
#include "logstore/storage.h"

namespace redrive {

inline constexpr size_t kSumBlock = 64 << 10;

struct BlockSums {
  uint64_t size = 0;   // of the file
  uint64_t stamp = 0;  // identifies what the file was derived from; 0 if from nothing
  std::vector<uint64_t> blocks;
};

// Hashes a file as it passes by: every piece except the last must be kSumBlock bytes.
class BlockSummer {
 public:
  BlockSummer();
  void add(std::span<const uint8_t> block);
  void add_zeros(uint64_t blocks);  // as many pieces of kSumBlock zeros
  const BlockSums& sums() const { return sums_; }
  std::string content_name() const;  // XXH3-128 of all contents, in hex

 private:
  BlockSums sums_;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> whole_;
};

std::string sums_path(const std::string& path);
// Writes FILE.sum (not synced).
Result<void> write_sums(Storage& storage, const std::string& path, const BlockSums& sums);
Result<BlockSums> read_sums(Storage& storage, const std::string& path);
// Opens a plain file that must have this size. Status::damaged if it has not, or is missing.
Result<std::unique_ptr<File>> open_plain(Storage& storage, const std::string& path, uint64_t size);
// Returns the first difference between the file and its sums as an error.
Result<void> verify_sums(Storage& storage, const std::string& path, const BlockSums& sums);

}  // namespace redrive
