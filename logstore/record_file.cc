#include "logstore/record_file.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/assert.h"
#include "logstore/hash.h"
#include "logstore/trace_files.h"

namespace redrive {
namespace {

constexpr char kMagic[] = "redrive";  // the preamble's first seven bytes
constexpr size_t kMinPacked = 64;     // smaller payloads are not worth packing
constexpr uint64_t kBlock = 4096;     // what file systems write at a time
constexpr size_t kWindow = 64 << 10;
constexpr size_t kSmallWindow = 4 << 10;

template <typename T>
T get(std::span<const uint8_t> from, size_t offset) {
  T value;
  std::memcpy(&value, from.data() + offset, sizeof value);
  return value;
}

template <typename T>
void put(std::span<uint8_t> to, size_t offset, T value) {
  std::memcpy(to.data() + offset, &value, sizeof value);
}

using Preamble = std::array<uint8_t, kPreambleSize>;

Preamble make_preamble(FileKind kind, uint32_t id, uint32_t sub_id, uint32_t version = kFormatVersion) {
  Preamble out{};
  std::memcpy(out.data(), kMagic, sizeof kMagic - 1);
  out[7] = static_cast<uint8_t>(kind);
  put<uint32_t>(out, 8, version);
  put<uint32_t>(out, 12, id);
  put<uint32_t>(out, 16, sub_id);
  put<uint32_t>(out, 20, static_cast<uint32_t>(hash64(std::span(out).first(20))));
  return out;
}

void encode_header(const RecordHeader& header, std::span<uint8_t> out) {
  put<uint32_t>(out, 0, header.length);
  put<uint8_t>(out, 4, static_cast<uint8_t>(header.type));
  put<uint8_t>(out, 5, header.packed ? 1 : 0);
  put<uint16_t>(out, 6, 0);
  put<uint64_t>(out, 8, header.first_item);
  put<uint32_t>(out, 16, header.items);
  put<uint32_t>(out, 20, header.raw_length);
  put<uint64_t>(out, 24, header.checksum);
  put<uint64_t>(out, 32, hash64(out.first(32)));
}

// Returns what is wrong with a header, or null.
const char* decode_header(std::span<const uint8_t> in, RecordHeader& header) {
  if (get<uint64_t>(in, 32) != hash64(in.first(32))) return "record header does not match its checksum";
  header.length = get<uint32_t>(in, 0);
  header.type = static_cast<RecordType>(get<uint8_t>(in, 4));
  header.packed = get<uint8_t>(in, 5) == 1;
  header.first_item = get<uint64_t>(in, 8);
  header.items = get<uint32_t>(in, 16);
  header.raw_length = get<uint32_t>(in, 20);
  header.checksum = get<uint64_t>(in, 24);
  if (get<uint8_t>(in, 5) > 1 || get<uint16_t>(in, 6) != 0) return "record has an unknown encoding";
  if (header.packed ? header.raw_length > kMaxPacked : header.raw_length != header.length)
    return "record has a wrong length";
  if (header.items == 0) return "record is empty";
  return nullptr;
}

// Reads a file from front to back, in large pieces, but reads little of what a caller that skips may not want.
class Window {
 public:
  explicit Window(const File& file) : file_(file) {}
  // Up to `size` bytes from `offset` on, fewer at the end of the file. Valid until the next call.
  Result<std::span<const uint8_t>> get(uint64_t offset, size_t size) {
    if (offset < start_ || offset + size > start_ + data_.size()) {
      const bool skipped = offset > start_ + data_.size();
      data_.resize(std::max(size, skipped ? kSmallWindow : kWindow));
      ASSIGN_OR_RETURN(const size_t n, file_.read(offset, data_));
      data_.resize(n);
      start_ = offset;
    }
    const size_t skip = offset - start_;
    return std::span<const uint8_t>(data_).subspan(skip, std::min(size, data_.size() - skip));
  }

 private:
  const File& file_;
  Bytes data_;
  uint64_t start_ = 0;
};

}  // namespace

Error damage(const std::string& file, uint64_t offset, const std::string& what) {
  return Error{fmt::format("{}: offset {}: {}", file, offset, what), Status::damaged};
}

Error missing(Storage& storage, const std::string& file) {
  const std::string directory = directory_of(file);
  if (storage.exists(directory)) return damage(file, 0, "file is missing");
  if (!is_volume(directory)) return Error{directory + " was removed meanwhile"};
  return Error{directory +
               " is not kept any more (record --keep): read a snapshot of the recording (redrive snapshot)"};
}

Compressor::Compressor(int level) : context_(ZSTD_createCCtx(), ZSTD_freeCCtx) {
  ASSERT(context_ != nullptr);
  ASSERT(!ZSTD_isError(ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level)));
}

size_t Compressor::pack(std::span<const uint8_t> from, std::span<uint8_t> to) {
  const size_t n = ZSTD_compress2(context_.get(), to.data(), to.size(), from.data(), from.size());
  return ZSTD_isError(n) ? 0 : n;
}

// Handles memory that the C library cannot get like memory that `new` cannot get.
[[noreturn]] static void no_memory() {
  if (const auto handle = std::get_new_handler()) handle();
  throw std::bad_alloc();
}

void Unpacker::Free::operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }

RecordWriter::RecordWriter(Storage& storage, std::string path, FileKind kind, uint32_t id, uint32_t sub_id)
    : storage_(storage), path_(std::move(path)) {
  const Preamble preamble = make_preamble(kind, id, sub_id);
  buffer_.assign(preamble.begin(), preamble.end());
}

void RecordWriter::add(RecordType type, std::span<const uint8_t> payload, uint32_t items, Compressor* compressor) {
  ASSERT(payload.size() <= UINT32_MAX);
  ASSERT(items > 0);
  const size_t start = buffer_.size();
  buffer_.resize(start + kRecordHeaderSize + payload.size());
  const auto body = std::span(buffer_).subspan(start + kRecordHeaderSize);
  size_t packed = 0;
  if (compressor && payload.size() >= kMinPacked && payload.size() <= kMaxPacked) {
    packed = compressor->pack(payload, body.first(body.size() - 1));
  }
  if (packed) {
    buffer_.resize(start + kRecordHeaderSize + packed);
  } else if (!payload.empty()) {
    std::memcpy(body.data(), payload.data(), payload.size());
  }
  RecordHeader header;
  header.type = type;
  header.packed = packed != 0;
  header.length = static_cast<uint32_t>(packed ? packed : payload.size());
  header.raw_length = static_cast<uint32_t>(payload.size());
  header.first_item = next_item_;
  header.items = items;
  header.checksum = hash64(std::span(buffer_).subspan(start + kRecordHeaderSize));
  encode_header(header, std::span(buffer_).subspan(start, kRecordHeaderSize));
  next_item_ += items;
}

Result<void> RecordWriter::resume(uint64_t written, uint64_t items) {
  ASSIGN_OR_RETURN(file_, storage_.append_to(path_));
  if (file_->size() > written) TRY(file_->truncate(written));
  written_ = written;
  next_item_ = items;
  buffer_.clear();
  return {};
}

Result<void> RecordWriter::write() {
  if (torn_) return *torn_;
  if (buffer_.empty()) return {};
  if (!file_) {
    ASSIGN_OR_RETURN(file_, exists() ? storage_.append_to(path_) : storage_.create(path_));
  }
  if (auto appended = file_->append(buffer_); !appended) {
    // The reader would cut a torn record itself, if nothing comes after it. But on a full disk, space is needed.
    if (!file_->truncate(written_)) torn_ = appended.error();
    return appended.error();
  }
  written_ += buffer_.size();
  buffer_.clear();
  return {};
}

Result<void> RecordFile::read_preamble(FileKind kind, uint32_t id, uint32_t sub_id) const {
  Preamble found{};
  ASSIGN_OR_RETURN(const size_t n, file_->read(0, found));
  if (n < found.size()) return damage(path_, n, "file ends inside its first 24 bytes");
  if (std::memcmp(found.data(), kMagic, sizeof kMagic - 1) != 0)
    return damage(path_, 0, "not a file of a redrive trace");
  if (get<uint32_t>(found, 20) != static_cast<uint32_t>(hash64(std::span(found).first(20)))) {
    return damage(path_, 0, "preamble does not match its checksum");
  }
  const auto version = get<uint32_t>(found, 8);
  if (version > kFormatVersion) {
    return Error{fmt::format("{}: trace made by a newer redrive, format {}; this one reads up to {}", path_, version,
                             kFormatVersion)};
  }
  if (version == 0 || found != make_preamble(kind, id, sub_id, version))
    return damage(path_, 0, "another file of a trace stands here");
  return {};
}

// After a power failure, blocks that were not written read as zeros. True if one of the blocks of bytes [offset, end)
// does, from `offset` on. Short runs of zeros do not count, because they occur inside records.
Result<bool> RecordFile::never_reached_disk(uint64_t offset, uint64_t end) const {
  constexpr uint64_t kMinZeros = 16;
  const uint64_t size = file_->size();
  Bytes block;
  for (uint64_t at = offset; at < std::min(end, size);) {
    const uint64_t block_end = std::min(size, (at / kBlock + 1) * kBlock);
    block.resize(block_end - at);
    ASSIGN_OR_RETURN(const size_t n, file_->read(at, block));
    const bool zeros =
        std::all_of(block.begin(), block.begin() + static_cast<ptrdiff_t>(n), [](uint8_t b) { return b == 0; });
    if (zeros && n >= kMinZeros) return true;
    at = block_end;
  }
  return false;
}

// Decodes the header of the record that begins there. Returns what is wrong with it, or null.
static const char* decode_header_at(RecordPlace place, std::span<const uint8_t> in, RecordHeader& header) {
  header.offset = place.offset;
  const char* const wrong = decode_header(in, header);
  return wrong || header.first_item == place.item ? wrong : "record is out of sequence";
}

Result<void> RecordFile::scan(Tail tail, uint64_t size, uint64_t synced) {
  Window headers(*file_);
  for (RecordPlace next; next.offset < size;) {
    const uint64_t at = next.offset;
    ASSIGN_OR_RETURN(const auto bytes, headers.get(at, kRecordHeaderSize));
    if (bytes.size() < kRecordHeaderSize) {
      if (tail != Tail::torn) damaged_ = damage(path_, at, "file ends inside a record header");
      return {};
    }
    RecordHeader record;
    const char* wrong = decode_header_at(next, bytes, record);
    if (!wrong && record.end() > size) {
      if (tail != Tail::torn) damaged_ = damage(path_, at, "file ends inside a record");
      return {};
    }
    if (!wrong && tail == Tail::torn && record.end() > synced) {
      ASSIGN_OR_RETURN(const auto stored, headers.get(at + kRecordHeaderSize, record.length));
      if (stored.size() < record.length) return damage(path_, at, "file ends inside a record");
      if (hash64(stored) != record.checksum) wrong = "record does not match its checksum";
    }
    if (wrong) {
      // If the header is wrong, it does not say where its record ends.
      const uint64_t end = std::max(record.end(), at + kRecordHeaderSize);
      ASSIGN_OR_RETURN(const bool lost, never_reached_disk(at, end));
      if (tail != Tail::torn || !lost) damaged_ = damage(path_, at, wrong);
      return {};
    }
    records_.push_back(record);
    next = {record.end(), next.item + record.items};
  }
  return {};
}

Result<std::unique_ptr<RecordFile>> RecordFile::open(Storage& storage, const std::string& path, FileKind kind,
                                                     uint32_t id, uint32_t sub_id, Tail tail,
                                                     std::optional<uint64_t> size) {
  if (!storage.exists(path)) return missing(storage, path);
  ASSIGN_OR_RETURN(auto file, storage.open(path));
  std::unique_ptr<RecordFile> out(new RecordFile(std::move(file), path));
  const uint64_t found = out->file_->size();
  if (tail == Tail::torn && found < kPreambleSize) return out;
  if (auto preamble = out->read_preamble(kind, id, sub_id); !preamble) {
    if (tail != Tail::torn || preamble.error().status != Status::damaged) return preamble.error();
    ASSIGN_OR_RETURN(const bool lost, out->never_reached_disk(0, kPreambleSize));
    if (!lost) return preamble.error();
    return out;
  }
  ASSERT(tail != Tail::ignored || size);
  TRY(out->scan(tail, tail == Tail::ignored ? std::min(found, *size) : found, size.value_or(0)));
  const bool wrong_size = size && (tail == Tail::whole ? found != *size : found < *size);
  if (wrong_size && !out->damaged_) {
    out->damaged_ = damage(path, std::min(found, *size), fmt::format("file has {} bytes, {} expected", found, *size));
  }
  return out;
}

Result<std::unique_ptr<RecordFile>> RecordFile::open_unread(Storage& storage, const std::string& path, FileKind kind,
                                                            uint32_t id, uint32_t sub_id) {
  if (!storage.exists(path)) return missing(storage, path);
  ASSIGN_OR_RETURN(auto file, storage.open(path));
  std::unique_ptr<RecordFile> out(new RecordFile(std::move(file), path));
  TRY(out->read_preamble(kind, id, sub_id));
  return out;
}

Result<std::vector<RecordHeader>> RecordFile::headers(RecordPlace from, RecordPlace to) const {
  Window window(*file_);
  std::vector<RecordHeader> found;
  while (from.offset < to.offset) {
    ASSIGN_OR_RETURN(const auto bytes, window.get(from.offset, kRecordHeaderSize));
    if (bytes.size() < kRecordHeaderSize) return damage(path_, from.offset, "file ends inside a record header");
    RecordHeader record;
    const char* wrong = decode_header_at(from, bytes, record);
    if (!wrong && record.end() > file_->size()) wrong = "file ends inside a record";
    if (wrong) return damage(path_, from.offset, wrong);
    found.push_back(record);
    from = {record.end(), from.item + record.items};
  }
  if (from.offset != to.offset || from.item != to.item) {
    return damage(path_, to.offset, "no record ends where the journal says");
  }
  return found;
}

// The record that holds an item, and those that follow it.
static std::span<const RecordHeader> records_from(const std::vector<RecordHeader>& records, uint64_t item) {
  const auto after = std::ranges::upper_bound(records, item, {}, &RecordHeader::first_item);
  if (after == records.begin() || item - std::prev(after)->first_item >= std::prev(after)->items) return {};
  return {std::prev(after), records.end()};
}

const RecordHeader* RecordFile::find(uint64_t item) const {
  const auto found = records_from(records_, item);
  return found.empty() ? nullptr : found.data();
}

RecordParts::RecordParts(std::unique_ptr<RecordFile> file, const std::vector<RecordPlace>& places)
    : file_(std::move(file)) {
  const Lock lock(mutex_);
  for (size_t i = 1; i < places.size(); ++i) parts_.push_back({places[i - 1], places[i], {}});
}

Result<std::span<const RecordHeader>> RecordParts::from(uint64_t item) const {
  const Lock lock(mutex_);
  if (parts_.empty()) {
    const auto found = records_from(file_->records(), item);
    if (found.empty() && file_->damaged()) return *file_->damaged();
    return found;
  }
  const auto part = std::ranges::upper_bound(parts_, item, {}, [](const Part& each) { return each.end.item; });
  if (part == parts_.end()) return std::span<const RecordHeader>();
  if (part->records.empty()) {
    ASSIGN_OR_RETURN(part->records, file_->headers(part->begin, part->end));
  }
  return records_from(part->records, item);
}

std::span<uint8_t> Unpacker::Buffer::first(size_t size) {
  if (size_ < size) {
    *this = {};
    const size_t room = std::bit_ceil(size);
    data_ = std::make_unique_for_overwrite<uint8_t[]>(room);
    size_ = room;
  }
  return {data_.get(), size};
}

Result<void> RecordFile::verify(const RecordHeader& record, std::span<const uint8_t> stored) const {
  if (stored.size() < record.length) return damage(path_, record.offset, "file ends inside a record");
  if (hash64(stored) != record.checksum) return damage(path_, record.offset, "record does not match its checksum");
  return {};
}

// Reads what is stored of the payload, and verifies it.
Result<void> RecordFile::read_stored(const RecordHeader& record, std::span<uint8_t> to) const {
  ASSIGN_OR_RETURN(const size_t n, file_->read(record.offset + kRecordHeaderSize, to));
  return verify(record, to.first(n));
}

Result<void> RecordFile::unpack(const RecordHeader& record, std::span<const uint8_t> stored, std::span<uint8_t> to,
                                Unpacker& unpacker) const {
  if (!unpacker.context_) unpacker.context_.reset(ZSTD_createDCtx());
  if (!unpacker.context_) no_memory();
  const size_t n = ZSTD_decompressDCtx(unpacker.context_.get(), to.data(), to.size(), stored.data(), stored.size());
  if (ZSTD_isError(n) || n != to.size()) return damage(path_, record.offset, "record cannot be unpacked");
  return {};
}

// Of what was verified.
Result<std::span<const uint8_t>> RecordFile::unpacked(const RecordHeader& record, std::span<const uint8_t> stored,
                                                      Unpacker& unpacker) const {
  if (!record.packed) return stored;
  const std::span<uint8_t> raw = unpacker.raw_.first(record.raw_length);
  TRY(unpack(record, stored, raw, unpacker));
  return std::span<const uint8_t>(raw);
}

Result<std::span<const uint8_t>> RecordFile::payload(const RecordHeader& record, Unpacker& unpacker) const {
  const std::span<uint8_t> stored = unpacker.stored_.first(record.length);
  TRY(read_stored(record, stored));
  return unpacked(record, stored, unpacker);
}

Result<Bytes> RecordFile::payload(const RecordHeader& record) const {
  Bytes raw(record.raw_length);
  if (!record.packed) {
    TRY(read_stored(record, raw));
    return raw;
  }
  Unpacker unpacker;
  const std::span<uint8_t> stored = unpacker.stored_.first(record.length);
  TRY(read_stored(record, stored));
  TRY(unpack(record, stored, raw, unpacker));
  return raw;
}

Result<void> RecordFile::for_each_payload(
    const std::function<Result<void>(const RecordHeader&, std::span<const uint8_t>)>& visit) const {
  Window window(*file_);
  Unpacker unpacker;
  for (const auto& record : records_) {
    ASSIGN_OR_RETURN(const auto stored, window.get(record.offset + kRecordHeaderSize, record.length));
    TRY(verify(record, stored));
    ASSIGN_OR_RETURN(const auto payload, unpacked(record, stored, unpacker));
    TRY(visit(record, payload));
  }
  return {};
}

std::vector<Error> RecordFile::check() const {
  std::vector<Error> errors;
  for (const auto& record : records_) {
    if (auto verified = payload(record); !verified) errors.push_back(verified.error());
  }
  if (damaged_) errors.push_back(*damaged_);
  return errors;
}

}  // namespace redrive
