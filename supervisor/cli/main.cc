// redrive(1). The only place that prints errors and turns them into exit statuses.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "base/limits.h"
#include "base/private_files.h"
#include "base/text.h"
#include "supervisor/cli/command_line.h"
#include "supervisor/record/exit_status.h"
#include "supervisor/record/front.h"

namespace redrive {
namespace {

Result<int> run(const PrintText& text) {
  fmt::print("{}", text.text);
  return 0;
}
Result<int> record_behind_front(const RecordOptions& options) {
  TRY(check_limits());
  ASSIGN_OR_RETURN(const std::optional<int> ended, stand_in_front());
  return ended ? *ended : record(options);
}
// What is 1 elsewhere would look like the program's own status.
Result<int> run(const RecordOptions& options) {
  try {
    auto status = record_behind_front(options);
    if (status || status.error().status >= kCannotRecord) return status;
    return Error{status.error().message, kCannotRecord};
  } catch (const std::exception& failure) {
    return Error{describe(failure), kCannotRecord};
  }
}
template <typename Options>
Options with_progress(Options options) {
  options.progress = isatty(STDERR_FILENO) != 0;
  return options;
}
Result<int> run(const ReplayOptions& options) {
  TRY(check_limits());
  return replay(with_progress(options));
}
Result<int> run(const PrepareOptions& options) {
  TRY(check_limits());
  return prepare(with_progress(options));
}
Result<int> run(const ListOptions& options) { return list_command(options); }
Result<int> run(const PlanOptions& options) { return plan_command(options); }
Result<int> run(const DumpOptions& options) { return dump_command(options); }
Result<int> run(const StatsOptions& options) { return stats_command(options); }
Result<int> run(const EvaluateOptions& options) { return evaluate_command(options); }
Result<int> run(const CheckOptions& options) { return check_command(options); }
Result<int> run(const CheckHostOptions& options) {
  TRY(check_host(options.json));
  return 0;
}
Result<int> run(const RemoveOptions& options) { return remove_command(options); }

int report(const Error& error) {
  std::fprintf(stderr, "redrive: %s\n", printable_lines(error.message).c_str());  // throws nothing if that fails
  return static_cast<int>(error.status);
}

// In whichever thread: stubs end with us, and what was not published of a trace is nothing. Who records goes on.
[[noreturn]] void out_of_memory() {
  std::fprintf(stderr, "redrive: %s\n", kNoMemory);  // unbuffered: it needs none
  _exit(static_cast<int>(Status::failed));
}

Result<int> main(std::vector<std::string> words) {
  ASSIGN_OR_RETURN(const Command command, parse_command_line(std::move(words)));
  if (!std::holds_alternative<RecordOptions>(command)) std::set_new_handler(out_of_memory);
  ASSIGN_OR_RETURN(const int status, std::visit([](const auto& options) { return run(options); }, command));
  if (std::fflush(stdout) != 0) return errno_error("cannot write the output");
  return status;
}

}  // namespace
}  // namespace redrive

int main(int argc, char** argv) {
  redrive::keep_files_private();
  redrive::lift_limits();
  try {
    const auto status = redrive::main({argv + (argc > 0), argv + argc});
    return status ? status.value() : redrive::report(status.error());
  } catch (const std::exception& failure) {  // no memory; standard output full (fmt)
    return redrive::report(redrive::Error{redrive::describe(failure)});
  }
}
