// Checks that the man page, --help and the parser agree, and the version and the change log.
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "interceptors/syscall_table.h"
#include "logstore/policy/policy.h"
#include "supervisor/cli/command_line.h"
#include "supervisor/record/settings/transport.h"
#include "tests/unit/unit_test.h"

namespace redrive::documentation_test {

namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path << ": run the tests in the source directory");
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// For each command's subsection (.Ss NAME) in redrive(1), the options in its list (.It Fl ...).
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

constexpr std::string_view kBegin = ".\\\" begin of the refused calls, made from the syscall table\n";
constexpr std::string_view kEnd = ".\\\" end of the refused calls\n";

// The calls that the table refuses, always or in part, for redrive(1): each reason once, with the calls and their
// answers.
std::string refused_calls() {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> calls;  // by reason and answer
  const auto add = [&](const SyscallRow& row) {
    if (row.refusal == 0) return;
    const std::string name = row.command_name ? std::string(row.name) + "(" + row.command_name + ")" : row.name;
    calls[row.why][std::string(error_name(row.refusal))].push_back(name);
  };
  for (const SyscallRow& row : all_rows()) add(row);
  for (const SyscallRow* row : all_commands()) add(*row);
  std::string text = ".Bl -tag -width indent\n";
  for (const auto& [why, answers] : calls) {
    std::string named;
    for (const auto& [answer, names] : answers) {
      for (const std::string& name : names) named += (&name == &names.front() ? "" : ", ") + name;
      named += " (" + answer + (&answer == &answers.rbegin()->first ? ")" : "), ");
    }
    text += ".It " + why + "\n" + named + "\n";
  }
  return text + ".El\n";
}

}  // namespace

TEST_CASE("redrive(1) lists the calls that the syscall table refuses, with their reasons") {
  const std::string page = contents("man/redrive.1");
  const size_t begin = page.find(kBegin), end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const size_t first = begin + kBegin.size();
  const std::string wanted = refused_calls();
  if (std::getenv("REDRIVE_UPDATE"))
    std::ofstream("man/redrive.1") << page.substr(0, first) + wanted + page.substr(end);
  INFO("with REDRIVE_UPDATE=1 in the environment, this test updates the page");
  CHECK(contents("man/redrive.1").substr(first, wanted.size() + kEnd.size()) == wanted + std::string(kEnd));
}

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
    const auto command = parse_command_line(std::move(words));
    return dynamic_cast<const CommandWith<PrintText>&>(*command.value()).options().text;
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

}  // namespace redrive::documentation_test
