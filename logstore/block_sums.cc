#include "logstore/block_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"

namespace redrive {
namespace {

// A block of a hole.
const Bytes& zeros() {
  static const Bytes kZeros(kSumBlock);
  return kZeros;
}

uint64_t sum_of_zeros() {
  static const uint64_t kSum = hash64(zeros());
  return kSum;
}

}  // namespace

BlockSummer::BlockSummer() : whole_(XXH3_createState(), XXH3_freeState) {
  ASSERT(whole_ != nullptr);
  XXH3_128bits_reset(whole_.get());
}

void BlockSummer::add(std::span<const uint8_t> block) {
  ASSERT(block.size() <= kSumBlock);
  ASSERT(sums_.size % kSumBlock == 0);
  sums_.blocks.push_back(hash64(block));
  sums_.size += block.size();
  XXH3_128bits_update(whole_.get(), block.data(), block.size());
}

void BlockSummer::add_zeros(uint64_t blocks) {
  ASSERT(sums_.size % kSumBlock == 0);
  sums_.blocks.insert(sums_.blocks.end(), blocks, sum_of_zeros());
  sums_.size += blocks * kSumBlock;
  for (uint64_t i = 0; i < blocks; ++i) XXH3_128bits_update(whole_.get(), zeros().data(), kSumBlock);
}

std::string BlockSummer::content_name() const { return hex(XXH3_128bits_digest(whole_.get())); }

std::string sums_path(const std::string& path) { return path + ".sum"; }

Result<void> write_sums(Storage& storage, const std::string& path, const BlockSums& sums) {
  Encoder out;
  out.u(sums.size);
  out.fixed64(sums.stamp);
  for (const uint64_t block : sums.blocks) out.fixed64(block);
  RecordWriter writer(storage, sums_path(path), FileKind::sums);
  writer.add(RecordType::block_sums, out.data());
  return writer.write();
}

Result<BlockSums> read_sums(Storage& storage, const std::string& path) {
  const std::string sums_file = sums_path(path);
  ASSIGN_OR_RETURN(const auto file, RecordFile::open(storage, sums_file, FileKind::sums, 0, 0, Tail::whole));
  if (file->damaged()) return *file->damaged();
  if (file->records().size() != 1 || file->records()[0].type != RecordType::block_sums) {
    return damage(sums_file, kPreambleSize, "not one record of block sums");
  }
  ASSIGN_OR_RETURN(const Bytes payload, file->payload(file->records()[0]));
  Decoder in(payload);
  BlockSums sums;
  sums.size = in.u();
  sums.stamp = in.fixed64();
  const uint64_t count = sums.size / kSumBlock + (sums.size % kSumBlock != 0);
  const size_t left = in.left();
  if (!in.ok() || left % sizeof(uint64_t) != 0 || left / sizeof(uint64_t) != count) {
    return damage(sums_file, kPreambleSize, "block sums do not fit the file's size");
  }
  sums.blocks.reserve(count);
  for (uint64_t i = 0; i < count; i++) sums.blocks.push_back(in.fixed64());
  return sums;
}

Result<std::unique_ptr<File>> open_plain(Storage& storage, const std::string& path, uint64_t size) {
  if (!storage.exists(path)) return missing(storage, path);
  ASSIGN_OR_RETURN(auto file, storage.open(path));
  if (file->size() != size) {
    return damage(path, std::min(file->size(), size),
                  fmt::format("file has {} bytes, {} expected", file->size(), size));
  }
  return file;
}

Result<void> verify_sums(Storage& storage, const std::string& path, const BlockSums& sums) {
  ASSIGN_OR_RETURN(const auto file, open_plain(storage, path, sums.size));
  Bytes block(kSumBlock);
  uint64_t data = 0;  // there is none up to here, from the block on
  const auto sum_of = [&](uint64_t offset) -> Result<uint64_t> {
    if (data <= offset) data = file->next_data(offset);
    if (data >= offset + kSumBlock) return sum_of_zeros();
    ASSIGN_OR_RETURN(const size_t n, file->read(offset, block));
    return hash64(std::span(block).first(n));
  };
  for (size_t i = 0; i < sums.blocks.size(); i++) {
    const uint64_t offset = i * kSumBlock;
    ASSIGN_OR_RETURN(const uint64_t sum, sum_of(offset));
    if (sum != sums.blocks[i]) {
      return damage(path, offset, "block of 64 KiB does not match its checksum");
    }
  }
  return {};
}

}  // namespace redrive
