// A service's unit file with its drop-ins, as systemd.unit(5) reads them, but without asking systemd: also in images,
// and where systemd does not run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace redrive {

struct UnitAssignment {
  std::string section, key, value;
  std::string file;  // that has it, for messages
};

// Lines into assignments: comments are left out and continued lines are joined.
std::vector<UnitAssignment> parse_unit_file(const std::string& text, const std::string& file);

class UnitFile {
 public:
  // `root`: the directory in which the system's files are; empty for this system. The drop-in of this name is left out.
  static Result<UnitFile> read(const std::string& root, const std::string& unit, const std::string& except = "");

  // The unit's own name: a name may be an alias.
  const std::string& name() const { return name_; }
  // Of section [Service]. The values of a setting that may be given several times: an empty one resets it.
  std::vector<UnitAssignment> all(const std::string& key) const;
  // The last value that was given; empty if none was.
  std::string last(const std::string& key) const;
  // Whether the last value of a boolean setting is true.
  bool is_on(const std::string& key) const;
  bool has(const std::string& key) const { return !all(key).empty(); }

 private:
  std::string name_;
  std::vector<UnitAssignment> assignments_;
};

}  // namespace redrive
