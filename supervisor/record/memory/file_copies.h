// Which versions of mapped files the trace has a copy of. A file is copied when it is first mapped.
#pragma once

#include "logstore/trace.h"
#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings;

class FileCopies {
 public:
  struct KnownFile {
    uint64_t id = 0;  // in the trace
    FileVersion version;
    std::string name;
    uint64_t device = 0, inode = 0;  // as /proc/PID/maps shows it
    bool identified = false;         // the version identifies the copy's content
  };

  FileCopies(TraceWriter& writer, MappedObjects& objects, Findings& findings)
      : writer_(writer), objects_(objects), findings_(findings) {}

  // The file behind the descriptor of an mmap that is stopped at its exit with this result, of which the trace gets a
  // copy. Nullopt if there is no such file, or it cannot be found.
  std::optional<KnownFile> look_at_file(Thread& thread, int64_t result);
  // The trace's number of a file that is mapped there.
  Result<uint64_t> file_of(MappedFiles& files, const Mapping& mapping);

  // Forgets the copies of the file. A version is known by its times (stat(2)), but writing through a mapping need not
  // change these, so a copy may differ from what the file holds from now on.
  void forget(uint64_t device, uint64_t inode);
  // Notes a file whose private mappings are served from now on, by its place in the arena. served() returns the file
  // with such a place; null if there is none.
  void serve(uint32_t place, KnownFile file) {
    writer_.pin_file(file.id);
    served_files_.insert_or_assign(place, std::move(file));
  }
  const KnownFile* served(uint32_t place) const;

 private:
  Result<KnownFile> copy_of(const FileVersion& version, const std::string& open_path, const std::string& name);

  TraceWriter& writer_;
  MappedObjects& objects_;
  Findings& findings_;
  std::map<FileVersion, uint64_t> file_ids_;    // of mapped files whose versions identify their contents
  std::map<uint32_t, KnownFile> served_files_;  // whose mappings are served, by their place in the arena
};

}  // namespace redrive
