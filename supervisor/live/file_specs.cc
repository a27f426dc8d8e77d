#include "supervisor/live/file_specs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "supervisor/live/file_content.h"

namespace redrive {
namespace {

using Kind = OpenObject::Kind;

bool is_written_file(const OpenObject& object) {
  return object.kind == Kind::file && !object.terminal_of && (object.flags & O_ACCMODE) != O_RDONLY;
}

// It never had a name.
bool is_temporary(const OpenObject& object) { return (object.flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

void want_directory(const DirectoryRef& directory, WantedInputs& inputs) {
  for (const Directory* at = directory.get(); at && at->number; at = at->base.get()) inputs.want(at->call);
}

void FileSpecs::want_fifos(WantedInputs& inputs) const {
  const bool any_file = std::any_of(needed_.begin(), needed_.end(), [&](const auto& entry) {
    return past_.model.objects()[entry.first].kind == Kind::file;
  });
  for (const auto& [call, base] : past_.model.fifos()) {
    if (!any_file) break;
    inputs.want(call);
    want_directory(base, inputs);
  }
}

// Whether it is worthwhile to know what has happened to the file's name.
bool FileSpecs::may_have_moved(const OpenObject& object, const WantedInputs& inputs) const {
  if (!is_written_file(object) || is_temporary(object)) return false;
  struct stat info {};
  return stat(path_of(object.made.event, object.base, inputs).c_str(), &info) != 0 || S_ISREG(info.st_mode);
}

namespace {

bool removes_directory(const PastCall& call) {
  return call.number == SYS_rmdir || (call.number == SYS_unlinkat && call.args[2] & AT_REMOVEDIR);
}

}  // namespace

// What has happened to names since the first of these files was opened, and to directories in which processes are and
// that are not there.
void FileSpecs::want_names(WantedInputs& inputs) {
  const auto& changes = past_.model.name_changes();
  first_change_ = changes.size();
  for (const auto& [number, peer] : needed_) {
    const OpenObject& object = past_.model.objects()[number];
    if (may_have_moved(object, inputs)) first_change_ = std::min(first_change_, object.names_before);
  }
  bool any_missing = false;
  for (const auto& [name, process] : past_.model.processes()) {
    const DirectoryRef& directory = *process.directory;
    if (process.ended || !is_missing(directory, inputs)) continue;
    any_missing = true;
    first_change_ = std::min(first_change_, directory->names_before);
  }
  for (size_t i = first_change_; i < changes.size(); ++i) {
    if (!any_missing && removes_directory(changes[i].call)) continue;
    inputs.want(changes[i].call.event);
    want_directory(changes[i].from, inputs);
    want_directory(changes[i].to, inputs);
  }
}

// Asks for what was written to the files that are to be made anew.
void FileSpecs::want_content(WantedInputs& inputs) {
  const auto& changes = past_.model.name_changes();
  for (size_t i = first_change_; i < changes.size(); ++i) {
    const PastCall& call = changes[i].call;
    if (!inputs.of(call.event)) {  // it has removed a directory that nobody is in
      changed_.push_back({call.number, 0, "", ""});
      continue;
    }
    changed_.push_back({call.number, call.number == SYS_renameat2 ? call.args[4] : 0,
                        plain_path(path_of(call.event, changes[i].from, inputs, 0)),
                        changes[i].to ? plain_path(path_of(call.event, changes[i].to, inputs, 1)) : ""});
  }
  for (const auto& [number, peer] : needed_) {
    const OpenObject& object = past_.model.objects()[number];
    if (!is_written_file(object) || !has_known_content(object)) continue;
    const auto name = name_of(object, inputs);
    if (name && access(name->c_str(), F_OK) == 0) continue;
    for (const ContentChange& change : object.content) inputs.want(change.call);
  }
}

std::string FileSpecs::directory_of(const DirectoryRef& directory, const WantedInputs& inputs) const {
  if (!directory || !directory->number) return trace_.settings().working_directory;
  return path_of(directory->call, directory->base, inputs);
}

bool FileSpecs::is_missing(const DirectoryRef& directory, const WantedInputs& inputs) const {
  struct stat info {};
  return stat(directory_of(directory, inputs).c_str(), &info) != 0 || !S_ISDIR(info.st_mode);
}

std::vector<std::string> FileSpecs::names_now(const std::string& plain, size_t names_before) const {
  const std::span<const NameChanged> changed = changed_;
  return names_after(plain, changed.subspan(std::max(names_before, first_change_) - first_change_));
}

std::optional<std::string> FileSpecs::directory_now(const DirectoryRef& directory, const WantedInputs& inputs) const {
  std::string found = directory_of(directory, inputs);
  if (!is_missing(directory, inputs)) return found;
  const auto names = names_now(plain_path(found), directory->names_before);
  return names.empty() ? std::nullopt : std::optional(names.front());
}

// `piece`: which of the paths that the call has read.
std::string FileSpecs::path_of(EventRef call, const DirectoryRef& base, const WantedInputs& inputs,
                               size_t piece) const {
  const std::string path = inputs.text(call, piece);
  if (path.starts_with('/')) return path;
  return directory_of(base, inputs) + "/" + path;
}

// The path by which an open file is found; none if it has no name (any more).
std::optional<std::string> FileSpecs::name_of(const OpenObject& object, const WantedInputs& inputs) const {
  const std::string opened = path_of(object.made.event, object.base, inputs);
  if (is_temporary(object)) return std::nullopt;
  if (!may_have_moved(object, inputs)) return opened;
  const std::string plain = plain_path(opened);
  const auto names = names_now(plain, object.names_before);
  if (names.empty()) return std::nullopt;
  return names.front() == plain ? opened : names.front();
}

// Whether the file, of which a description knows only its own writes, was opened again and written.
bool FileSpecs::others_have_written(const OpenObject& object) const {
  if (is_temporary(object)) return false;
  const auto& objects = past_.model.objects();
  return std::any_of(objects.begin() + (&object - objects.data()) + 1, objects.end(), [&](const OpenObject& other) {
    return other.kind == Kind::file && other.path_hash == object.path_hash && other.times_changed > 0;
  });
}

// Whether the file still holds what the program has read last.
Result<void> FileSpecs::check_read(const OpenObject& object, const LiveObject& out, LiveSpec& spec) const {
  if (!object.last_read) return {};
  const EventRef at = object.last_read->event;
  bool differs = false;
  TRY(trace_.for_each_event(at.unit, at.event, at.event + 1, [&](EventIndex, const Event& event) {
    const int fd = ::open(out.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint64_t offset = object.last_read_at;
    for (const MemoryWrite& write : event.writes) {
      if (write.kind != MemoryWrite::Kind::data || fd < 0) continue;
      Bytes now(write.data.size());
      const ssize_t got = pread(fd, now.data(), now.size(), static_cast<off_t>(offset));
      differs |= got != static_cast<ssize_t>(now.size()) || now != write.data;
      offset += write.data.size();
    }
    if (fd >= 0) ::close(fd);
    return true;
  }));
  if (differs) spec.notes.push_back(out.path + " is not what it was when the program was recorded");
  return {};
}

// A file that the program writes is cut to what it held, if only the program has added to it since.
Result<void> FileSpecs::check_written(const OpenObject& object, uint64_t size, LiveObject& out, LiveSpec& spec) const {
  const OpenObject& later = later_.model.same(object);
  const auto length = object.known_length();
  if (length && size < *length) {
    spec.notes.push_back(fmt::format("{} is shorter than it was there ({} bytes)", out.path, *length));
    return {};
  }
  if (later.times_changed == object.times_changed && (!length || size == *length)) return {};
  ASSIGN_OR_RETURN(const bool added, was_added_later(trace_, out.path, object, later));
  if (!added) {
    spec.notes.push_back(out.path + " stays as it is, and may not be as it was there");
  } else if (size > *length) {
    out.cut_to = length;
  }
  return {};
}

// It is made anew, with what it held.
Result<void> FileSpecs::add_nameless(const OpenObject& object, const WantedInputs& inputs, LiveObject& out,
                                     LiveSpec& spec) const {
  const std::string opened = path_of(object.made.event, object.base, inputs);
  out.nameless = true;
  out.path = is_temporary(object) ? opened : std::filesystem::path(opened).parent_path().string();
  auto content = content_of(object, inputs);
  if (!content || others_have_written(object)) {
    return Error{
        fmt::format("the program had removed {} (unlink(2), rename(2)), and it is not known what that held", opened)};
  }
  if (object.mapped || !object.was_empty) {
    spec.notes.push_back(opened +
                         ", which has no name, has what the program wrote there, and nothing else that it held");
  }
  out.content = std::move(*content);
  return {};
}

// One that was removed since is made anew, with what it held if that is known.
void FileSpecs::add_missing(const OpenObject& object, const WantedInputs& inputs, LiveObject& out,
                            LiveSpec& spec) const {
  auto content = content_of(object, inputs);
  const bool known = content && object.was_empty && !object.mapped && !others_have_written(object);
  if (content) out.content = std::move(*content);
  spec.notes.push_back(
      fmt::format("{} is missing: it is made anew{}", out.path, known ? "" : ", and is not as it was there"));
}

Result<void> FileSpecs::add(const OpenObject& object, const WantedInputs& inputs, LiveObject& out,
                            LiveSpec& spec) const {
  out.offset = object.offset;
  out.lock = object.lock;
  const auto name = name_of(object, inputs);
  if (!name) return add_nameless(object, inputs, out, spec);
  out.path = object.terminal_of ? fmt::format("/dev/pts/{}", *object.terminal_of) : *name;
  const bool writes = (object.flags & O_ACCMODE) != O_RDONLY;
  for (const PastCall& setting : object.settings) {
    const WantedInputs::Read* const read = inputs.of(setting.event);
    if (read && !read->pieces.empty() && setting.args[1] != FIONBIO) out.terminal_settings.push_back(read->pieces[0]);
  }
  out.terminal = object.terminal.has_value();
  for (const auto& [number, peer] : needed_) {
    const OpenObject& master = past_.model.objects()[number];
    if (!master.terminal || out.path != fmt::format("/dev/pts/{}", *master.terminal)) continue;
    if (master.read_bytes != object.written_bytes || master.written_bytes != object.read_bytes) {
      return Error{
          fmt::format("something is on its way through the terminal {}, or it changes it: that cannot be made "
                      "again",
                      out.path)};
    }
    out.terminal_of = number;
  }
  if (out.terminal || out.terminal_of) return {};
  const auto& fifos = past_.model.fifos();
  out.fifo = std::any_of(fifos.begin(), fifos.end(),
                         [&](const auto& fifo) { return path_of(fifo.first.event, fifo.second, inputs) == out.path; });
  if (out.fifo && object.read_bytes == 0 && object.written_bytes == 0) return {};
  struct stat info {};
  const bool exists = stat(out.path.c_str(), &info) == 0;
  const auto copy = std::find_if(trace_.files().begin(), trace_.files().end(),
                                 [&](const auto& file) { return file.second.path == out.path; });
  if (copy != trace_.files().end() && !writes && (files_ == Files::trace || !exists)) {
    if (files_ == Files::real) spec.notes.push_back(out.path + " is missing: the trace's copy is read");
    ASSIGN_OR_RETURN(out.path, trace_.file_path(copy->first));
    return {};
  }
  if (!exists && writes) {
    add_missing(object, inputs, out, spec);
    return {};
  }
  if (!exists) return Error{"the program had opened " + out.path + ", which is missing"};
  if (S_ISREG(info.st_mode)) {
    return writes ? check_written(object, static_cast<uint64_t>(info.st_size), out, spec)
                  : check_read(object, out, spec);
  }
  if (S_ISDIR(info.st_mode)) return {};
  constexpr unsigned kMemoryDevices = 1;
  const bool harmless = S_ISCHR(info.st_mode) && major(info.st_rdev) == kMemoryDevices;
  const bool terminal = S_ISCHR(info.st_mode) && out.path == "/dev/tty";
  if (harmless || terminal) {
    out.offset.reset();
    return {};
  }
  return Error{"the program had opened " + out.path + ", which is " + (S_ISFIFO(info.st_mode) ? "a FIFO" : "a device") +
               " and cannot be opened as it was"};
}

}  // namespace redrive
