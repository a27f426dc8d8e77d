// Includes point down only: base <- logstore, interceptors, checkpoint <- supervisor; the three in the middle do not
// know each other.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "tests/unit/unit_test.h"

namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> kMayInclude{
    {"base", {"base"}},
    {"logstore", {"base", "logstore"}},
    {"interceptors", {"base", "interceptors"}},
    {"checkpoint", {"base", "checkpoint"}},
    {"supervisor", {"base", "logstore", "interceptors", "checkpoint", "supervisor"}},
};

bool is_source(const fs::path& path) {
  static const std::set<std::string> kExtensions{".h", ".cc", ".c", ".S", ".inc"};
  return kExtensions.contains(path.extension().string());
}

// Paths in quoted #include directives.
std::vector<std::string> includes(const fs::path& path) {
  static const std::regex kInclude("^\\s*#\\s*include\\s*\"([^\"]+)\"");
  std::vector<std::string> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) out.push_back(match.str(1));
  }
  return out;
}

template <typename Visit>
void for_each_source(const std::string& directory, Visit visit) {
  REQUIRE_MESSAGE(fs::is_directory(directory), "run the tests in the source directory");
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && is_source(entry.path())) visit(entry.path());
  }
}

}  // namespace

TEST_CASE("includes point down only") {
  for (const auto& [directory, allowed] : kMayInclude) {
    for_each_source(directory, [&allowed = allowed](const fs::path& path) {
      for (const auto& included : includes(path)) {
        CAPTURE(path.string());
        CAPTURE(included);
        CHECK(allowed.contains(included.substr(0, included.find('/'))));
        CHECK(fs::exists(included));
      }
    });
  }
}

// A signal, as of the recorder's timer, ends a bare waitpid(2) that blocks.
TEST_CASE("one process is waited for with wait_for() only") {
  for (const auto& [directory, allowed] : kMayInclude) {
    for_each_source(directory, [](const fs::path& path) {
      if (path == "checkpoint/stub.cc") return;
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        static const std::regex kOneProcess("\\bwaitpid\\((?!2\\)|-1,)");
        CAPTURE(path.string());
        CAPTURE(line);
        CHECK((!std::regex_search(line, kOneProcess) || line.find("WNOHANG") != std::string::npos));
      }
    });
  }
}

TEST_CASE("policies see events, never processes") {
  for_each_source("logstore/policy", [](const fs::path& path) {
    for (const auto& included : includes(path)) {
      CAPTURE(path.string());
      CAPTURE(included);
      CHECK((included.starts_with("logstore/policy/") || included.starts_with("base/result") ||
             included == "logstore/event.h"));
    }
  });
}
