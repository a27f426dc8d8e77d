// Includes point down only: base <- logstore, interceptors, checkpoint <- supervisor; the three in the middle do not
// know each other. Inside supervisor/: plan, tier <- record, replay <- cli, and plan <- evaluation <- cli; plan and
// tier do not know each other, nor do record, replay and evaluation. replay <- live <- cli. session <- daemon, cli
// and service <- cli. The rooms of supervisor/record/ have an order of their own.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/unit/unit_test.h"

namespace {

namespace fs = std::filesystem;

const std::set<std::string> kLower{"base", "logstore", "interceptors", "checkpoint"};

std::set<std::string> lower_and(std::set<std::string> folders) {
  folders.insert(kLower.begin(), kLower.end());
  return folders;
}

const std::string kRecord = "supervisor/record";
// Each may include those before it.
const std::vector<std::string> kRooms{"front",  "kernel",      "settings",  "code",     "messages", "tracees",
                                      "memory", "checkpoints", "placement", "disguise", "stops",    "attach"};

std::set<std::string> rooms_up_to(const std::string& last) {
  std::set<std::string> out;
  for (const std::string& room : kRooms) {
    out.insert(kRecord + "/" + room);
    if (room == last) break;
  }
  return out;
}

std::map<std::string, std::set<std::string>> with_rooms(std::map<std::string, std::set<std::string>> may_include) {
  const std::set<std::string> outside = may_include.at(kRecord);
  const auto add = [&](const std::string& folder, std::set<std::string> rooms) {
    rooms.insert(outside.begin(), outside.end());
    may_include[folder] = std::move(rooms);
  };
  for (const std::string& room : kRooms) add(kRecord + "/" + room, rooms_up_to(room));
  auto own = rooms_up_to(kRooms.back());
  own.insert(kRecord);
  add(kRecord, std::move(own));
  return may_include;
}

// By folder; subfolders without an entry of their own belong to it.
const std::map<std::string, std::set<std::string>> kMayInclude = with_rooms({
    {"base", {"base"}},
    {"logstore", {"base", "logstore"}},
    {"interceptors", {"base", "interceptors"}},
    {"checkpoint", {"base", "checkpoint"}},
    {"supervisor/plan", {"base", "logstore", "supervisor/plan"}},
    {"supervisor/evaluation", {"base", "logstore", "supervisor/plan", "supervisor/evaluation"}},
    {"supervisor/tier", lower_and({"supervisor/tier"})},
    {kRecord, lower_and({"supervisor/plan", "supervisor/tier"})},  // and rooms
    {"supervisor/replay", lower_and({"supervisor/plan", "supervisor/tier", "supervisor/replay"})},
    {"supervisor/live", lower_and({"supervisor/plan", "supervisor/tier", "supervisor/replay", "supervisor/live"})},
    {"supervisor/session", {"base", "supervisor/session"}},
    {"supervisor/service", {"base", "supervisor/service"}},
    {"supervisor/daemon", {"base", "supervisor/session", "supervisor/daemon"}},
    {"supervisor/cli", lower_and({"supervisor/plan", "supervisor/evaluation", "supervisor/tier", "supervisor/record",
                                  "supervisor/record/front", "supervisor/record/kernel", "supervisor/record/settings",
                                  "supervisor/record/attach", "supervisor/replay", "supervisor/live",
                                  "supervisor/session", "supervisor/service", "supervisor/cli"})},
});
// An image says which processes joined a unit: plan reads an image, but restores nothing from it.
const std::map<std::string, std::string> kMayAlsoInclude{{"supervisor/plan/breakpoint.cc", "checkpoint/unit_state.h"}};

// The folder in kMayInclude that a file belongs to, the innermost one; empty if there is none.
std::string folder_of(const std::string& path) {
  std::string found;
  for (const auto& [folder, allowed] : kMayInclude) {
    if (path.starts_with(folder + "/") && folder.size() > found.size()) found = folder;
  }
  return found;
}

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

// What protoc makes X.pb.h of is X.proto.
std::string source_of(const std::string& header) {
  static const std::regex made("\\.pb\\.h$");
  return std::regex_replace(header, made, ".proto");
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
    for_each_source(directory, [&directory = directory, &allowed = allowed](const fs::path& path) {
      if (folder_of(path.string()) != directory) return;
      for (const auto& included : includes(path)) {
        CAPTURE(path.string());
        CAPTURE(included);
        const auto also = kMayAlsoInclude.find(path.string());
        const bool excepted = also != kMayAlsoInclude.end() && also->second == included;
        CHECK((excepted || allowed.contains(folder_of(included))));
        CHECK(fs::exists(source_of(included)));
      }
    });
  }
}

TEST_CASE("supervisor/ is divided into folders, which name each of their files") {
  for_each_source("supervisor", [](const fs::path& path) {
    CAPTURE(path.string());
    CHECK_FALSE(folder_of(path.string()).empty());
    std::ostringstream page;
    page << std::ifstream(path.parent_path() / "DESIGN.md").rdbuf();
    const auto names = [&](const fs::path& name) {
      return page.str().find("`" + name.string() + "`") != std::string::npos;
    };
    CHECK((names(path.stem()) || names(path.filename())));
  });
}

TEST_CASE("a file belongs to the innermost folder that is listed") {
  CHECK_EQ(folder_of("supervisor/record/recorder.h"), "supervisor/record");
  CHECK_EQ(folder_of("supervisor/record/stops/turns.h"), "supervisor/record/stops");
  CHECK_EQ(folder_of("logstore/policy/policy.h"), "logstore");
  CHECK_EQ(folder_of("tests/unit/layering_test.cc"), "");
}

TEST_CASE("the recorder is divided into rooms, which its page lists in the order of their includes") {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kRecord)) {
    if (entry.is_directory()) found.insert(entry.path().filename().string());
  }
  CHECK_EQ(found, std::set<std::string>(kRooms.begin(), kRooms.end()));
  std::vector<std::string> listed;
  std::ifstream page(kRecord + "/DESIGN.md");
  for (std::string line; std::getline(page, line);) {
    static const std::regex kRow("^\\| `(\\w+)/` \\|");
    std::smatch match;
    if (std::regex_search(line, match, kRow)) listed.push_back(match.str(1));
  }
  CHECK_EQ(listed, kRooms);
}

TEST_CASE("a design page has at most two pages") {
  constexpr long kMostWords = 1300;
  long pages = 0;
  for (const auto& [directory, allowed] : kMayInclude) {
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      if (entry.path().filename() != "DESIGN.md") continue;
      ++pages;
      std::ifstream page(entry.path());
      const long words = std::distance(std::istream_iterator<std::string>(page), {});
      CAPTURE(entry.path().string());
      CHECK_LE(words, kMostWords);
    }
  }
  CHECK_GT(pages, static_cast<long>(kRooms.size()));
}

TEST_CASE("plan and evaluation compute: they trace nothing, and make no process") {
  for (const char* const folder : {"supervisor/plan", "supervisor/evaluation"}) {
    for_each_source(folder, [](const fs::path& path) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        static const std::regex kProcess("\\b(ptrace|waitpid|v?fork|clone3?|execve|posix_spawn)\\(|\\bStub\\b");
        CAPTURE(path.string());
        CAPTURE(line);
        CHECK_FALSE(std::regex_search(line, kProcess));
      }
    });
  }
}

TEST_CASE("only the parser of arguments knows the library that parses them") {
  for_each_source("supervisor", [](const fs::path& path) {
    CAPTURE(path.string());
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    const bool knows = text.str().find("#include <CLI/") != std::string::npos;
    CHECK_EQ(knows, path == "supervisor/cli/arguments.cc" || path == "supervisor/cli/command_line.cc");
  });
}

// A signal, such as that of the recorder's timer, interrupts a bare blocking waitpid(2).
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

TEST_CASE("only base, the stub, the tracer and the probe call ptrace(2)") {
  const std::set<std::string> others{"base/remote.cc", "checkpoint/stub.cc", "supervisor/replay/probe.cc",
                                     kRecord + "/kernel/ptrace_tracer.cc"};
  for (const auto& [directory, allowed] : kMayInclude) {
    for_each_source(directory, [&](const fs::path& path) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        line.erase(std::min(line.find("//"), line.size()));
        static const std::regex kTraces("\\bptrace\\((?!2\\))");
        CAPTURE(path.string());
        CAPTURE(line);
        CHECK((!std::regex_search(line, kTraces) || others.contains(path.string())));
      }
    });
  }
}

TEST_CASE("the recorder traces, waits and reads the time through its tracer only") {
  // These are not part of the recorder's tracing: the tracer itself; the front and the guard, one of which is the
  // recorder's parent and waits for it; the timer behind Tracer::wake_within(); threads beside the recorder, which take
  // their own time, or wait for it; CRIU, and what it dumps to be measured.
  const std::set<std::string> others{"ptrace_tracer.cc", "front.cc",           "guard.cc",       "interrupts.cc",
                                     "image_worker.cc",  "outside_writers.cc", "event_clock.cc", "requests.cc",
                                     "criu_service.cc",  "criu_cost.cc"};
  for_each_source(kRecord, [&](const fs::path& path) {
    if (others.contains(path.filename().string())) return;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      line.erase(std::min(line.find("//"), line.size()));
      static const std::regex kCalls(
          "\\b(ptrace|wait|waitpid|waitid|wait4|wait_for|clock_gettime|setitimer)\\(|lock::now\\(|"
          "\\bredrive::([gs]et_(regs|xstate|siginfo|signal_mask)|wake_within|seize|interrupt|resume|detach)\\(");
      static const std::regex kTracers("\\b(tracer_?(\\.|->)|std::optional<Stop> )wait\\(");
      CAPTURE(path.string());
      CAPTURE(line);
      CHECK((!std::regex_search(line, kCalls) || std::regex_search(line, kTracers)));
    }
  });
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
