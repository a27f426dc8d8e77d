// The files in which CRIU keeps its messages: a number that says what kind of file it is, then messages, each after its
// length. Pages lie in files of their own, without anything between them.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace redrive {

// The numbers that files begin with (criu/include/magic.h).
enum class CriuFile : uint32_t {
  inventory = 0x58313116,
  pstree = 0x50273030,
  ids = 0x54432030,
  core = 0x55053847,
  mm = 0x57492820,
  pagemap = 0x56084025,
  files = 0x56303138,
  fdinfo = 0x56213732,
  fs = 0x51403912,
  seccomp = 0x64413049,
};

// Values of the messages' fields.
namespace criu_value {
inline constexpr uint32_t kImageVersion = 2;  // inventory_entry.img_version: CRTOOLS_IMAGES_V1_1
inline constexpr uint32_t kX86_64 = 1;        // core_entry.mtype
inline constexpr uint32_t kPagePresent = 4;   // pagemap_entry.flags: PE_PRESENT, its pages are in the dump
// vma_entry.status: VMA_AREA_*, VMA_FILE_*, VMA_ANON_*
inline constexpr uint32_t kRegular = 1 << 0, kStack = 1 << 1, kHeap = 1 << 5, kFilePrivate = 1 << 6,
                          kFileShared = 1 << 7, kAnonymousShared = 1 << 8, kAnonymousPrivate = 1 << 9;
}  // namespace criu_value

// Makes the content of one file.
class CriuFileWriter {
 public:
  explicit CriuFileWriter(CriuFile kind);
  void add(const google::protobuf::MessageLite& message);
  const std::string& content() const { return content_; }

 private:
  void add_number(uint32_t number);
  std::string content_;
};

// Takes the content of one file apart, message by message.
class CriuFileReader {
 public:
  // An Error if it is no file of this kind. The content must outlive the reader.
  static Result<CriuFileReader> open(const std::string& content, CriuFile kind);
  bool at_end() const { return at_ == content_->size(); }
  // The next message. False if there is none, or if it is not complete.
  bool next(google::protobuf::MessageLite& message);

 private:
  explicit CriuFileReader(const std::string& content) : content_(&content) {}
  bool next_number(uint32_t& number);
  const std::string* content_;
  size_t at_ = 0;
};

}  // namespace redrive
