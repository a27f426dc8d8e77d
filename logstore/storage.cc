#include "logstore/storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <future>
#include <string_view>

#include "base/beneath.h"
#include "logstore/trace_files.h"

namespace redrive {
namespace {

// For more files than this, one syncfs(2) is cheaper than an fsync(2) for each.
constexpr size_t kMostSynced = 16;

bool is_below(const std::filesystem::path& name) { return is_directory_of_trace(name.string()); }

// A file of a trace: the trace's directory, which the user has named, and a name below it. The path to the directory
// may contain links; what is below it is a stranger's.
struct Place {
  Fd directory;      // if it cannot be opened: none, with errno
  std::string name;  // below it: "journal", "events/1.seg", "volumes/7/events/1.seg"
};

Place place_of(const std::string& path) {
  std::filesystem::path place(path), name;
  if (!place.has_filename()) place = place.parent_path();  // "DIR/"
  const auto take = [&] {
    name = name.empty() ? place.filename() : place.filename() / name;
    place = place.parent_path();
  };
  take();
  if (is_below(place.filename())) take();
  if (is_volume(place)) take(), take();
  return {Fd(::open(place.empty() ? "." : place.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), name};
}

// The directory of a file, and its name there, for calls that do not follow links at that place.
struct Entry {
  Fd directory;  // none, with errno
  std::string name;
};

Entry entry_of(const std::string& path) {
  Place place = place_of(path);
  const size_t slash = place.name.rfind('/');
  if (!place.directory || slash == std::string::npos) return {std::move(place.directory), std::move(place.name)};
  return {open_beneath(place.directory.get(), place.name.substr(0, slash), O_PATH | O_DIRECTORY),
          place.name.substr(slash + 1)};
}

// What root adds to another user's trace belongs to that user, who could neither read nor remove it otherwise.
// `directory`: in which it was made.
void give_to_owner(int made, const Fd& directory) {
  struct stat above {};
  if (::geteuid() != 0 || ::fstat(directory.get(), &above) != 0 || above.st_uid == 0) return;
  const int given = ::fchown(made, above.st_uid, above.st_gid);
  static_cast<void>(given);  // root without that privilege keeps it
}

Fd open_place(const std::string& path, int flags) {
  constexpr mode_t kMode = 0666;
  const Place place = place_of(path);
  if (!place.directory) return {};
  Fd fd = open_beneath(place.directory.get(), place.name, flags, kMode);
  if (fd && (flags & O_CREAT)) give_to_owner(fd.get(), place.directory);
  return fd;
}

// The path of the trace's directory itself may be a link.
Fd open_directory(const std::string& path) {
  const bool below = is_below(std::filesystem::path(path).filename()) || is_volume(path);
  return below ? open_place(path, O_RDONLY | O_DIRECTORY)
               : Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

Error open_error(const std::string& what) {
  if (errno == ELOOP) return Error{what + ": a symbolic link, or below one", Status::damaged};
  return errno_error(what);
}

Result<void> sync_file(const std::string& path, int (*sync)(int) = ::fsync) {
  Fd fd = open_directory(path);
  if (!fd && errno == ENOTDIR) fd = open_place(path, O_RDONLY);
  if (!fd) return open_error("cannot open " + path);
  if (sync(fd.get()) != 0) return errno_error("cannot write " + path);
  return {};
}

// A trace is untrusted: links are not followed, and only regular files are opened. A file that is opened for writing
// must have no other name, because a write would change the file under that name too.
Result<Fd> open_regular(const std::string& path, int flags, const char* what, struct stat& info) {
  Fd fd = open_place(path, flags & ~O_TRUNC);
  const bool is_other = errno == ENXIO || errno == EISDIR;  // a FIFO or a directory, to be written to
  if (!fd && is_other) return Error{what + path + ": not a regular file", Status::damaged};
  if (!fd || ::fstat(fd.get(), &info) != 0) return open_error(what + path);
  if (!S_ISREG(info.st_mode)) return Error{what + path + ": not a regular file", Status::damaged};
  if ((flags & O_ACCMODE) != O_RDONLY && info.st_nlink > 1)
    return Error{what + path + ": it has another name (a hard link)", Status::damaged};
  if (flags & O_TRUNC) {
    if (::ftruncate(fd.get(), 0) != 0) return errno_error(what + path);
    info.st_size = 0;
  }
  return fd;
}

class DiskFile : public File {
 public:
  DiskFile(Fd fd, std::string path, uint64_t size) : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}

  Result<void> append(std::span<const uint8_t> data) override {
    while (!data.empty()) {
      const ssize_t n = ::write(fd_.get(), data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_error("cannot write " + path_);
      size_ += static_cast<uint64_t>(n);
      data = data.subspan(static_cast<size_t>(n));
    }
    return {};
  }

  Result<size_t> read(uint64_t, std::span<uint8_t>) const override { return Error{path_ + ": open for writing only"}; }

  Result<void> truncate(uint64_t size) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return errno_error("cannot truncate " + path_);
    size_ = size;
    return {};
  }

  uint64_t size() const override { return size_; }

 private:
  Fd fd_;
  std::string path_;
  uint64_t size_;
};

// A trace may have more files than a process may have open, so only the first files that are read stay open.
class DiskReader : public File {
 public:
  static Result<std::unique_ptr<File>> open(const std::string& path) {
    struct stat info {};
    ASSIGN_OR_RETURN(Fd fd, open_regular(path, O_RDONLY, "cannot open ", info));
    if (held_.fetch_add(1) >= kMostHeld) {
      --held_;
      fd = Fd();
    }
    return std::unique_ptr<File>(new DiskReader(std::move(fd), path, info));
  }
  ~DiskReader() override {
    if (fd_) --held_;
  }

  Result<size_t> read(uint64_t offset, std::span<uint8_t> to) const override {
    if (fd_) return read(fd_.get(), offset, to);
    struct stat info {};
    ASSIGN_OR_RETURN(const Fd fd, open_regular(path_, O_RDONLY, "cannot open ", info));
    if (info.st_dev != info_.st_dev || info.st_ino != info_.st_ino) return Error{path_ + " was replaced meanwhile"};
    return read(fd.get(), offset, to);
  }

  Result<void> append(std::span<const uint8_t>) override { return Error{path_ + ": open for reading only"}; }
  Result<void> truncate(uint64_t) override { return Error{path_ + ": open for reading only"}; }
  uint64_t size() const override { return static_cast<uint64_t>(info_.st_size); }
  uint64_t next_data(uint64_t offset) const override { return fd_ ? redrive::next_data(fd_.get(), offset) : offset; }

 private:
  static constexpr int kMostHeld = 256;

  DiskReader(Fd fd, std::string path, const struct stat& info)
      : fd_(std::move(fd)), path_(std::move(path)), info_(info) {}

  Result<size_t> read(int fd, uint64_t offset, std::span<uint8_t> to) const {
    size_t done = 0;
    while (done < to.size()) {
      const ssize_t n = ::pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_error("cannot read " + path_);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  static std::atomic<int> held_;
  const Fd fd_;  // none: the file is opened for each read
  const std::string path_;
  const struct stat info_;
};
std::atomic<int> DiskReader::held_ = 0;

class Disk : public Storage {
 public:
  Result<std::unique_ptr<File>> create(const std::string& path) override {
    return open_file(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, "cannot create ");
  }
  Result<std::unique_ptr<File>> append_to(const std::string& path) override {
    return open_file(path, O_WRONLY | O_APPEND, "cannot open ");
  }
  Result<std::unique_ptr<File>> open(const std::string& path) override { return DiskReader::open(path); }
  // A link counts as existing, wherever it leads.
  bool exists(const std::string& path) override {
    struct stat info {};
    const Entry entry = entry_of(path);
    if (!entry.directory) return errno != ENOENT && errno != ENOTDIR;
    if (entry.name.empty()) return true;  // "/"
    const int found = ::fstatat(entry.directory.get(), entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW);
    return found == 0 || (errno != ENOENT && errno != ENOTDIR);
  }

  Result<void> make_directory(const std::string& path) override {
    const Entry entry = entry_of(path);
    if (!entry.directory || ::mkdirat(entry.directory.get(), entry.name.c_str(), 0777) != 0) {
      return errno == EEXIST ? already_exists(path) : open_error("cannot make directory " + path);
    }
    if (is_below(entry.name)) {
      const Fd made = open_beneath(entry.directory.get(), entry.name, O_RDONLY | O_DIRECTORY);
      if (made) give_to_owner(made.get(), entry.directory);
    }
    return {};
  }
  Result<void> link(const std::string& from, const std::string& to) override {
    const Entry old = entry_of(from), place = entry_of(to);
    const bool found = old.directory && place.directory;
    if (found && ::linkat(old.directory.get(), old.name.c_str(), place.directory.get(), place.name.c_str(), 0) == 0)
      return {};
    return open_error("cannot link " + from + " to " + to);
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    const Entry old = entry_of(from), place = entry_of(to);
    const bool found = old.directory && place.directory;
    if (found && ::renameat(old.directory.get(), old.name.c_str(), place.directory.get(), place.name.c_str()) == 0)
      return {};
    return open_error("cannot rename " + from + " to " + to);
  }
  Result<void> remove(const std::string& path) override {
    const Entry entry = entry_of(path);
    const auto unlink = [&](int flags) {
      return entry.directory && ::unlinkat(entry.directory.get(), entry.name.c_str(), flags) == 0;
    };
    if (unlink(0) || (errno == EISDIR && unlink(AT_REMOVEDIR))) return {};
    return open_error("cannot remove " + path);
  }

  Result<std::vector<std::string>> list(const std::string& directory) override { return list(directory, S_IFREG); }
  Result<std::vector<std::string>> list_directories(const std::string& directory) override {
    auto names = list(directory, S_IFDIR);
    if (names) std::erase_if(names.value(), [](const std::string& name) { return name == "." || name == ".."; });
    return names;
  }
  static Result<std::vector<std::string>> list(const std::string& directory, mode_t type) {
    const Fd fd = open_directory(directory);
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(fd ? ::fdopendir(::dup(fd.get())) : nullptr, ::closedir);
    if (!dir) return open_error("cannot list " + directory);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(dir.get())) {
      struct stat st;
      const bool found = ::fstatat(fd.get(), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
      if (found && (st.st_mode & S_IFMT) == type) names.emplace_back(entry->d_name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Syncs all files at the same time: each fsync waits for a commit of the file system's journal, and those that wait
  // at the same time share a commit.
  Result<void> sync(const std::vector<std::string>& paths) override {
    if (paths.empty()) return {};
    if (paths.size() > kMostSynced) return sync_file(paths.front(), ::syncfs);
    std::vector<std::future<Result<void>>> others;
    for (size_t i = 1; i < paths.size(); ++i) {
      const auto sync_one = [&path = paths[i]] { return sync_file(path); };
      try {
        others.push_back(std::async(std::launch::async, sync_one));
      } catch (const std::system_error&) {  // no thread can be started
        others.push_back(std::async(std::launch::deferred, sync_one));
      }
    }
    Result<void> result = sync_file(paths.front());
    for (auto& other : others) {
      Result<void> its = other.get();
      if (result && !its) result = std::move(its);
    }
    return result;
  }

  Fd lock(const std::string& directory) override {
    Fd fd = open_directory(directory);
    return fd && ::flock(fd.get(), LOCK_EX) == 0 ? std::move(fd) : Fd();  // somebody who asks holds it for a moment
  }
  bool locked(const std::string& directory) override {
    const Fd fd = open_directory(directory);
    return fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }

  bool has_real_paths() const override { return true; }

 private:
  static Result<std::unique_ptr<File>> open_file(const std::string& path, int flags, const char* what) {
    struct stat info {};
    ASSIGN_OR_RETURN(Fd fd, open_regular(path, flags, what, info));
    return std::unique_ptr<File>(std::make_unique<DiskFile>(std::move(fd), path, static_cast<uint64_t>(info.st_size)));
  }
};

}  // namespace

Storage& disk() {
  static Disk instance;
  return instance;
}

Error already_exists(const std::string& path) {
  return Error{path + " already exists: choose another directory, or remove it"};
}

uint64_t next_data(int fd, uint64_t offset) {
  const off_t data = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data >= 0) return static_cast<uint64_t>(data);
  if (errno != ENXIO) return offset;  // the file system cannot tell
  const off_t end = ::lseek(fd, 0, SEEK_END);
  return end < 0 ? offset : std::max(offset, static_cast<uint64_t>(end));
}

Result<void> copy_file(Storage& storage, const std::string& from, const std::string& to) {
  constexpr size_t kBlock = 1 << 20;
  ASSIGN_OR_RETURN(const auto source, storage.open(from));
  ASSIGN_OR_RETURN(const auto copy, storage.create(to));
  Bytes block(kBlock);
  for (uint64_t at = 0;;) {
    if (const uint64_t data = source->next_data(at); data > at) {
      TRY(copy->truncate(data));
      at = data;
    }
    ASSIGN_OR_RETURN(const size_t n, source->read(at, block));
    if (n == 0) return {};
    TRY(copy->append(std::span(block).first(n)));
    at += n;
  }
}

Result<void> remove_tree(Storage& storage, const std::string& directory) {
  ASSIGN_OR_RETURN(const auto below, storage.list_directories(directory));
  for (const auto& name : below) TRY(remove_tree(storage, directory + "/" + name));
  ASSIGN_OR_RETURN(const auto files, storage.list(directory));
  for (const auto& name : files) TRY(storage.remove(directory + "/" + name));
  return storage.remove(directory);
}

}  // namespace redrive
