// Which copies of mapped files a trace gets, by what the files' versions tell.
#include "supervisor/record/memory/file_copies.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "logstore/memory_storage.h"
#include "supervisor/record/code/mapped_file.h"
#include "supervisor/record/tracees/findings.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::file_copies_test {
namespace {

// A file that is written again and again in the same tick of its file system's clock, which ticks as slowly as FAT's.
class OneTick {
 public:
  OneTick() {
    write("a");
    REQUIRE_EQ(stat(path_.c_str(), &info_), 0);
    info_.st_ctim.tv_nsec = 0;
  }
  ~OneTick() { std::filesystem::remove(path_); }

  void write(const std::string& content) { std::ofstream(path_) << content; }
  void pass(time_t seconds) { info_.st_ctim.tv_sec -= seconds; }
  // The trace's number of the file, as it is mapped now.
  uint64_t copy_in(FileCopies& copies) const {
    MappedFiles files(getpid());
    files.add(path_, info_);
    Mapping mapping;
    mapping.device = info_.st_dev;
    mapping.inode = info_.st_ino;
    mapping.name = path_;
    return copies.file_of(files, mapping).value();
  }

 private:
  const std::string path_ =
      (std::filesystem::temp_directory_path() / fmt::format("redrive-tick-{}", getpid())).string();
  struct stat info_ {};
};

struct Fixture {
  MemoryStorage storage;
  std::unique_ptr<TraceWriter> writer = TraceWriter::create("/t", sample::settings(), storage).value();
  MappedObjects objects;
  Findings findings{*writer};
  FileCopies copies{*writer, objects, findings};
};

TEST_CASE_FIXTURE(Fixture, "copies: a file that has just been written may change without another version") {
  OneTick file;
  const uint64_t first = file.copy_in(copies);
  CHECK_EQ(file.copy_in(copies), first);
  file.write("b");
  CHECK_NE(file.copy_in(copies), first);
  file.write("a");
  CHECK_EQ(file.copy_in(copies), first);
}

TEST_CASE_FIXTURE(Fixture, "copies: a version that is settled is copied once") {
  OneTick file;
  file.pass(10);
  const uint64_t first = file.copy_in(copies);
  file.write("b");  // which would give it another version
  CHECK_EQ(file.copy_in(copies), first);
}

}  // namespace
}  // namespace redrive::file_copies_test
