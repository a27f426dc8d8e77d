// Calls that change the memory layout: what the recorder notes of them (the other direction: tier/memory_calls.h).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

const dev_t kDevZero = makedev(1, 5);

}  // namespace

// Mappings of devices cannot be made again, and in those of sockets (packet(7)) and the like the kernel writes when it
// wants: the caller refuses them.
bool Recorder::mappable(Thread& thread) {
  if (thread.row->special != Special::mmap || (thread.args[3] & MAP_ANONYMOUS)) return true;
  struct stat info {};
  if (stat(descriptor_path(thread.process->pid, thread.args[4]).c_str(), &info) != 0) return true;
  const mode_t type = info.st_mode & S_IFMT;
  constexpr mode_t kNoType =
      0;  // what the kernel makes without a file: a virtual processor's state, a buffer of a device
  return (type != S_IFCHR && type != S_IFSOCK && type != kNoType) || info.st_rdev == kDevZero;
}

// The process whose memory is behind a descriptor (proc_pid_mem(5)); 0 if none is.
pid_t Recorder::memory_behind(const Process& process, uint64_t fd) const {
  char name[64] = {};
  if (readlink(descriptor_path(process.pid, fd).c_str(), name, sizeof name - 1) < 0) return 0;
  const std::filesystem::path path(name);  // /proc/PID/mem or /proc/PID/task/TID/mem
  const std::vector<std::string> parts(path.begin(), path.end());
  const bool of_process = parts.size() == 4 && parts[3] == "mem";
  const bool of_thread = parts.size() == 6 && parts[3] == "task" && parts[5] == "mem";
  if ((!of_process && !of_thread) || parts[1] != "proc") return 0;
  return static_cast<pid_t>(parse_number(parts[2]).value_or(0));
}

// The call may have written to the memory of a process by a descriptor.
void Recorder::note_written_memory(Thread& thread, uint64_t written, Event& event) {
  Process& process = *thread.process;
  const SyscallRow& row = *thread.row;
  if (row.file_change != FileChange::writes) return;
  const uint64_t fd = thread.args[static_cast<size_t>(row.changed_arg)];
  const pid_t pid = memory_behind(process, fd);
  if (!pid) return;
  Thread* const owner = pid == process.pid ? &thread : find(pid);
  if (!owner) return;
  Process& target = *owner->process;
  const Address place = end_of_write(thread, written, 0) - written;
  MemoryWrite write{place, written, MemoryWrite::Kind::data, Bytes(written)};
  if (target.memory.read(place, write.data.data(), written)) {
    writes_into(target, thread, event).push_back(std::move(write));
  } else {
    add_unsure(*target.unit, "what was written into its memory could not be read (/proc/PID/mem)");
  }
}

// What the call has changed of where the process shows shared objects; unit_to_join() has seen what it mapped shared.
void Recorder::note_layout(const Thread& thread, int64_t result) {
  SharedMappings& known = *thread.process->shared_mappings;
  switch (thread.row->special) {
    case Special::mmap:
      if (asks_for_sharing(thread)) return;
      // Without MAP_FIXED the kernel chooses a place where nothing is mapped, or fails and has changed nothing.
      if ((thread.args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != MAP_FIXED) return;
      if (is_error(result) || (thread.args[3] & MAP_HUGETLB)) return known.forget();
      return known.remove({thread.args[0], page_up(thread.args[0] + thread.args[1])});
    case Special::munmap:
      if (is_error(result)) return known.forget();
      return known.remove({thread.args[0], page_up(thread.args[0] + thread.args[1])});
    case Special::brk:
      return known.remove({page_up(static_cast<Address>(result)), page_up(thread.process->brk)});
    case Special::mremap:
    case Special::shmdt:
      return known.forget();
    default:
      return;
  }
}

void Recorder::record_memory_call(Thread& thread, int64_t result, Event& event, const gate::Record* served) {
  const Special special = thread.row->special;
  Process& process = *thread.process;
  note_layout(thread, result);
  if (special == Special::brk) process.brk = static_cast<Address>(result);
  if (special == Special::mremap && !is_error(result)) note_growth(thread, static_cast<Address>(result), event);
  report_fresh_view(thread, result);
  const bool maps = special == Special::mmap || special == Special::shmat;
  if (!maps || is_error(result)) return;
  const auto start = static_cast<Address>(result);
  process.maps_growing |= special == Special::mmap && (thread.args[3] & MAP_GROWSDOWN);
  MapSource source;
  source.length = page_up(thread.args[1]);
  if (asks_for_sharing(thread)) {
    map_shared(thread, start, source, event);
  } else if (!(thread.args[3] & MAP_ANONYMOUS)) {
    map_file(thread, start, source, event, served);
  }
  event.map = source;
}

// The file behind the descriptor of an mmap that is stopped at its exit, of which the trace gets a copy. None if it is
// none, or cannot be had.
std::optional<Recorder::KnownFile> Recorder::look_at_file(Thread& thread) {
  Process& process = *thread.process;
  const std::string path = descriptor_path(process.pid, thread.args[4]);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    add_unsure(*process.unit, "a mapped file could not be found in /proc");
    return std::nullopt;
  }
  if (S_ISCHR(info.st_mode)) return std::nullopt;  // /dev/zero: anonymous memory
  char name[PATH_MAX] = {};
  if (readlink(path.c_str(), name, sizeof name - 1) < 0) name[0] = 0;
  const FileVersion version = version_of(info);
  const auto known = file_ids_.find(version);
  if (known != file_ids_.end()) return KnownFile{known->second, version, name};
  const auto id = writer_.add_file(path, name);
  if (!id) {
    add_unsure(*process.unit, "a mapped file could not be copied: " + id.error().message);
    return KnownFile{0, version, name};
  }
  const MappedObject* const object = objects_.find(version.device, version.inode);
  if (!object || !object->writable_mapping) file_ids_.emplace(version, *id);
  return KnownFile{*id, version, name};
}

// Behind an mmap that made a private view of a file. `served`: its record, if it did not stop; then nothing has to be
// asked for.
void Recorder::map_file(Thread& thread, Address start, MapSource& source, Event& event, const gate::Record* served) {
  Process& process = *thread.process;
  const bool code = thread.args[2] & PROT_EXEC;
  // So the dynamic linker maps a library before it maps its code (mmap(2)). Nobody writes to one that is in use.
  const bool library = thread.args[3] & MAP_DENYWRITE;
  std::optional<KnownFile> file;
  if (!served) {
    file = look_at_file(thread);
  } else if (const auto known = served_files_.find(served->file - 1u); known != served_files_.end()) {
    file = known->second;
  }
  if (!file) return;
  source.offset = thread.args[5];
  source.file = file->id;
  if (!library) note_private_view(process, file->version, file->name);
  const MappedFile mapped{served ? "" : descriptor_path(process.pid, thread.args[4]), file->version};
  if (code && (!served || served->behind)) {
    Mapping made;
    made.start = start;
    made.end = start + source.length;
    made.protection = static_cast<int>(thread.args[2]);
    made.offset = source.offset;
    made.device = file->version.device;
    made.inode = file->version.inode;
    made.name = file->name;
    if (is_made_by_library(thread)) {
      replace_cpuid(process, made, &mapped, &event);
      apply_plan(process, made, mapped);
    } else if (const auto* const sites = limits_.cpuid_traps ? nullptr : cpuid_sites_of(mapped);
               sites && !sites->empty()) {
      add_unsure(*process.unit,
                 "cpuid instructions of " + made.name + " were left alone: the program loads code itself");
    }
  }
  if (served || !arena_ || !file->id) return;
  MappedObject* const object = library ? nullptr : objects_.find(file->version.device, file->version.inode);
  if (object && object->writable_mapping) return;
  if (object) object->unseen_views = true;
  const auto its_code = code || library ? mapped_code(mapped, file->name) : gate::MappedCode::unknown;
  if (const auto place = arena_->add_file(file->version, its_code)) served_files_.insert_or_assign(*place, *file);
}

// Whether the thread's call is made by a library, as the dynamic linker is one. A program that maps code by itself is
// an emulator or a translator: it reads that code, and finds what the file holds.
bool Recorder::is_made_by_library(const Thread& thread) {
  const Process& process = *thread.process;
  const auto caller = mapping_of(process.pid, thread.entry.rip);
  if (!caller || !PatchPlans::is_code(*caller)) return false;
  MappedFiles files(process.pid);
  const MappedFile* const file = files.of(*caller);
  if (!file) return false;
  const bool own = process.gate && process.gate->program == &plans_.program(file->version);
  return !own || plans_.kind(*file, caller->name) == CodeFile::library;
}

// What mapping code of the file calls for, which can be reached now.
gate::MappedCode Recorder::mapped_code(const MappedFile& file, const std::string& name) {
  const auto* const sites = limits_.cpuid_traps ? nullptr : cpuid_sites_of(file);
  if (!sites && !limits_.cpuid_traps) return gate::MappedCode::unknown;
  const bool replaced = (sites && !sites->empty()) || plans_.any_ready(file, name);
  return replaced ? gate::MappedCode::replaced : gate::MappedCode::plain;
}

}  // namespace redrive
