// redrive start: starts a session, which is a recording in the background. It is a `redrive record` of the caller's,
// with the caller's environment, limits, groups, working directory and cgroup; nobody else starts anything for the
// caller.
#include "supervisor/cli/start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/limits.h"
#include "base/notice.h"
#include "base/private_files.h"
#include "base/procfs.h"
#include "base/text.h"
#include "checkpoint/stub.h"
#include "logstore/home.h"
#include "logstore/trace.h"
#include "supervisor/cli/command_line.h"
#include "supervisor/cli/record.h"
#include "supervisor/cli/session_text.h"
#include "supervisor/record/front/exit_status.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 5ms;
constexpr auto kLongestStart = 60s;
constexpr int kCannotRun = 127;

// Runs in the new process.
[[noreturn]] void become(char* const* arguments, int null) {
  setsid();
  dup2(null, STDIN_FILENO);
  give_back_umask();
  give_back_limits();
  execv("/proc/self/exe", arguments);
  _exit(kCannotRun);
}

Result<std::string> output_of(const StartOptions& options) {
  if (!options.output.empty()) return options.output;
  ASSIGN_OR_RETURN(const std::string home, make_trace_home());
  return fmt::format("{}/{}.log", home, options.name);
}

bool is_child(pid_t process, pid_t parent) {
  constexpr int kParent = 4;  // proc_pid_stat(5)
  return proc_stat_field(process, kParent) == std::to_string(parent);
}

// Waits until the session answers. Fails if the recorder ends before that; it has said why.
Result<int> wait_for_session(pid_t recorder, const StartOptions& options, const std::string& output) {
  const SessionClient session({geteuid(), options.name});
  const auto end = std::chrono::steady_clock::now() + kLongestStart;
  while (std::chrono::steady_clock::now() < end) {
    // Somebody else may have taken the name meanwhile.
    const auto status = session.status();
    if (status && is_child(static_cast<pid_t>(status->recorder), recorder)) {
      fmt::print("{}: recording to {}; its output goes to {}\n", options.name, printable(status->trace),
                 printable(output));
      return 0;
    }
    int ended = 0;
    if (waitpid(recorder, &ended, WNOHANG) == recorder) {
      if (WIFEXITED(ended)) {
        const Status status{WEXITSTATUS(ended)};
        const bool has_said_why = status == kCannotRecord || status == kCannotExecute || status == kNotFound;
        if (!has_said_why) {
          notice("session '{}' has ended already, with status {}", options.name, static_cast<int>(status));
        }
        return static_cast<int>(status);
      }
      return Error{fmt::format("the recorder was ended by signal {}", WTERMSIG(ended))};
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return Error{fmt::format("the session does not answer; its recorder is process {}", recorder)};
}

Result<int> start(const StartOptions& options) {
  TRY(load_systemd());
  ASSIGN_OR_RETURN(const UserDirectory directory, own_directory());
  if (directory.connect(options.name)) {
    return Error{fmt::format("there is a session '{}' already (see redrive ps)", options.name)};
  }
  ASSIGN_OR_RETURN(const std::string output, output_of(options));
  std::vector<std::string> words{"redrive", "record", "--session", options.name, "--output", output};
  words.insert(words.end(), options.record.begin(), options.record.end());
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const pid_t recorder = fork();
  if (recorder < 0) return errno_error("cannot fork");
  if (recorder == 0) become(arguments.data(), null.get());
  return wait_for_session(recorder, options, output);
}

constexpr CommandText kStartText{
    "start",
    "redrive start [--output FILE] NAME [RECORD-OPTIONS] [--] CMD ...",
    "record a command in the background, as a session",
    "The options after NAME are those of redrive record. The session belongs to the caller; 'redrive ps' lists it, "
    "and\n"
    "'redrive stop NAME' ends it. What the command writes goes to FILE, or else to NAME.log beside the traces.\n",
    {{"NAME", "up to 255 letters, digits and any of _.:@+-\\"}}};

class StartCommand : public CommandWith<StartOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    arguments.rest(words_);
    arguments.option("--output", "FILE", "append what the session writes to this file",
                     [this](const std::string& text) -> Result<void> {
                       options_.output = text;
                       return {};
                     });
  }

  Result<void> finish(const Arguments&) override {
    if (words_.empty()) return usage("no name given for the session");
    options_.name = words_.front();
    if (const auto fits = check_session_name(options_.name); !fits) return usage(fits.error().message);
    options_.record.assign(words_.begin() + 1, words_.end());
    // What is wrong with them is said before anything is started.
    std::vector<std::string> record{"record"};
    record.insert(record.end(), options_.record.begin(), options_.record.end());
    const auto parsed = parse_command_line(record);
    if (!parsed) return parsed.error();
    const auto* const recording = dynamic_cast<const CommandWith<RecordOptions>*>(parsed->get());
    if (!recording) return usage("give a command to record (the options of record: redrive record --help)");
    if (!recording->options().session.empty() || !recording->options().output.empty()) {
      return usage("--session and --output are not for the options after NAME");
    }
    return {};
  }

  Result<int> run() override { return start(options_); }

 private:
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_start_command() { return std::make_unique<StartCommand>(kStartText); }

}  // namespace redrive
