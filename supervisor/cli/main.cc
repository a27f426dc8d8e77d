// redrive(1). The only place that prints errors and turns them into exit statuses.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "base/limits.h"
#include "base/private_files.h"
#include "base/standard_descriptors.h"
#include "base/text.h"
#include "supervisor/cli/command_line.h"

namespace redrive {
namespace {

int report(const Error& error) {
  std::fprintf(stderr, "redrive: %s\n", printable(error.message).c_str());  // if that fails, it throws nothing
  return static_cast<int>(error.status);
}

// Called in any thread. Stubs end with us, and unpublished parts of a trace mean nothing. A recorder continues instead.
[[noreturn]] void out_of_memory() {
  std::fprintf(stderr, "redrive: %s\n", kNoMemory);  // unbuffered: this needs no memory
  _exit(static_cast<int>(Status::failed));
}

Result<int> main(std::vector<std::string> words) {
  ASSIGN_OR_RETURN(const auto command, parse_command_line(std::move(words)));
  if (command->ends_without_memory()) std::set_new_handler(out_of_memory);
  ASSIGN_OR_RETURN(const int status, command->run());
  if (std::fflush(stdout) != 0) return errno_error("cannot write the output");
  return status;
}

}  // namespace
}  // namespace redrive

int main(int argc, char** argv) {
  redrive::fill_standard_descriptors();
  redrive::keep_files_private();
  redrive::lift_limits();
  try {
    const auto status = redrive::main({argv + (argc > 0), argv + argc});
    return status ? status.value() : redrive::report(status.error());
  } catch (const std::exception& failure) {  // out of memory; standard output full (fmt)
    return redrive::report(redrive::Error{redrive::describe(failure)});
  }
}
