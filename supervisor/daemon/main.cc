// redrived(8).
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "base/text.h"
#include "supervisor/daemon/supervisor.h"

namespace redrive {
namespace {

constexpr char kHelp[] =
    "usage: redrived\n\n"
    "Offers the machine's redrive sessions on the system bus. It is started by systemd; see redrived(8).\n\n"
    "  -h, --help                print this help\n";

Result<int> main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (argc > 1) return Error{fmt::format("unexpected argument '{}' (redrived --help)", argv[1]), Status::usage};
  if (geteuid() != 0) return Error{"it must run as root, for all users"};
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  ASSIGN_OR_RETURN(const auto supervisor, Supervisor::start());
  return supervisor->run();
}

}  // namespace
}  // namespace redrive

int main(int argc, char** argv) {
  try {
    const auto status = redrive::main(argc, argv);
    if (status) return *status;
    redrive::log_line(SD_ERR, status.error().message);
    return static_cast<int>(status.error().status);
  } catch (const std::exception& failure) {
    redrive::log_line(SD_ERR, redrive::describe(failure));
    return static_cast<int>(redrive::Status::failed);
  }
}
