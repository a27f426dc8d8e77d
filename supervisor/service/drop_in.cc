#include "supervisor/service/drop_in.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace redrive {
namespace {

// Seccomp filters that a service is started with refuse calls before a recorder sees them: a replay would find a call
// that was not recorded. So a recorded service does without those that programs run into. What resets each:
struct Relaxed {
  const char* setting;
  const char* reset;
};
constexpr Relaxed kFilters[] = {
    {"SystemCallFilter", ""},   {"RestrictAddressFamilies", ""}, {"RestrictNamespaces", "no"},
    {"RestrictRealtime", "no"}, {"RestrictSUIDSGID", "no"},      {"MemoryDenyWriteExecute", "no"},
    {"LockPersonality", "no"},
};
// With these, redrive would not find its own files, or not be allowed to use them.
constexpr const char* kRefused[] = {"RootDirectory", "RootImage", "DynamicUser"};
// Units that redrive itself needs, or that run before it can.
constexpr std::string_view kNeeded[] = {"dbus.service", "dbus-broker.service", "redrived.service"};

bool is_set(const UnitFile& unit, const std::string& setting) {
  const std::string value = unit.last(setting);
  return !value.empty() && value != "no" && value != "false" && value != "off" && value != "0";
}

// The first argument of a command line is another one's name. Separators make several commands of one line.
Result<void> check_command(const UnitFile& unit, const UnitAssignment& command, const std::string& prefix) {
  if (prefix.find('@') != std::string::npos) {
    return Error{
        fmt::format("{}: ExecStart= has the prefix '@' ({}), with which a program gets another name as its first "
                    "argument; this cannot be recorded",
                    unit.name(), command.file)};
  }
  std::istringstream words(command.value);
  for (std::string word; words >> word;) {
    if (word == ";") {
      return Error{fmt::format("{}: ExecStart= has several commands in one line ({}): give each a line of its own",
                               unit.name(), command.file)};
    }
  }
  return {};
}

Result<void> check(const UnitFile& unit) {
  const std::string& name = unit.name();
  if (name.starts_with("systemd-") || std::find(std::begin(kNeeded), std::end(kNeeded), name) != std::end(kNeeded)) {
    return Error{
        fmt::format("{} cannot be recorded: the machine, or redrive itself, needs it to start services", name)};
  }
  for (const char* setting : kRefused) {
    if (!is_set(unit, setting)) continue;
    return Error{fmt::format("{} cannot be recorded: with {}={}, redrive or its traces are out of its reach", name,
                             setting, unit.last(setting))};
  }
  const std::string type = unit.last("Type");
  if (type == "forking" && !unit.has("PIDFile")) {
    return Error{
        fmt::format("{} cannot be recorded: it has Type=forking and no PIDFile=, so systemd could not tell its "
                    "main process from the recorder",
                    name)};
  }
  if (!unit.has("ExecStart")) return Error{fmt::format("{} has no ExecStart=", name)};
  return {};
}

// As a word of a command. `doubled`: characters that are to be themselves, neither a specifier (%) nor a variable ($).
std::string quoted(const std::string& word, std::string_view doubled) {
  std::string out;
  bool plain = !word.empty();
  for (const char c : word) {
    if (doubled.find(c) != std::string_view::npos) out += c;
    if (c == '"' || c == '\\') out += '\\';
    out += c;
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) ||
                      std::string_view("_-./:=,+%@$").find(c) != std::string_view::npos);
  }
  return plain ? out : "\"" + out + "\"";
}

// Specifiers in the unit's settings stay what they are.
std::string owner_of(const UnitFile& unit) {
  std::string owner;
  if (unit.has("User")) owner += fmt::format(" -o {}", quoted(unit.last("User"), "$"));
  if (unit.has("Group")) owner += fmt::format(" -g {}", quoted(unit.last("Group"), "$"));
  return owner;
}

bool is_roots(const UnitFile& unit) {
  const std::string user = unit.last("User");
  return user.empty() || user == "root" || user == "0";
}

}  // namespace

std::string quote_for_systemd(const std::string& word) { return quoted(word, "%$"); }

Result<DropIn> make_drop_in(const UnitFile& unit, const std::string& redrive, const std::vector<std::string>& options) {
  TRY(check(unit));
  DropIn made;
  std::string& text = made.text;
  const auto line = [&](const std::string& setting, const std::string& value) {
    text += fmt::format("{}={}\n", setting, value);
  };
  const std::string traces = std::string(kServiceTraces) + "/%n";
  text +=
      "# Made by `redrive service enable`: this service is recorded. `redrive service disable` removes "
      "it.\n[Service]\n";
  line("ExecStartPre", fmt::format("+/usr/bin/install -d -m 0700{} {}", owner_of(unit), traces));
  line("Environment", fmt::format("REDRIVE_TRACE_DIR={0} REDRIVE_CACHE_DIR={0}/cache {1}=1", traces, kServiceVariable));
  std::string record = redrive + " record --session %n";
  for (const auto& option : options) record += " " + quote_for_systemd(option);
  line("ExecStart", "");
  for (const auto& command : unit.all("ExecStart")) {
    const size_t begin = command.value.find_first_not_of("@-:+!");
    if (begin == std::string::npos) return Error{fmt::format("{}: ExecStart= names no program", unit.name())};
    const std::string prefix = command.value.substr(0, begin);
    TRY(check_command(unit, command, prefix));
    line("ExecStart", fmt::format("{}{} -- {}", prefix, record, command.value.substr(begin)));
  }
  // What tells systemd that the service is ready is a child of redrive.
  const std::string type = unit.last("Type"), access = unit.last("NotifyAccess");
  const bool notifies = type == "notify" || type == "notify-reload" || unit.has("WatchdogSec") || !access.empty();
  if (notifies && access != "all") line("NotifyAccess", "all");
  // `mixed` kills all others when the main process has ended. Here it is the recorder that completes the trace then.
  if (type == "forking" && unit.last("KillMode") == "mixed") line("KillMode", "control-group");
  const bool read_only =
      unit.last("ProtectSystem") == "strict" || unit.has("ReadOnlyPaths") || unit.has("ReadOnlyDirectories");
  if (read_only) line("ReadWritePaths", fmt::format("-/run/redrive -{}", traces));
  if (unit.has("NoExecPaths")) line("ExecPaths", redrive);
  for (const auto& [setting, reset] : kFilters) {
    if (!is_set(unit, setting)) continue;
    line(setting, reset);
    made.relaxed.push_back(fmt::format("{}=", setting));
  }
  // A tracer needs it for programs of root that become another user.
  if (unit.has("CapabilityBoundingSet") && is_roots(unit)) {
    line("CapabilityBoundingSet", "CAP_SYS_PTRACE");
    made.relaxed.emplace_back("CapabilityBoundingSet= (it has CAP_SYS_PTRACE)");
  }
  if (unit.last("ProcSubset") == "pid") {
    line("ProcSubset", "all");
    made.relaxed.emplace_back("ProcSubset=");
  }
  return made;
}

}  // namespace redrive
