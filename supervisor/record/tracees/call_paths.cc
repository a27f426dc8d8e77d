#include "supervisor/record/tracees/call_paths.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <climits>
#include <string_view>
#include <utility>

#include "base/procfs.h"

namespace redrive {
namespace {

std::string path_of(const Thread& thread, Address address, uint64_t directory) {
  char text[PATH_MAX] = {};
  thread.process->memory.read_some(address, text, sizeof text - 1);
  const std::string base = fmt::format("/proc/{}", thread.tid), process = fmt::format("/proc/{}", thread.process->pid);
  // Names of the caller's own descriptors (proc(5), fd(4)), which are those of its process's first thread.
  const std::pair<std::string_view, std::string> own[] = {{"/proc/self/", process + "/"},
                                                          {"/proc/thread-self/", base + "/"},
                                                          {"/dev/fd/", process + "/fd/"},
                                                          {"/dev/stdout", process + "/fd/1"},
                                                          {"/dev/stderr", process + "/fd/2"}};
  for (const auto& [name, means] : own) {
    if (std::string_view(text).starts_with(name)) return means + (text + name.size());
  }
  if (text[0] == '/') return base + "/root" + text;
  const bool here = static_cast<int>(directory) == AT_FDCWD;
  const std::string from = here ? base + "/cwd" : descriptor_path(thread.tid, directory);
  return text[0] ? from + "/" + text : from;
}

}  // namespace

std::string named_path(const Thread& thread, size_t arg) {
  const auto& call = thread.call;
  const bool relative = arg > 0 && call.row->args[arg - 1].kind == ArgKind::fd;
  return path_of(thread, call.args[arg], relative ? call.args[arg - 1] : static_cast<uint64_t>(AT_FDCWD));
}

std::string executed_path(const Thread& thread) {
  return named_path(thread, thread.call.row->special == Special::execveat ? 1 : 0);
}

}  // namespace redrive
