#include "supervisor/memory_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>

#include "checkpoint/address_space.h"
#include "supervisor/recorder.h"
#include "supervisor/registers.h"

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
  pid_t pid = 0;
  int size = 0;
  if (readlink(descriptor_path(process.pid, fd).c_str(), name, sizeof name - 1) < 0) return 0;
  if (std::sscanf(name, "/proc/%d%n", &pid, &size) != 1) return 0;
  pid_t tid = 0;
  int more = 0;
  if (std::sscanf(name + size, "/task/%d%n", &tid, &more) == 1) size += more;
  return std::strcmp(name + size, "/mem") == 0 ? pid : 0;
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

void Recorder::record_memory_call(Thread& thread, int64_t result, Event& event, const gate::Record* served) {
  const Special special = thread.row->special;
  Process& process = *thread.process;
  if (special != Special::none) process.shared_mappings.reset();
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

Result<void> replay_object_change(const ObjectChange& change, SharedObjects& shared, const FilePath& file_path) {
  using Kind = ObjectChange::Kind;
  switch (change.kind) {
    case Kind::size:
      return shared.resize(change.object, change.offset);
    case Kind::zeros:
      return shared.clear(change.object, change.offset, change.length);
    case Kind::data:
      return shared.write(change.object, change.offset, change.data.data(), change.data.size());
    case Kind::file: {
      ASSIGN_OR_RETURN(const std::string path, file_path(change.file));
      return shared.fill(change.object, change.offset, change.length, path);
    }
  }
  return {};
}

Result<void> replay_memory_call(const Event& event, Special special, const Stub& stub, Address& brk, Calls& calls,
                                SharedObjects& shared, const FilePath& file_path) {
  const auto& args = event.args;
  const bool failed = is_error(event.result);
  switch (special) {
    case Special::mmap:
    case Special::shmat: {
      if (failed || !event.map) return {};
      Mapping mapping;
      mapping.start = static_cast<Address>(event.result);
      mapping.end = mapping.start + event.map->length;
      mapping.protection = special == Special::mmap ? static_cast<int>(args[2]) : PROT_READ | PROT_WRITE;
      mapping.offset = event.map->offset;
      mapping.file = event.map->file;
      mapping.shared_object = event.map->shared_object;
      if (special == Special::mmap && (args[3] & MAP_GROWSDOWN)) mapping.name = "[stack]";
      return map(calls, mapping, shared, file_path);
    }
    case Special::shmdt: {
      if (failed) return {};
      // All that is left of the segment that was attached there (shmat(2)), parts of which may be gone.
      ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid()));
      const Mapping* first = nullptr;
      for (const auto& mapping : mappings) {
        if (!mapping.shared || mapping.start < args[0] || mapping.start - mapping.offset != args[0]) continue;
        if (!first) first = &mapping;
        if (mapping.device == first->device && mapping.inode == first->inode) {
          TRY(calls.unmap(mapping.start, mapping.length()));
        }
      }
      if (!first) return Error{"shmdt of memory that is not mapped"};
      return {};
    }
    case Special::munmap:
      if (failed) return {};
      return calls.unmap(args[0], args[1]);
    case Special::mprotect:
      if (failed) return {};
      return calls.add("protect memory in a stub", SYS_mprotect, {args[0], args[1], args[2]});
    case Special::madvise:
      if (failed) return {};
      return calls.add("empty memory in a stub", SYS_madvise, {args[0], args[1], args[2]});
    case Special::mremap: {
      if (failed) return {};
      const auto target = static_cast<Address>(event.result);
      const uint64_t flags =
          target == args[0] ? args[3] & ~uint64_t{MREMAP_FIXED} : args[3] | MREMAP_MAYMOVE | MREMAP_FIXED;
      return calls.add("move memory in a stub", SYS_mremap, {args[0], args[1], args[2], flags, target});
    }
    case Special::brk: {
      const auto target = static_cast<Address>(event.result);
      const Address from = page_up(std::exchange(brk, target)), to = page_up(target);
      if (to > from) return calls.map_anonymous(from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
      if (to < from) return calls.unmap(to, from - to);
      return {};
    }
    default:
      return {};
  }
}

bool may_have_changed(const Event& event, Special special) {
  if (!is_error(event.result)) return false;
  switch (special) {
    case Special::mprotect:
      return event.result != -EINVAL;  // which is found first
    case Special::madvise:
      return event.args[2] == MADV_DONTNEED || event.args[2] == MADV_DONTNEED_LOCKED || event.args[2] == MADV_REMOVE;
    case Special::mremap:
      return event.args[3] & MREMAP_FIXED;  // its target is unmapped first
    default:
      return false;
  }
}

Result<void> replay_failed_memory_call(const Event& event, const Stub& stub, pid_t tid) {
  const auto& args = event.args;
  const Address start = args[0], end = start + page_up(args[1]);
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid()));
  Address reached = start;
  size_t pieces = 0;
  bool hole = false;
  for (const auto& mapping : mappings) {
    if (mapping.end <= start || end <= mapping.start) continue;
    hole |= mapping.start > reached;
    reached = mapping.end;
    ++pieces;
  }
  hole |= reached < end;
  const bool remaps = event.number == SYS_mremap;
  if (remaps || (hole && event.result == -ENOMEM)) {
    ASSIGN_OR_RETURN(const int64_t result, stub.call(tid, event.number, {args[0], args[1], args[2], args[3], args[4]}));
    if (result == event.result) return {};
  } else if (pieces <= 1) {
    return {};  // all of it or nothing
  }
  return Error{std::string(syscall_name(event.number)) + " failed with " + std::string(error_name(event.result)) +
               " when it was recorded, and how much of its memory it had changed by then is not known"};
}

Result<bool> remap_pieces(const Event& event, const Stub& stub, Calls& calls) {
  const auto& args = event.args;
  const auto target = static_cast<Address>(event.result);
  const Address start = args[0], end = start + page_up(args[1]), new_end = start + page_up(args[2]);
  const auto first = mapping_of(stub.pid(), start);
  if (!first || first->end >= end || (target == start && new_end <= end)) return false;
  ASSIGN_OR_RETURN(const auto mappings, read_mappings(stub.pid()));
  const uint64_t flags = args[3] | MREMAP_MAYMOVE | MREMAP_FIXED;
  for (const auto& mapping : mappings) {
    const Address from = std::max(mapping.start, start), to = std::min(mapping.end, end);
    const Address new_to = to == end ? new_end : std::min(to, new_end);
    if (from >= to) continue;
    if (new_to <= from) {
      TRY(calls.unmap(from, to - from));
    } else if (target != start) {
      TRY(calls.add("move memory in a stub", SYS_mremap,
                    {from, to - from, new_to - from, flags, target + (from - start)}));
    } else if (to == end) {
      TRY(calls.add("resize memory in a stub", SYS_mremap, {from, to - from, new_to - from, 0, 0}));
    }
  }
  return true;
}

std::optional<LocalDescriptor> descriptor_written(std::span<const uint64_t, 6> args, const Memory& memory) {
  constexpr uint32_t kOlder = 1;
  return LocalDescriptor::read(memory, args[1], static_cast<uint32_t>(args[0]) == kOlder);
}

std::optional<StackLimit> stack_limit_set_by(int64_t number, std::span<const uint64_t, 6> args, int64_t result) {
  if (result != 0) return std::nullopt;
  if (number == SYS_setrlimit && args[0] == RLIMIT_STACK) return StackLimit{0, args[1]};
  if (number == SYS_prlimit64 && args[1] == RLIMIT_STACK && args[2])
    return StackLimit{static_cast<int32_t>(args[0]), args[2]};
  return std::nullopt;
}

}  // namespace redrive
