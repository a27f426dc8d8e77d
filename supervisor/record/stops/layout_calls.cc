#include "supervisor/record/stops/layout_calls.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <utility>

#include "base/page.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/memory/packet_rings.h"
#include "supervisor/record/memory/private_views.h"
#include "supervisor/record/stops/code_patching.h"
#include "supervisor/record/stops/object_sharing.h"
#include "supervisor/record/stops/partial_change.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

const dev_t kDevZero = makedev(1, 5);

// This is how the dynamic linker maps a library before it maps its code (mmap(2)). A library that is in use is not
// written to.
bool is_library(const std::array<uint64_t, 6>& args) { return args[3] & MAP_DENYWRITE; }

}  // namespace

bool LayoutCalls::mappable(Thread& thread) {
  constexpr uint64_t kDroppable = 8;  // MAP_DROPPABLE: the kernel may take its contents away
  if (thread.call.row->special != Special::mmap) return true;
  if ((thread.call.args[3] & MAP_TYPE) == kDroppable) return false;
  if (thread.call.args[3] & MAP_ANONYMOUS) return true;
  struct stat info {};
  if (stat(descriptor_path(thread.tid, thread.call.args[4]).c_str(), &info) != 0) return true;
  if (packet_rings_.is_mapped_whole(thread, info)) return true;
  const mode_t type = info.st_mode & S_IFMT;
  constexpr mode_t kNoType =
      0;  // what the kernel makes without a file: a virtual processor's state, a buffer of a device
  return (type != S_IFCHR && type != S_IFSOCK && type != kNoType) || info.st_rdev == kDevZero;
}

// Notes what the call has changed about where the process shows shared objects; unit_to_join() has seen what it mapped
// shared.
void LayoutCalls::note_layout(const Thread& thread, int64_t result) {
  SharedMappings& known = *thread.process->shared_mappings;
  const pid_t pid = thread.process->memory.pid();
  const auto& args = thread.call.args;
  const auto pages = [](Address start, uint64_t length) {
    return AddressRange{page_down(start), page_up(start + length)};
  };
  switch (thread.call.row->special) {
    case Special::mmap:
      if (asks_for_sharing(thread)) return;
      // Without MAP_FIXED the kernel chooses a place where nothing is mapped, or fails and has changed nothing.
      if ((args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != MAP_FIXED) return;
      if (args[3] & MAP_HUGETLB) return known.forget();
      if (is_error(result)) return known.look_again(pid, pages(args[0], args[1]));
      return known.remove(pages(args[0], args[1]));
    case Special::munmap:
      if (is_error(result)) return known.look_again(pid, pages(args[0], args[1]));
      return known.remove(pages(args[0], args[1]));
    case Special::brk:
      return known.remove({page_up(static_cast<Address>(result)), page_up(thread.process->brk)});
    case Special::mremap: {
      // If it failed, it may have moved some of several mappings.
      const Address failed_to = args[3] & MREMAP_FIXED ? args[4] : args[0];
      const Address to = is_error(result) ? failed_to : static_cast<Address>(result);
      return known.moved(pid, pages(args[0], args[1]), pages(to, args[2]));
    }
    case Special::shmdt:
      if (!is_error(result)) known.detached(pid, args[0]);
      return;
    default:
      return;
  }
}

void LayoutCalls::note(Thread& thread, int64_t result, Event& event) {
  if (!note_change(thread, result, event)) return;
  const auto file = files_.look_at_file(thread, result);
  if (!file) return;
  const MappedFile mapped{descriptor_path(thread.tid, thread.call.args[4]), file->version};
  show_file(*thread.process, thread.call.args, *file, *event.map);
  if (thread.call.args[2] & PROT_EXEC) replace_traps(thread, result, *file, mapped, event);
  serve_from_now_on(thread.call.args, *file, mapped);
}

void LayoutCalls::note_served(Thread& thread, const gate::Record& record, Event& event) {
  if (!note_change(thread, record.result, event)) return;
  const FileCopies::KnownFile* const file = files_.served(record.file - 1u);
  if (!file) return;
  show_file(*thread.process, thread.call.args, *file, *event.map);
  const bool code = thread.call.args[2] & PROT_EXEC;
  if (code && record.behind) replace_traps(thread, record.result, *file, {"", file->version}, event);
}

// Returns whether the call has made a private view of a file. Then more is to be noted of that.
bool LayoutCalls::note_change(Thread& thread, int64_t result, Event& event) {
  const Special special = thread.call.row->special;
  Process& process = *thread.process;
  note_layout(thread, result);
  const auto made = static_cast<Address>(result);
  if (special == Special::brk) {
    const Address before = page_up(std::exchange(process.brk, made));
    if (made > before) findings_.note_mapped(*process.unit, {before, made});
  }
  const bool maps = special == Special::mmap || special == Special::shmat;
  if (special == Special::mremap && !is_error(result)) {
    findings_.note_mapped(*process.unit, {made, made + thread.call.args[2]});
    object_sharing_.note_growth(thread, made, event);
  }
  private_views_.report_fresh_view(thread, result);
  if (special == Special::munmap && !is_error(result) && !process.packet_rings.empty()) {
    PacketRings::forget(process, {thread.call.args[0], page_up(thread.call.args[0] + thread.call.args[1])});
  }
  if (is_error(result)) event.map = changed_in_part(thread, result);
  if (!maps || is_error(result)) return false;
  process.maps_growing |= special == Special::mmap && (thread.call.args[3] & MAP_GROWSDOWN);
  MapSource source;
  source.length = page_up(thread.call.args[1]);
  const bool shared = asks_for_sharing(thread);
  if (shared) object_sharing_.map_shared(thread, made, source, event);
  findings_.note_mapped(*process.unit, {made, made + source.length});
  event.map = source;
  return !shared && !(thread.call.args[3] & MAP_ANONYMOUS);
}

void LayoutCalls::show_file(Process& process, const std::array<uint64_t, 6>& args, const FileCopies::KnownFile& file,
                            MapSource& source) {
  source.offset = args[5];
  source.file = file.id;
  if (is_library(args)) return;
  Mapping view;
  view.device = file.device;
  view.inode = file.inode;
  view.name = file.name;
  private_views_.add(process, view, file.version);
}

void LayoutCalls::replace_traps(Thread& thread, int64_t result, const FileCopies::KnownFile& file,
                                const MappedFile& mapped, Event& event) {
  Process& process = *thread.process;
  Mapping made;
  made.start = static_cast<Address>(result);
  made.end = made.start + event.map->length;
  made.protection = static_cast<int>(thread.call.args[2]);
  made.offset = event.map->offset;
  made.device = file.device;
  made.inode = file.inode;
  made.name = file.name;
  if (patching_.is_made_by_library(thread)) {
    patching_.replace_traps(process, made, &mapped, &event);
    patching_.apply_plan(process, made, mapped);
  } else if (patching_.needs_replacement(mapped) && !process.memory.gone()) {
    findings_.add_unsure(*process.unit, "rdtsc or cpuid instructions of " + made.name +
                                            " were left alone: the program loads code itself");
  }
}

void LayoutCalls::serve_from_now_on(const std::array<uint64_t, 6>& args, const FileCopies::KnownFile& file,
                                    const MappedFile& mapped) {
  if (!arena_ || !file.id || !file.identified) return;
  MappedObject* const object = is_library(args) ? nullptr : objects_.find(file.device, file.inode);
  if (object) object->unseen_views = true;
  const bool code = (args[2] & PROT_EXEC) || is_library(args);
  const auto its_code = code ? patching_.mapped_code(mapped, file.name) : gate::MappedCode::unknown;
  if (const auto place = arena_->add_file(file.version, its_code)) files_.serve(*place, file);
}

}  // namespace redrive
