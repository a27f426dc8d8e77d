// Where a user's traces and cache are kept: where the environment says, or else below the user's home directory, or,
// for a service without one, in its state directory.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace redrive {

struct HomeNames {
  const char* own;           // variable that names the directory itself
  const char* xdg;           // variable that names the directory above
  const char* below_home;    // the same, relative to the home directory
  const char* service;       // variable in which systemd.exec(5) gives a service its directory
  const char* below_system;  // the same for root
};
inline constexpr HomeNames kTraceHome{"REDRIVE_TRACE_DIR", "XDG_DATA_HOME", ".local/share", "STATE_DIRECTORY",
                                      "/var/lib"};
inline constexpr HomeNames kCacheHome{"REDRIVE_CACHE_DIR", "XDG_CACHE_HOME", ".cache", "CACHE_DIRECTORY", "/var/cache"};

// Empty if there is no such place: HOME is not set, and the user has no home directory.
std::string home_for(const HomeNames& names);

bool is_directory(const std::string& path);  // false also if it cannot be looked at

// The error for an empty trace_home().
Error no_trace_home();
// Makes trace_home() if it is missing, and returns it.
Result<std::string> make_trace_home();
// Until the lock is closed, nobody else can make a trace with a name that new_trace_directory() has returned. Hold it
// until the directory exists and `latest` names it.
Result<Fd> lock_trace_names();

}  // namespace redrive
