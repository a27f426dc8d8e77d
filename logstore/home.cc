#include "logstore/home.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace redrive {
namespace {

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

}  // namespace

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

std::string home_for(const HomeNames& names) {
  if (auto own = environment(names.own); !own.empty()) return own;
  if (const auto xdg = environment(names.xdg); !xdg.empty()) return xdg + "/redrive";
  if (const auto home = environment("HOME"); !home.empty()) {
    return (std::filesystem::path(home) / names.below_home / "redrive").string();
  }
  // If there are several directories, they are separated by colons.
  if (const auto service = environment(names.service); !service.empty()) {
    return service.substr(0, service.find(':')) + "/redrive";
  }
  if (geteuid() == 0) return std::string(names.below_system) + "/redrive";
  const passwd* user = getpwuid(geteuid());
  if (!user || !is_directory(user->pw_dir) || std::string(user->pw_dir) == "/") return "";
  return std::string(user->pw_dir) + "/" + names.below_home + "/redrive";
}

}  // namespace redrive
