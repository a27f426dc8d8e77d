// What is to be made of open files: where they are now, and whether they are as they were.
//
// A file that the program writes and that has no name, or was removed since, is made anew from the bytes that calls
// through its description have put there. One that it only reads is missing then, unless the trace has a copy. Names
// are followed only for files that are written, because each call that has changed a name since has to be re-driven.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/live/file_names.h"
#include "supervisor/live/live_spec.h"
#include "supervisor/live/past.h"
#include "supervisor/live/wanted_inputs.h"

namespace redrive {

enum class Files : uint8_t { real, trace };  // from where opened files are read

// The calls that have led to a directory.
void want_directory(const DirectoryRef& directory, WantedInputs& inputs);

class FileSpecs {
 public:
  // `needed`: the objects that are to be made.
  FileSpecs(const Trace& trace, const Past& past, const Past& later,
            const std::map<ObjectNumber, std::optional<ObjectNumber>>& needed, Files files)
      : trace_(trace), past_(past), later_(later), needed_(needed), files_(files) {}

  void want_fifos(WantedInputs& inputs) const;
  // When the paths are known: what has happened to names.
  void want_names(WantedInputs& inputs);
  // When these are known: what was written to files that are to be made anew.
  void want_content(WantedInputs& inputs);

  // Where it was found.
  std::string directory_of(const DirectoryRef& directory, const WantedInputs& inputs) const;
  // Where it is now; none: it was removed.
  std::optional<std::string> directory_now(const DirectoryRef& directory, const WantedInputs& inputs) const;
  // An Error: the file cannot be opened as it was.
  Result<void> add(const OpenObject& object, const WantedInputs& inputs, LiveObject& out, LiveSpec& spec) const;

 private:
  std::string path_of(EventRef call, const DirectoryRef& base, const WantedInputs& inputs, size_t piece = 0) const;
  bool may_have_moved(const OpenObject& object, const WantedInputs& inputs) const;
  bool is_missing(const DirectoryRef& directory, const WantedInputs& inputs) const;
  std::vector<std::string> names_now(const std::string& plain, size_t names_before) const;
  std::optional<std::string> name_of(const OpenObject& object, const WantedInputs& inputs) const;
  bool others_have_written(const OpenObject& object) const;
  Result<void> check_read(const OpenObject& object, const LiveObject& out, LiveSpec& spec) const;
  Result<void> check_written(const OpenObject& object, uint64_t size, LiveObject& out, LiveSpec& spec) const;
  Result<void> add_nameless(const OpenObject& object, const WantedInputs& inputs, LiveObject& out,
                            LiveSpec& spec) const;
  void add_missing(const OpenObject& object, const WantedInputs& inputs, LiveObject& out, LiveSpec& spec) const;

  const Trace& trace_;
  const Past& past_;
  const Past& later_;
  const std::map<ObjectNumber, std::optional<ObjectNumber>>& needed_;
  const Files files_;
  size_t first_change_ = 0;           // of names, that matters
  std::vector<NameChanged> changed_;  // from that one on
};

}  // namespace redrive
