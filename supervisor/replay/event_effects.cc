#include "supervisor/replay/event_effects.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "supervisor/replay/divergence.h"
#include "supervisor/replay/program_mappings.h"
#include "supervisor/tier/memory_calls.h"

namespace redrive {

Result<Step> EventEffects::write_memory(const RedrivenThread& thread, EventIndex index, const Event& event) const {
  Bytes message;
  if (event.receive && !event.receive->logged) {
    ASSIGN_OR_RETURN(auto received, messages_.received(*event.receive));
    if (auto* other = std::get_if<OtherContents>(&received)) {
      return diverged(thread, index, std::move(other->expected), std::move(other->found));
    }
    message = std::get<Bytes>(std::move(received));
  }
  const Memory& memory = redriving_.unit.memory(thread);
  uint64_t taken = 0;
  for (const auto& write : event.writes) {
    if (write.changes_pages()) {
      TRY(change_pages(thread, write));
      continue;
    }
    const uint8_t* data = write.data.data();
    if (write.from_message()) {
      if (write.length > message.size() - taken)
        return Error{"an event holds a message that is too short", Status::damaged};
      data = message.data() + taken;
      taken += write.length;
    }
    if (write.length && !memory.write(write.address, data, write.length)) {
      return diverged(thread, index, "writable memory at " + hex(write.address), "none");
    }
  }
  return Step::as_recorded();
}

// Pages of private file mappings become zero, or come to lie beyond the file's end, where they are like all pages after
// the end of any copy.
Result<void> EventEffects::change_pages(const RedrivenThread& thread, const MemoryWrite& write) const {
  RedrivenUnit& unit = redriving_.unit;
  const auto& files = redriving_.trace.files();
  const ProcessSerial owner = unit.memory_owner(thread.process);
  const bool lost = write.kind == MemoryWrite::Kind::beyond_end;
  ASSIGN_OR_RETURN(const auto mappings, program_mappings(redriving_, owner));
  if (files.empty()) return Error{"the trace holds no copy of a file that was mapped", Status::damaged};
  StubCalls calls(unit.stub(owner), thread.tid);
  for (const Mapping& mapping : mappings) {
    Mapping changed;
    changed.start = std::max(mapping.start, page_down(write.address));
    changed.end = std::min(mapping.end, page_up(write.address + write.length));
    if (changed.start >= changed.end || mapping.shared) continue;
    changed.protection = mapping.protection;
    if (lost) {
      changed.file = mapping.file ? mapping.file : files.begin()->first;
      ASSIGN_OR_RETURN(const std::string path, redriving_.file_path(changed.file));
      struct stat info {};
      if (stat(path.c_str(), &info) != 0) return errno_error("cannot look at " + path);
      changed.offset = page_up(static_cast<uint64_t>(info.st_size));
    }
    TRY(map(calls, changed, unit.shared(), redriving_.file_path));
  }
  TRY(calls.run());
  return {};
}

Result<void> EventEffects::change_objects(const Event& event) const {
  if (event.map && event.map->shared_object && !event.map->file) TRY(make_writable(event.map->shared_object));
  for (const ObjectChange& change : event.changes) {
    TRY(make_writable(change.object));
    TRY(replay_object_change(change, redriving_.unit.shared(), redriving_.file_path));
  }
  return {};
}

Result<void> EventEffects::make_writable(uint64_t object) const {
  SharedObjects& shared = redriving_.unit.shared();
  const uint64_t copy = shared.take_copy(object);
  if (!copy) return {};
  ASSIGN_OR_RETURN(const std::string path, redriving_.file_path(copy));
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return errno_error("cannot look at " + path);
  TRY(shared.resize(object, static_cast<uint64_t>(info.st_size)));
  // A copy is identified by its name; stat(2) may give another device than /proc/PID/maps shows (btrfs).
  const auto name = [](const std::string& file) { return file.substr(file.rfind('/') + 1); };
  for (const auto& [serial, process] : redriving_.unit.processes()) {
    ASSIGN_OR_RETURN(const auto mappings, read_mappings(process.stub.pid()));
    StubCalls calls(process.stub, process.stub.pid());
    for (Mapping mapping : mappings) {
      if (!mapping.shared || mapping.inode != info.st_ino || name(mapping.name) != name(path)) continue;
      TRY(shared.fill(object, mapping.offset, mapping.length(), path));
      mapping.shared_object = object;
      TRY(map(calls, mapping, shared, redriving_.file_path));
    }
    TRY(calls.run());
  }
  return {};
}

void EventEffects::limit_stack(const RedrivenThread& thread, const Event& event) const {
  const auto limit = stack_limit_set_by(event.number, event.args, event.result);
  rlimit64 value{};
  if (!limit || !redriving_.unit.memory(thread).get(limit->value, value)) return;
  for (const auto& [serial, process] : redriving_.unit.processes()) {
    const bool meant = limit->pid ? process.pid == limit->pid : serial == thread.process;
    if (meant) process.stub.limit_stack(value.rlim_cur);
  }
}

}  // namespace redrive
