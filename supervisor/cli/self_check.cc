#include "supervisor/cli/self_check.h"

#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/notice.h"
#include "supervisor/cli/own_process.h"

namespace redrive {
namespace {

constexpr int kNice = 10;

}  // namespace

SelfCheck::SelfCheck(const std::string& directory, bool in_process)
    : thread_([this, path = std::filesystem::absolute(directory).string(), in_process] { run(path, in_process); }) {}

SelfCheck::~SelfCheck() {
  if (!thread_.joinable()) return;
  if (const pid_t process = process_; process > 0) kill(process, SIGKILL);
  thread_.join();
}

// The recorder waits for children of its own thread only, so it does not meet this one.
void SelfCheck::run(const std::string& directory, bool in_process) {
  auto started = start_redrive(
      {"replay", "--all", "--follow", "--json", "--interception", in_process ? "in-process" : "stops", directory},
      kNice);
  if (!started) return;
  process_ = started->pid;
  status_ = wait_for_redrive(std::move(*started), said_, write_error);
  process_ = -1;
}

Result<SelfChecked> SelfCheck::finish() {
  thread_.join();
  const auto said = nlohmann::json::parse(said_, nullptr, false);
  if (!WIFEXITED(status_) || !said.is_object()) {
    return Error{status_ < 0 ? "it could not be started" : "it ended without a result"};
  }
  SelfChecked checked;
  checked.intervals = said.at("intervals").size();
  for (const auto& interval : said.at("intervals")) checked.compared += interval.at("verified").get<bool>();
  checked.followed = said.at("followed");
  checked.divergences = said.at("divergences").get<uint64_t>() + said.at("followed_divergences").get<uint64_t>();
  for (const auto& interval : said.at("intervals")) {
    if (checked.divergences == 0 && !interval.at("error").is_null())
      return Error{interval.at("error").get<std::string>()};
  }
  return checked;
}

}  // namespace redrive
