#include "supervisor/service/unit_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace redrive {
namespace {

namespace fs = std::filesystem;

// The system manager's, the first wins (systemd.unit(5), UNIT FILE LOAD PATH).
constexpr const char* kDirectories[] = {
    "/etc/systemd/system.control",   "/run/systemd/system.control",  "/run/systemd/transient",
    "/run/systemd/generator.early",  "/etc/systemd/system",          "/etc/systemd/system.attached",
    "/run/systemd/system",           "/run/systemd/system.attached", "/run/systemd/generator",
    "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",      "/lib/systemd/system",
    "/run/systemd/generator.late",
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// "name@.service" for "name@instance.service"; empty if it is no instance.
std::string template_of(const std::string& unit) {
  const size_t at = unit.find('@'), dot = unit.rfind('.');
  if (at == std::string::npos || dot == std::string::npos || at + 1 >= dot) return "";
  return unit.substr(0, at + 1) + unit.substr(dot);
}

struct Fragment {
  fs::path path;     // where its text is
  std::string name;  // that it has there
};

// The file of this name: the first, if it is a link the one that it leads to.
std::optional<Fragment> find_fragment(const std::string& root, const std::string& name) {
  for (const char* directory : kDirectories) {
    fs::path path = root + directory + "/" + name;
    std::error_code failure;
    if (!fs::exists(fs::symlink_status(path, failure))) continue;
    std::string last = name;
    for (int links = 0; links < 16 && fs::is_symlink(path, failure); ++links) {
      const fs::path target = fs::read_symlink(path, failure);
      path = target.is_absolute() ? fs::path(root + target.string()) : path.parent_path() / target;
      if (target == "/dev/null") return Fragment{"/dev/null", name};
      last = path.filename().string();
    }
    return Fragment{path, last};
  }
  return {};
}

// The names of the directories of drop-ins, the most special first: of the unit, of its template, of each prefix that
// ends in "-", of all services.
std::vector<std::string> drop_in_names(const std::string& unit) {
  std::vector<std::string> names{unit};
  if (const std::string of_all = template_of(unit); !of_all.empty()) names.push_back(of_all);
  const size_t end = std::min(unit.find('@'), unit.rfind('.'));
  const std::string suffix = unit.substr(unit.rfind('.'));
  for (size_t dash = unit.rfind('-', end); dash != std::string::npos && dash > 0; dash = unit.rfind('-', dash - 1)) {
    names.push_back(unit.substr(0, dash + 1) + suffix);
  }
  names.push_back(suffix.substr(1));
  return names;
}

Result<std::string> contents(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    if (!file || file.peek() != std::ifstream::traits_type::eof()) return errno_error(path.string());
  }
  return text.str();
}

}  // namespace

std::vector<UnitAssignment> parse_unit_file(const std::string& text, const std::string& file) {
  std::vector<UnitAssignment> out;
  std::string section, line;
  std::istringstream lines(text);
  bool continues = false;
  for (std::string next; std::getline(lines, next);) {
    const std::string bare = trimmed(next);
    if (!bare.empty() && (bare[0] == '#' || bare[0] == ';')) continue;  // also within a line that continues
    line = continues ? line + " " + bare : bare;
    continues = !line.empty() && line.back() == '\\';
    if (continues) {
      line.pop_back();
      line = trimmed(line);
      continue;
    }
    const size_t equals = line.find('=');
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2);
    } else if (equals != std::string::npos) {
      out.push_back({section, trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)), file});
    }
  }
  return out;
}

Result<UnitFile> UnitFile::read(const std::string& root, const std::string& unit, const std::string& except) {
  auto fragment = find_fragment(root, unit);
  if (!fragment && !template_of(unit).empty()) fragment = find_fragment(root, template_of(unit));
  if (!fragment) {
    return Error{fmt::format("there is no unit file of {}{}: is its name right, and is it a service of the system?",
                             unit, root.empty() ? "" : " in " + root)};
  }
  if (fragment->path == "/dev/null") return Error{fmt::format("{} is masked", unit)};
  UnitFile made;
  // Of an instance, the file has the template's name.
  made.name_ = fragment->name.find("@.") != std::string::npos ? unit : fragment->name;
  ASSIGN_OR_RETURN(const std::string text, contents(fragment->path));
  made.assignments_ = parse_unit_file(text, fragment->path.string());
  std::map<std::string, fs::path> drop_ins;  // by their own names, the first of each
  for (const auto& name : drop_in_names(made.name_)) {
    for (const char* directory : kDirectories) {
      std::error_code failure;
      for (fs::directory_iterator it(root + directory + "/" + name + ".d", failure), end; !failure && it != end;
           it.increment(failure)) {
        const std::string file = it->path().filename().string();
        if (file.ends_with(".conf") && file != except) drop_ins.try_emplace(file, it->path());
      }
    }
  }
  for (const auto& [name, path] : drop_ins) {
    std::error_code failure;
    if (fs::is_symlink(path, failure) && fs::read_symlink(path, failure) == "/dev/null") continue;
    ASSIGN_OR_RETURN(const std::string more, contents(path));
    const auto assignments = parse_unit_file(more, path.string());
    made.assignments_.insert(made.assignments_.end(), assignments.begin(), assignments.end());
  }
  return made;
}

std::vector<UnitAssignment> UnitFile::all(const std::string& key) const {
  std::vector<UnitAssignment> values;
  for (const auto& assignment : assignments_) {
    if (assignment.section != "Service" || assignment.key != key) continue;
    if (assignment.value.empty()) {
      values.clear();
    } else {
      values.push_back(assignment);
    }
  }
  return values;
}

std::string UnitFile::last(const std::string& key) const {
  const auto values = all(key);
  return values.empty() ? "" : values.back().value;
}

bool UnitFile::is_on(const std::string& key) const {
  const std::string value = last(key);
  return value == "yes" || value == "true" || value == "on" || value == "1" || value == "y" || value == "t";
}

}  // namespace redrive
