#include "supervisor/record/memory/outside_writers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "base/brief_file.h"
#include "base/procfs.h"
#include "checkpoint/address_space.h"

namespace redrive {
namespace {

constexpr auto kFirstWait = std::chrono::milliseconds(20);
constexpr auto kLongestWait = std::chrono::seconds(5);

// Not what the tracer has ended since its mappings were read, such as a checkpoint's copy.
bool runs_outside(pid_t pid, pid_t tracer) {
  const ProcValues status = proc_status(pid);
  const auto state = status.text("State");
  const bool has_ended = state.empty() || state.starts_with('Z') || state.starts_with('X');
  return !has_ended && status.number("TracerPid") != static_cast<uint64_t>(tracer);
}

std::string command_of(pid_t pid) {
  const std::string line = read_briefly(proc_path(pid, "comm"));
  return line.substr(0, line.find('\n'));
}

}  // namespace

std::vector<OutsideWriter> outside_writers(const std::set<ObjectPlace>& objects, pid_t tracer) {
  std::vector<OutsideWriter> found;
  std::set<ObjectPlace> known;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    const auto mappings = pid == tracer ? Result<std::vector<Mapping>>(Error{}) : read_mappings(pid);
    if (!mappings) continue;
    for (const Mapping& mapping : *mappings) {
      const ObjectPlace object{mapping.device, mapping.inode};
      const bool writes = mapping.shared && (mapping.protection & PROT_WRITE);
      if (!writes || !objects.contains(object) || known.contains(object) || !runs_outside(pid, tracer)) continue;
      known.insert(object);
      found.push_back({object, pid, command_of(pid)});
    }
  }
  return found;
}

void OutsideWriters::expect() {
  wait_ = kFirstWait;
  next_ = Clock::now() + wait_;
}

bool OutsideWriters::due() const {
  return wait_ != Clock::duration::zero() && !under_way_.valid() && Clock::now() >= next_;
}

void OutsideWriters::look(std::set<ObjectPlace> objects) {
  if (objects.empty()) {
    wait_ = Clock::duration::zero();
    return;
  }
  try {
    under_way_ = std::async(std::launch::async, outside_writers, std::move(objects), getpid());
  } catch (const std::system_error&) {  // no thread can be started now
    next_ = Clock::now() + wait_;
  }
}

std::vector<OutsideWriter> OutsideWriters::take() {
  if (!under_way_.valid() || under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  wait_ = std::min<Clock::duration>(wait_ * 4, kLongestWait);
  next_ = Clock::now() + wait_;
  return under_way_.get();
}

}  // namespace redrive
