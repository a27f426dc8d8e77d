#include "supervisor/cli/command.h"

#include <fmt/format.h>

#include "base/text.h"

namespace redrive {

Error usage_error(const std::string& command, const std::string& what) {
  return Error{fmt::format("{}: {} (redrive {} --help)", command, printable(what), command), Status::usage};
}

Result<std::string> Command::only_trace(const Arguments& arguments) const {
  const auto& words = arguments.given_words();
  if (words.size() > 1) return usage(fmt::format("unexpected argument '{}' (give one TRACE)", words[1]));
  return words.empty() ? std::string() : words[0];
}

}  // namespace redrive
