// redrive service: has systemd start an existing service under redrive, or no longer.
#include "supervisor/cli/service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/notice.h"
#include "base/text.h"
#include "checkpoint/stub.h"
#include "supervisor/cli/command_line.h"
#include "supervisor/cli/record.h"
#include "supervisor/service/drop_in.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

constexpr char kUnits[] = "/etc/systemd/system";

fs::path drop_in_directory(const ServiceOptions& options, const std::string& unit) {
  return fmt::format("{}{}/{}.d", options.root, kUnits, unit);
}

// Whether the running system is concerned, and systemd manages it.
bool has_manager(const ServiceOptions& options) { return options.root.empty() && fs::exists("/run/systemd/system"); }

Result<void> reload(const ServiceOptions& options) {
  if (!has_manager(options)) return {};
  const char* arguments[] = {"systemctl", "daemon-reload", nullptr};
  pid_t pid = 0;
  int status = 0;
  const int failed = posix_spawnp(&pid, arguments[0], nullptr, nullptr, const_cast<char**>(arguments), environ);
  if (failed == 0 && wait_for(pid, status) && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Error{"systemd could not be told of the change: run systemctl daemon-reload"};
}

Result<void> write(const fs::path& path, const std::string& text) {
  const mode_t before = umask(022);  // other files there may be read by everybody, too
  std::error_code failure;
  fs::create_directories(path.parent_path(), failure);
  const fs::path made = path.string() + ".new";
  const bool written = !failure && static_cast<bool>(std::ofstream(made) << text << std::flush);
  if (written) fs::rename(made, path, failure);
  umask(before);
  if (failure) return Error{fmt::format("cannot write {}: {}", path.string(), failure.message())};
  return written ? Result<void>() : Result<void>(errno_error("cannot write " + path.string()));
}

// Another drop-in whose name is later in the alphabet may set the commands again.
Result<void> check_effect(const ServiceOptions& options, const std::string& unit, const fs::path& written) {
  ASSIGN_OR_RETURN(const UnitFile now, UnitFile::read(options.root, unit));
  for (const auto& command : now.all("ExecStart")) {
    if (command.file != written) {
      return Error{fmt::format("{} sets ExecStart= after {}: give it a name that comes before {} in the alphabet",
                               command.file, written.string(), kDropInName)};
    }
  }
  return {};
}

Result<int> enable(const ServiceOptions& options) {
  ASSIGN_OR_RETURN(const UnitFile unit, UnitFile::read(options.root, options.unit, kDropInName));
  std::error_code failure;
  const fs::path redrive = fs::read_symlink("/proc/self/exe", failure);
  if (failure) return Error{fmt::format("/proc/self/exe: {}", failure.message())};
  ASSIGN_OR_RETURN(const DropIn drop_in, make_drop_in(unit, redrive.string(), options.record));
  const fs::path path = drop_in_directory(options, unit.name()) / kDropInName;
  TRY(write(path, drop_in.text));
  if (const auto works = check_effect(options, unit.name(), path); !works) {
    fs::remove(path, failure);
    return works.error();
  }
  TRY(reload(options));
  fmt::print("{}: recorded from its next start on, to {}/{}; made {}\n", printable(unit.name()), kServiceTraces,
             printable(unit.name()), printable(path.string()));
  if (!drop_in.relaxed.empty()) {
    notice("{} runs without these protections while it is recorded: {}", unit.name(), fmt::join(drop_in.relaxed, ", "));
  }
  if (!options.root.empty() && !fs::exists(options.root + redrive.string())) {
    notice("{} has no {} yet: the service will not start before redrive is installed there", options.root,
           redrive.string());
  }
  if (has_manager(options)) fmt::print("to record it now: systemctl restart {}\n", printable(unit.name()));
  return 0;
}

Result<int> disable(const ServiceOptions& options) {
  const auto unit = UnitFile::read(options.root, options.unit);
  const std::string name = unit ? unit->name() : options.unit;  // its package may have been removed
  const fs::path directory = drop_in_directory(options, name);
  std::error_code failure;
  if (!fs::remove(directory / kDropInName, failure)) {
    if (failure)
      return Error{fmt::format("cannot remove {}: {}", (directory / kDropInName).string(), failure.message())};
    return Error{fmt::format("{} is not recorded: there is no {}", name, (directory / kDropInName).string())};
  }
  fs::remove(directory, failure);  // unless there is something else in it
  TRY(reload(options));
  fmt::print("{}: not recorded from its next start on; traces stay in {}/{}\n", printable(name), kServiceTraces,
             printable(name));
  return 0;
}

constexpr CommandText kServiceText{"service",
                                   "redrive service [--root DIR] enable UNIT [RECORD-OPTIONS] | disable UNIT",
                                   "have systemd start a service under redrive",
                                   "Writes or removes a drop-in of the unit. The service itself is not restarted. Its "
                                   "sessions have the unit's name.\n",
                                   {{"UNIT", "a service of the system, such as nginx.service"}}};

class ServiceCommand : public CommandWith<ServiceOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    arguments.rest(words_);
    arguments.option("--root", "DIR", "change the system that has its files below this directory",
                     [this](const std::string& text) -> Result<void> {
                       options_.root = text == "/" ? "" : fs::absolute(text).lexically_normal().string();
                       if (options_.root.ends_with('/')) options_.root.pop_back();
                       return {};
                     });
  }

  Result<void> finish(const Arguments&) override {
    if (words_.empty() || (words_[0] != "enable" && words_[0] != "disable")) return usage("give enable or disable");
    if (words_.size() < 2) return usage("no unit given");
    options_.enable = words_[0] == "enable";
    options_.unit = words_[1];
    options_.record.assign(words_.begin() + 2, words_.end());
    if (options_.unit.find('/') != std::string::npos) return usage("UNIT is a name, not a path");
    if (options_.unit.find('.') == std::string::npos) options_.unit += ".service";
    if (!options_.unit.ends_with(".service")) return usage(fmt::format("'{}' is not a service", options_.unit));
    if (!options_.enable) {
      return options_.record.empty() ? Result<void>() : usage(fmt::format("unexpected argument '{}'", words_[2]));
    }
    std::vector<std::string> record{"record"};
    record.insert(record.end(), options_.record.begin(), options_.record.end());
    record.insert(record.end(), {"--", "true"});
    const auto parsed = parse_command_line(record);
    if (!parsed) return parsed.error();
    const auto* const recording = dynamic_cast<const CommandWith<RecordOptions>*>(parsed->get());
    if (!recording) return usage("only options of record may follow the unit");
    const RecordOptions& given = recording->options();
    if (given.command != std::vector<std::string>{"true"}) {
      return usage(fmt::format("unexpected argument '{}': the command is the unit's own", given.command.front()));
    }
    if (!given.session.empty() || !given.output.empty() || !given.directory.empty()) {
      return usage("-o, --session and --output are the service's own");
    }
    return {};
  }

  Result<int> run() override { return options_.enable ? enable(options_) : disable(options_); }

 private:
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_service_command() { return std::make_unique<ServiceCommand>(kServiceText); }

}  // namespace redrive
