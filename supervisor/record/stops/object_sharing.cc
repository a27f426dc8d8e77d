#include "supervisor/record/stops/object_sharing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/procfs.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/memory/descriptor_info.h"
#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/memory/object_views.h"
#include "supervisor/record/memory/outside_changes.h"
#include "supervisor/record/memory/private_views.h"
#include "supervisor/record/memory/ranges.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/foreign_memory.h"
#include "supervisor/record/stops/joiner.h"
#include "supervisor/record/tracees/call_paths.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kMostInEvent = 16 << 20;  // bytes of contents; more go into a file copy

// Where the file that the thread's call changes can be found.
std::string changed_path(const Thread& thread) {
  const SyscallRow& row = *thread.call.row;
  const auto changed = static_cast<size_t>(row.changed_arg);
  if (row.args[changed].kind != ArgKind::path) return descriptor_path(thread.tid, thread.call.args[changed]);
  return named_path(thread, changed);
}

void add_data(Event& event, uint64_t object, uint64_t offset, std::span<const uint8_t> data) {
  auto& changes = event.changes;
  const bool goes_on = !changes.empty() && changes.back().kind == ObjectChange::Kind::data &&
                       changes.back().object == object && changes.back().offset + changes.back().length == offset;
  if (!goes_on) changes.push_back({ObjectChange::Kind::data, object, offset, 0, 0, {}});
  changes.back().length += data.size();
  changes.back().data.insert(changes.back().data.end(), data.begin(), data.end());
}

// Adds the pages of `data`, which lies at `offset`, that are not zero.
void add_pages(Event& event, uint64_t object, uint64_t offset, std::span<const uint8_t> data) {
  for (size_t at = 0; at < data.size(); at += kPageSize) {
    const auto page = data.subspan(at, std::min<size_t>(kPageSize, data.size() - at));
    const bool zero = std::all_of(page.begin(), page.end(), [](uint8_t byte) { return byte == 0; });
    if (!zero) add_data(event, object, offset + at, page);
  }
}

// What a write that its thread was killed in can have changed at most.
FileRange written_before_death(const Thread& thread, uint64_t size) {
  const FileRange all{0, size};
  if (thread.call.row->traffic == Traffic::transfer) return all;
  uint64_t asked = 0;
  for (const Span& span : inputs(*thread.call.row, thread.call.args, thread.process->memory)) asked += span.length;
  const uint64_t start = thread.call.position ? *thread.call.position : end_of_write(thread, 0, size);
  if (start < size) return {start, start + std::min(asked, size - start)};
  return {size - std::min(asked, size), size};  // it appends
}

// What a call has changed in a file that has this size now.
FileRange changed_range(const Thread& thread, std::optional<int64_t> result, uint64_t size) {
  const auto& args = thread.call.args;
  switch (thread.call.row->file_change) {
    case FileChange::writes: {
      if (!result) return written_before_death(thread, size);
      const auto length = static_cast<uint64_t>(*result);
      const uint64_t end = end_of_write(thread, length, size), start = end - std::min(end, length);
      // A process that shares the position may have moved it meanwhile.
      const bool moved = thread.call.position && start != *thread.call.position;
      return moved ? FileRange{0, size} : FileRange{start, end};
    }
    case FileChange::replaces:
      return {0, size};
    case FileChange::allocates: {
      constexpr uint64_t kMoves = FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE;
      return {args[2], args[1] & kMoves ? size : args[2] + args[3]};
    }
    case FileChange::none:
    case FileChange::resizes:
      break;
  }
  return {};
}

}  // namespace

bool asks_for_sharing(const Thread& thread) {
  const Special special = thread.call.row->special;
  return special == Special::shmat || (special == Special::mmap && (thread.call.args[3] & MAP_TYPE) != MAP_PRIVATE);
}

// At the exit of a call that has made this shared mapping: its object, which is writable if it can be written through
// the mapping.
MappedObject* ObjectSharing::object_mapped(Thread& thread, const Mapping& made) {
  const bool mmaps = thread.call.row->special == Special::mmap;
  struct stat info {};
  const bool named = mmaps && !(thread.call.args[3] & MAP_ANONYMOUS) &&
                     stat(descriptor_path(thread.tid, thread.call.args[4]).c_str(), &info) == 0 &&
                     S_ISREG(info.st_mode);
  MappedObject& object = objects_.of(made);
  object.has_file |= named;
  if (named) objects_.note_file(object, info.st_dev, info.st_ino);
  // The trace holds no copy of a file that is mostly holes, only what the file contains.
  const bool sparse = info.st_size > static_cast<off_t>(kMostInEvent) && info.st_blocks < info.st_size / 512 / 2;
  if (!named || sparse || DescriptorInfo::read(thread.tid, thread.call.args[4]).writes()) {
    object.writable = true;
    if (named && !object.writable_mapping) forget_versions(object);
    object.writable_mapping = true;
  } else if (object.writable) {
    // The processes that could write to it may be gone.
    thread.process->objects.insert(object.id);
    const bool alone = object_views_.count(object, *thread.process->unit) <= 1;
    if (alone && !object_views_.other_user(object, *thread.process->unit))
      object.writable = object.writable_mapping = false;
  }
  if (object.writable_mapping) private_views_.report_seen_writes(object);
  return &object;
}

Unit* ObjectSharing::unit_to_join(Thread& thread, int64_t result) {
  if (!asks_for_sharing(thread)) return nullptr;
  SharedMappings& known = *thread.process->shared_mappings;
  const auto made = mapping_of(thread.process->shown_as(), static_cast<Address>(result));
  if (is_error(result) || !made || !made->shared) {
    known.forget();
    return nullptr;
  }
  known.add(*made);
  const MappedObject* const object = object_mapped(thread, *made);
  const bool fresh = thread.call.row->special == Special::mmap && (thread.call.args[3] & MAP_ANONYMOUS);
  if (!object->writable || fresh) return nullptr;
  const Unit& unit = *thread.process->unit;
  return joiner_.join_target(unit, object_views_.other_user(*object, unit));
}

std::string ObjectSharing::name_of_mapping(const Thread& thread, int64_t result) {
  const auto made = mapping_of(thread.process->shown_as(), static_cast<Address>(result));
  return made ? made->name : std::string();
}

Unit* ObjectSharing::unit_to_join_for_change(Thread& thread) {
  const SyscallRow& row = *thread.call.row;
  thread.call.changes_object = 0;
  if (objects_.all().empty()) return nullptr;
  const Process& process = *thread.process;
  if (row.special == Special::madvise && thread.call.args[2] == MADV_REMOVE) {
    // All who see the object are in this unit already, because this process can write to it.
    const auto emptied = mapping_of(process.shown_as(), thread.call.args[0]);
    const MappedObject* const object = emptied ? objects_.find(emptied->device, emptied->inode) : nullptr;
    if (!object) return nullptr;
    outside_.report_changes();
    thread.call.changes_object = object->id;
    return nullptr;
  }
  if (row.file_change == FileChange::none) return nullptr;
  const Endpoint* const channel = row.traffic == Traffic::send ? events_.endpoint(thread, row.fd_arg) : nullptr;
  if (channel && channel->kind != Endpoint::Kind::none) return nullptr;
  if (row.truncate_arg >= 0 && !(thread.call.args[static_cast<size_t>(row.truncate_arg)] & O_TRUNC)) return nullptr;
  struct stat info {};
  if (stat(changed_path(thread).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return nullptr;
  MappedObject* const object = objects_.find_file(info.st_dev, info.st_ino);
  if (!object) return nullptr;
  outside_.report_changes();
  thread.call.changes_object = object->id;
  thread.call.position = row.file_change == FileChange::writes ? position_written(thread) : std::nullopt;
  Unit* const other = object_views_.other_user(*object, *process.unit);
  object->writable |= other || object_views_.count(*object, *process.unit);
  return joiner_.join_target(*process.unit, other);
}

void ObjectSharing::map_shared(Thread& thread, Address start, MapSource& source, Event& event) {
  Process& process = *thread.process;
  const auto made = mapping_of(process.shown_as(), start);
  if (!made) {
    findings_.add_unsure(*process.unit, "a mapping could not be found in /proc");
    return;
  }
  MappedObject& object = objects_.of(*made);
  if (thread.call.row->special == Special::shmat) source.length = made->end - start;
  source.offset = made->offset + (start - made->start);
  source.shared_object = object.id;
  process.objects.insert(object.id);
  if (object.has_file) {
    watch_object(object, descriptor_path(thread.tid, thread.call.args[4]));
    outside_.expect_writers();
  }
  if (!object.writable) {
    const auto file = files_.look_at_file(thread, static_cast<int64_t>(start));
    source.file = object.copy = file ? file->id : 0;
    return;
  }
  object_views_.note_sharing(object, *process.unit);
  process.shares_memory = true;
  note_contents(thread, object, *made, {source.offset, source.offset + source.length}, event);
}

// Notes what a writable object holds in a range that was just mapped, except for what another mapping of the unit
// shows: a replay has that already.
void ObjectSharing::note_contents(Thread& thread, const MappedObject& object, const Mapping& made, FileRange range,
                                  Event& event) {
  using Kind = ObjectChange::Kind;
  const Process& process = *thread.process;
  if (thread.call.row->special == Special::mmap && !object.has_file) return;  // it is new, and zero
  const Address start = made.start + (range.start - made.offset);
  std::vector<FileRange> known;
  for (const ObjectViews::View& view : object_views_.of(object, *process.unit, range)) {
    const bool is_it = view.process == &process && view.start <= start && start < view.start + view.length;
    if (!is_it) known.push_back({view.offset, view.end()});
  }
  Fd file = open_object(process.shown_as(), made);
  if (!file && object.has_file && thread.call.row->special == Special::mmap) {
    file = Fd(::open(descriptor_path(thread.tid, thread.call.args[4]).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  }
  struct stat info {};
  const bool sized = object.has_file && file && fstat(file.get(), &info) == 0;
  const auto size = static_cast<uint64_t>(info.st_size);
  if (sized) event.changes.push_back({Kind::size, object.id, size, 0, 0, {}});
  Bytes buffer;
  for (const FileRange& part : without(range, known)) {
    event.changes.push_back(
        {Kind::zeros, object.id, part.start, part.end - part.start, 0, {}});  // a replay may hold what it was
    if (!file) {
      // It has no name by which it could be opened without privilege.
      buffer.resize(kPageSize);
      for (uint64_t at = part.start; at < part.end; at += kPageSize) {
        if (!process.memory.read(made.start + (at - made.offset), buffer.data(), buffer.size())) break;
        add_pages(event, object.id, at, buffer);
      }
      continue;
    }
    const auto data = data_ranges(file.get(), part.start, sized ? std::min(part.end, size) : part.end);
    uint64_t bytes = 0;
    for (const FileRange& piece : data) bytes += piece.end - piece.start;
    if (bytes > kMostInEvent && object.has_file) {
      const std::string path = own_descriptor_path(file.get());
      if (const auto copy = writer_.add_file(path, object.name, false)) {
        event.changes.push_back({Kind::file, object.id, part.start, part.end - part.start, *copy, {}});
        continue;
      }
    }
    constexpr uint64_t kAtOnce = 1 << 20;
    for (const FileRange& piece : data) {
      for (uint64_t at = piece.start; at < piece.end;) {
        buffer.resize(std::min(kAtOnce, piece.end - at));
        const ssize_t got = pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(at));
        if (got <= 0) {
          findings_.add_unsure(*process.unit, "the contents of " + object.name + ", which it maps, could not be read");
          break;
        }
        add_pages(event, object.id, at, std::span(buffer).first(static_cast<size_t>(got)));
        at += static_cast<uint64_t>(got);
      }
    }
  }
}

void ObjectSharing::note_growth(Thread& thread, Address start, Event& event) {
  const uint64_t before = thread.call.args[1], now = thread.call.args[2];
  if (now <= before || thread.process->objects.empty()) return;  // `before` is 0: it is mapped once more
  const auto made = mapping_of(thread.process->shown_as(), start);
  const MappedObject* const object = made && made->shared ? objects_.find(made->device, made->inode) : nullptr;
  if (!object || !object->writable) return;
  const uint64_t offset = made->offset + (start - made->start);
  note_contents(thread, *object, *made, {offset + before, offset + now}, event);
}

void ObjectSharing::note_change(Thread& thread, std::optional<int64_t> result, Event& event) {
  using Kind = ObjectChange::Kind;
  Unit& unit = *thread.process->unit;
  const uint64_t id = thread.call.changes_object;
  MappedObject* const object = objects_.find(id);
  if (!object || (result && is_error(*result))) return;
  if (thread.call.row->file_change == FileChange::none) return;  // a replay makes the call
  object_views_.note_sharing(*object, unit);
  struct stat info {};
  if (stat(changed_path(thread).c_str(), &info) != 0) {
    findings_.add_unsure(unit, "the size of " + object->name + ", which it maps, could not be read");
    return;
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  FileRange changed = changed_range(thread, result, size);
  changed.end = std::min(changed.end, size);
  const bool private_views = private_views_.note_change(thread, *object, changed, version_of(info), event);
  if (!object_views_.count(*object, unit)) {
    if (!private_views && !object_views_.other_user(*object, unit)) forget(*object);
    return;
  }
  event.changes.push_back({Kind::size, id, size, 0, 0, {}});
  std::vector<FileRange> done;
  Bytes buffer;
  for (const ObjectViews::View& view : object_views_.of(*object, unit, changed)) {
    if (view.process->end_logged) continue;
    const FileRange shown{std::max(changed.start, view.offset), std::min(changed.end, view.end())};
    if (shown.start >= shown.end) continue;
    for (const FileRange& part : without(shown, done)) {
      buffer.resize(part.end - part.start);
      const Address from = view.start + (part.start - view.offset);
      if (view.process->memory.read(from, buffer.data(), buffer.size())) {
        add_data(event, id, part.start, buffer);
      } else {
        findings_.add_unsure(unit, "what a call wrote into " + object->name + ", which it maps, could not be read");
      }
    }
    done.push_back(shown);
  }
}

void ObjectSharing::watch_object(const MappedObject& object, const std::string& path) {
  objects_.watch(object, path);
  if (arena_) arena_->watch(object.file_inode);
}

void ObjectSharing::forget(const MappedObject& object) {
  objects_.forget(object.id);
  watch_again();
}

// Forgets the versions of the file that the trace and the arena know by its times (stat(2)): writing through a mapping
// need not change these.
void ObjectSharing::forget_versions(const MappedObject& object) {
  files_.forget(object.file_device, object.file_inode);
  if (arena_) arena_->forget_file(object.file_device, object.file_inode);
}

// Lets calls inside tracees look for the objects that there are.
void ObjectSharing::watch_again() {
  if (!arena_) return;
  arena_->watch_none();
  for (const auto& [other, object] : objects_.all()) {
    if (object.has_file) arena_->watch(object.file_inode);
  }
}

void ObjectSharing::forget_unmapped() {
  constexpr size_t kFew = 64;
  if (objects_.all().size() < kFew + 2 * objects_kept_) return;
  std::set<uint64_t> mapped;
  for (const auto& [id, unit] : tracees_.units()) {
    for (const auto& process : unit->processes) {
      std::erase_if(process->objects, [&](uint64_t object) {
        const MappedObject* const known = objects_.find(object);
        return !known || !object_views_.count(*known, *process);
      });
      mapped.insert(process->objects.begin(), process->objects.end());
    }
  }
  std::vector<uint64_t> unmapped;
  for (const auto& [id, object] : objects_.all()) {
    if (!mapped.contains(id) && !object.unseen_views && private_views_.of(object).empty()) unmapped.push_back(id);
  }
  for (const uint64_t id : unmapped) objects_.forget(id);
  watch_again();
  objects_kept_ = objects_.all().size();
}

}  // namespace redrive
