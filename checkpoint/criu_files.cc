#include "checkpoint/criu_files.h"

#include <cstring>

namespace redrive {
namespace {

constexpr uint32_t kCommon = 0x54564319;  // before the kind, in all files but the inventory

}  // namespace

CriuFileWriter::CriuFileWriter(CriuFile kind) {
  if (kind != CriuFile::inventory) add_number(kCommon);
  add_number(static_cast<uint32_t>(kind));
}

void CriuFileWriter::add(const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  add_number(static_cast<uint32_t>(bytes.size()));
  content_ += bytes;
}

void CriuFileWriter::add_number(uint32_t number) {
  content_.append(reinterpret_cast<const char*>(&number), sizeof number);
}

Result<CriuFileReader> CriuFileReader::open(const std::string& content, CriuFile kind) {
  CriuFileReader reader(content);
  uint32_t common = kCommon, found = 0;
  if (kind != CriuFile::inventory && !reader.next_number(common)) common = 0;
  if (common != kCommon || !reader.next_number(found) || found != static_cast<uint32_t>(kind)) {
    return Error{"a file of CRIU's is not of the kind that its name says", Status::damaged};
  }
  return reader;
}

bool CriuFileReader::next(google::protobuf::MessageLite& message) {
  uint32_t size = 0;
  if (!next_number(size) || content_->size() - at_ < size) return false;
  const bool complete = message.ParseFromArray(content_->data() + at_, static_cast<int>(size));
  at_ += size;
  return complete;
}

bool CriuFileReader::next_number(uint32_t& number) {
  if (content_->size() - at_ < sizeof number) return false;
  std::memcpy(&number, content_->data() + at_, sizeof number);
  at_ += sizeof number;
  return true;
}

}  // namespace redrive
