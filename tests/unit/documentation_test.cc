// The man page, --help and the parser agree; so do the version and the change log.
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "logstore/policy/policy.h"
#include "supervisor/command_line.h"
#include "supervisor/transport.h"
#include "tests/unit/unit_test.h"

using namespace redrive;

namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path << ": run the tests in the source directory");
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// Of each command's subsection (.Ss NAME) in redrive(1), the options in its list (.It Fl ...).
std::map<std::string, std::set<std::string>> documented_options() {
  std::map<std::string, std::set<std::string>> out;
  std::istringstream page(contents("man/redrive.1"));
  std::string command;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(".Sh ")) command.clear();
    if (line.starts_with(".Ss ")) out[command = line.substr(4)];
    std::smatch option;
    if (!command.empty() && std::regex_search(line, option, std::regex("^\\.It Fl (\\S+)")))
      out[command].insert("-" + option.str(1));
  }
  return out;
}

}  // namespace

TEST_CASE("redrive(1) has every command with every option, and no other") {
  std::map<std::string, std::set<std::string>> known;
  for (const auto& command : describe_commands()) {
    auto& options = known[command.name];
    for (const auto& option : command.options) options.insert(option.name);
  }
  const auto documented = documented_options();
  for (const auto& [command, options] : known) {
    CAPTURE(command);
    REQUIRE(documented.contains(command));
    CHECK_EQ(documented.at(command), options);
  }
  CHECK_EQ(documented.size(), known.size());
}

TEST_CASE("--help lists every command, and each command's --help its options") {
  const auto text = [](std::vector<std::string> words) {
    return std::get<PrintText>(parse_command_line(std::move(words)).value()).text;
  };
  const std::string overview = text({"--help"});
  for (const auto& command : describe_commands()) {
    CAPTURE(command.name);
    CHECK(overview.find("\n  " + command.name + " ") != std::string::npos);
    const std::string help = text({command.name, "--help"});
    CHECK(help.starts_with("usage: " + command.synopsis + "\n\n"));
    CHECK(help.find("\n\n\n") == std::string::npos);
    for (const char* word : {"TRACE", "UNIT"}) {
      const bool used = command.synopsis.find(word) != std::string::npos;
      CHECK_EQ(help.find(std::string("\n") + word + ": ") != std::string::npos, used);
    }
    for (const auto& option : command.options) {
      CAPTURE(option.name);
      CHECK(help.find("  " + option.name) != std::string::npos);
      CHECK(command.synopsis.find(option.name) != std::string::npos);
    }
  }
}

TEST_CASE("redrive(1) names every policy") {
  const std::string page = contents("man/redrive.1");
  for (const auto& policy : policies()) {
    CAPTURE(policy.name);
    CHECK(page.find(std::string(".It Cm ") + policy.name) != std::string::npos);
  }
}

TEST_CASE("redrive(1), TRANSPORTS, has every variable that record sets, and what keeps it from that") {
  const std::string page = contents("man/redrive.1");
  const size_t begin = page.find(".Sh TRANSPORTS\n"), end = page.find("\n.Sh ", begin + 1);
  REQUIRE(begin != std::string::npos);
  const std::string section = page.substr(begin, end - begin);
  size_t listed = 0;
  for (size_t at = 0; (at = section.find("\n.It Ev ", at)) != std::string::npos; at++) listed++;
  CHECK_EQ(listed, transport_variables().size());
  for (const TransportVariable& variable : transport_variables()) {
    CAPTURE(variable.name);
    const size_t item =
        section.find(std::string(".It Ev ") + variable.name + "=" + variable.value + "\n" + variable.runtime + ":");
    REQUIRE(item != std::string::npos);
    const std::string text = section.substr(item, section.find("\n.It ", item) - item);
    CHECK((!variable.chosen || text.find(std::string(".Ev ") + variable.chosen) != std::string::npos));
  }
}

TEST_CASE("the change log begins with this version") {
  const std::string log = contents("CHANGELOG.md");
  CHECK(log.find(std::string("\n## ") + kVersion) == log.find("\n## "));
}
