#include "supervisor/record/memory/private_views.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/page.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/memory/object_views.h"
#include "supervisor/record/memory/ranges.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// The parts of a view's pages in `range` that its owner has not written to.
std::vector<AddressRange> shown(const Process& process, const Mapping& view, AddressRange range) {
  const auto table = PageTable::open(process.memory.pid());
  if (!table) return {};
  Mapping part = view;
  part.start = page_down(range.start);
  part.end = page_up(range.end);
  part.offset += part.start - view.start;
  std::vector<AddressRange> own;
  for (const PageRun& run : table->stored_pages(part)) own.push_back({run.start, run.start + run.pages * kPageSize});
  return without(range, std::move(own));
}

}  // namespace

void PrivateViews::add(Process& process, const Mapping& view, const FileVersion& version) {
  MappedObject& object = objects_.of(view);
  objects_.note_file(object, version.device, version.inode);
  object.has_file = true;
  if (!object.version) object.version = version;
  object.unseen_views |= process.borrows_memory;
  process.private_views.insert(object.id);
  if (arena_) arena_->watch(object.file_inode);
  if (object.writable_mapping && object_views_.is_mapped(object)) report_seen_writes(object);
}

std::vector<PrivateViews::View> PrivateViews::of(const MappedObject& object) const {
  std::vector<View> found;
  for (const auto& [id, unit] : tracees_.units()) {
    for (const auto& process : unit->processes) {
      if (process->borrows_memory) continue;
      if (!object.unseen_views && !process->private_views.contains(object.id)) continue;
      const auto mappings = read_mappings(process->memory.pid());
      if (!mappings) continue;
      const size_t before = found.size();
      for (const Mapping& mapping : *mappings) {
        const bool it = mapping.device == object.device && mapping.inode == object.inode;
        if (it && !mapping.shared) found.push_back({process.get(), mapping});
      }
      if (found.size() > before) {
        process->private_views.insert(object.id);
      } else {
        process->private_views.erase(object.id);
      }
    }
  }
  return found;
}

void PrivateViews::check(const Process& process, const Mapping& view, const FileVersion& version) {
  const MappedObject* const object = process.private_views.empty() ? nullptr : objects_.find(view.device, view.inode);
  if (!object || !object->version) return;
  if (object->version->size == version.size && object->version->modified_ns == version.modified_ns) return;
  const std::string reason = object->name + ", which it maps, was changed by a process that is not recorded";
  findings_.add_unsure(*process.unit, reason, 0);  // since when is not known
}

void PrivateViews::check_all(const Process& process) {
  if (process.private_views.empty() || process.borrows_memory) return;
  const auto mappings = read_mappings(process.memory.pid());
  if (!mappings) return;
  MappedFiles files(process.memory.pid());
  for (const Mapping& mapping : *mappings) {
    if (mapping.shared || !objects_.find(mapping.device, mapping.inode)) continue;
    if (const MappedFile* const file = files.of(mapping)) check(process, mapping, file->version);
  }
}

void PrivateViews::report_seen_writes(const MappedObject& object) {
  for (const View& view : of(object)) {
    findings_.add_unsure(*view.process->unit,
                         object.name + ", of which it has a private mapping, can change through a shared one");
  }
}

Unit* PrivateViews::unit_that_looks(const Thread& thread) {
  const MappedObject* const object = thread.call.changes_object ? objects_.find(thread.call.changes_object) : nullptr;
  if (!object || thread.call.row->traffic == Traffic::transfer) return nullptr;
  Unit* found = nullptr;
  for (const View& view : of(*object)) {
    Unit* const unit = view.process->unit;
    if (unit != thread.process->unit && (!found || at_rest(*found))) found = unit;
  }
  return found;
}

bool PrivateViews::note_change(Thread& thread, MappedObject& object, FileRange changed, const FileVersion& version,
                               Event& event) {
  using Kind = MemoryWrite::Kind;
  const auto views = of(object);
  object.unseen_views = false;
  if (arena_) arena_->forget_file(object.file_device, object.file_inode);
  const uint64_t size = version.size, before = std::exchange(object.version, version).value_or(version).size;
  const uint64_t end = page_up(size), end_before = page_up(before);
  changed.end = std::min(changed.end, size);
  const FileRange cut_off{std::min(size, before), std::min(end, before)};  // of the page that holds the end
  for (const auto& [process, view] : views) {
    Unit& unit = *process->unit;
    if (&unit != thread.process->unit && !at_rest(unit)) {
      findings_.add_unsure(unit, object.name + ", which it maps, was changed while it ran");
    }
    auto& writes = writes_into(*process, thread, event);
    // Where the view shows this part of the file.
    const auto place = [&view = view](uint64_t from, uint64_t to) {
      const uint64_t first = std::max(from, view.offset), last = std::min(to, view.offset + view.length());
      if (first >= last) return AddressRange{};
      return AddressRange{view.start + (first - view.offset), view.start + (last - view.offset)};
    };
    const AddressRange lost = place(end, end_before), won = place(end_before, end);
    if (lost.start < lost.end) writes.push_back({lost.start, lost.end - lost.start, Kind::beyond_end, {}});
    if (won.start < won.end) writes.push_back({won.start, won.end - won.start, Kind::zeros, {}});
    for (const FileRange& part : {changed, cut_off}) {
      const AddressRange seen = place(part.start, part.end);
      if (seen.start >= seen.end) continue;
      for (const AddressRange& piece : shown(*process, view, seen)) {
        MemoryWrite write{piece.start, piece.end - piece.start, Kind::data, Bytes(piece.end - piece.start)};
        if (process->memory.read(write.address, write.data.data(), write.length)) {
          writes.push_back(std::move(write));
        } else {
          findings_.add_unsure(unit, "what a call wrote into " + object.name + ", which it maps, could not be read");
        }
      }
    }
  }
  object.changed |= !views.empty();
  views_changed_ |= object.changed;
  return !views.empty();
}

void PrivateViews::report_fresh_view(Thread& thread, int64_t result) {
  const bool emptied = thread.call.row->special == Special::madvise && thread.call.args[2] == MADV_DONTNEED;
  const bool grown = thread.call.row->special == Special::mremap && thread.call.args[2] > thread.call.args[1];
  if (!views_changed_ || is_error(result) || (!emptied && !grown)) return;
  const auto mapping =
      mapping_of(thread.process->shown_as(), grown ? static_cast<Address>(result) : thread.call.args[0]);
  if (!mapping || mapping->shared || mapping->inode == 0) return;
  const MappedObject* const object = objects_.find(mapping->device, mapping->inode);
  if (!object || !object->changed) return;
  findings_.add_unsure(*thread.process->unit,
                       object->name + ", which has changed since it was mapped, was mapped or read anew");
}

}  // namespace redrive
