#include "logstore/file_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include "base/procfs.h"
#include "logstore/block_sums.h"
#include "logstore/file_store.h"
#include "logstore/home.h"
#include "logstore/record_file.h"
#include "logstore/storage.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSecond_ns = 1'000'000'000;
constexpr int64_t kVerifyCopyAfter_ns = 7 * 24 * 3600 * kSecond_ns;
constexpr int64_t kForgottenAfter_ns = 24 * 3600 * kSecond_ns;  // for half-written files of killed recordings
constexpr size_t kEntries = 16384;
constexpr uint64_t kSamples = 4;
constexpr uint64_t kSampleSize = 4096;
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now);
}

// The linker's id of this build; empty if there is none.
std::string own_build() {
  std::string build;
  const auto visit = [](dl_phdr_info* object, size_t, void* out) {
    for (size_t i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = object->dlpi_phdr[i];
      if (header.p_type != PT_NOTE) continue;
      const auto* at = reinterpret_cast<const char*>(object->dlpi_addr + header.p_vaddr);
      const char* const end = at + header.p_memsz;
      while (at + sizeof(ElfW(Nhdr)) <= end) {
        const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
        const char* const name = at + sizeof note;
        const char* const contents = name + (note.n_namesz + 3) / 4 * 4;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
            std::memcmp(name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
          static_cast<std::string*>(out)->assign(contents, note.n_descsz);
        }
        at = contents + (note.n_descsz + 3) / 4 * 4;
      }
    }
    return 1;  // the program itself comes first
  };
  dl_iterate_phdr(visit, &build);
  return build;
}

bool is_ours(const struct stat& info) { return info.st_uid == geteuid() && !(info.st_mode & kWritableByOthers); }

// Whether the times of files there show all writes. They do not on network file systems, where others write without
// this kernel's knowledge or by another clock, nor on tmpfs, which does not notice writes through mappings.
bool tells_changes(int fd, uint64_t& filesystem) {
  struct statfs info {};
  if (fstatfs(fd, &info) != 0) return false;
  std::memcpy(&filesystem, &info.f_fsid, sizeof filesystem);
  constexpr uint64_t kZfs = 0x2fc12fc1, kBcachefs = 0xca451a4e;
  constexpr uint64_t kLocal[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,    OVERLAYFS_SUPER_MAGIC,
                                 F2FS_SUPER_MAGIC, SQUASHFS_MAGIC,  EROFS_SUPER_MAGIC_V1, kZfs,
                                 kBcachefs};
  return std::find(std::begin(kLocal), std::end(kLocal), static_cast<uint64_t>(info.f_type)) != std::end(kLocal);
}

// Whether somebody has the file open for writing; a write through a mapping changes the file's times only when it is
// the first to a page. The kernel grants a read lease (fcntl(2)) only if nobody does, and only to the owner.
bool may_be_written(int fd, const struct stat& info) {
  fcntl(fd, F_SETSIG, SIGURG);  // SIGURG is ignored by default: somebody may open the file in between
  if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
  }
  // The system's files are replaced, not written to.
  return errno != EACCES || info.st_uid != 0 || (info.st_mode & kWritableByOthers);
}

// Whether every change of the file's bytes from now on changes its version too.
bool stays(int fd, const struct stat& info, uint64_t& filesystem) {
  return is_settled(version_of(info)) && tells_changes(fd, filesystem) && !may_be_written(fd, info);
}

// Hashes some of the bytes, including the first and the last: the first ones of an ELF file contain its build-id.
std::optional<std::string> samples_of(int fd, uint64_t size) {
  const uint64_t length = std::min(size, kSampleSize);
  Bytes all(kSamples * length);
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t offset = (size - length) / (kSamples - 1) * i;
    const uint64_t from = i + 1 == kSamples ? size - length : offset;
    if (pread(fd, all.data() + i * length, length, static_cast<off_t>(from)) != static_cast<ssize_t>(length)) {
      return std::nullopt;
    }
  }
  return hex(XXH3_128bits(all.data(), all.size()));
}

void encode(const FileVersion& version, Encoder& out) {
  out.u(version.device);
  out.u(version.inode);
  out.u(version.size);
  out.s(version.modified_ns);
  out.s(version.changed_ns);
}

Bytes to_bytes(std::span<const uint8_t> data) { return {data.begin(), data.end()}; }

}  // namespace

Bytes encode(const CacheEntry& entry) {
  Encoder out;
  out.str(entry.build);
  encode(entry.version, out);
  out.u(entry.filesystem);
  out.str(entry.samples);
  out.str(entry.facts.content);
  out.u(entry.copy_inode);
  out.s(entry.copy_modified_ns);
  out.bytes(entry.facts.patch_plans);
  out.bytes(entry.facts.trap_sites);
  return out.take();
}

std::optional<CacheEntry> decode_cache_entry(std::span<const uint8_t> payload) {
  Decoder in(payload);
  CacheEntry entry;
  entry.build = in.str();
  entry.version.device = in.u();
  entry.version.inode = in.u();
  entry.version.size = in.u();
  entry.version.modified_ns = in.s();
  entry.version.changed_ns = in.s();
  entry.filesystem = in.u();
  entry.samples = in.str();
  entry.facts.content = in.str();
  entry.copy_inode = in.u();
  entry.copy_modified_ns = in.s();
  entry.facts.patch_plans = to_bytes(in.bytes());
  entry.facts.trap_sites = to_bytes(in.bytes());
  const bool named = entry.facts.content.empty() ? entry.copy_inode == 0 : is_content_name(entry.facts.content);
  if (!in.ok() || !in.at_end() || !named) return std::nullopt;
  return entry;
}

std::string FileCache::home() { return home_for(kCacheHome); }

std::unique_ptr<FileCache> FileCache::open(const std::string& directory, uint64_t limit) {
  return open(directory, limit, own_build());
}

std::unique_ptr<FileCache> FileCache::open(const std::string& directory, uint64_t limit, std::string build) {
  if (directory.empty() || build.empty()) return nullptr;
  std::error_code ignored;
  fs::create_directories(fs::path(directory).parent_path(), ignored);
  ::mkdir(directory.c_str(), 0700);
  Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0 || !is_ours(info)) return nullptr;
  for (const char* below : {"copies", "files"}) {
    ::mkdirat(fd.get(), below, 0700);
    if (fstatat(fd.get(), below, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode) || !is_ours(info)) {
      return nullptr;
    }
  }
  return std::unique_ptr<FileCache>(new FileCache(std::move(fd), limit, std::move(build)));
}

FileCache::FileCache(Fd directory, uint64_t limit, std::string build)
    : directory_(std::move(directory)),
      base_(own_descriptor_path(directory_.get())),
      limit_(limit),
      build_(std::move(build)) {}

std::string FileCache::entry_path(const CacheEntry& entry) const {
  Encoder key;
  encode(entry.version, key);
  key.u(entry.filesystem);
  return base_ + "/files/" + hex(XXH3_128bits(key.data().data(), key.size()));
}

std::string FileCache::temporary(const std::string& path) const {
  return fmt::format("{}.{}-{}.tmp", path, getpid(), now_ns());
}

FileFacts* FileCache::of(const std::string& path, const FileVersion& version) {
  auto [known, fresh] = files_.try_emplace(version);
  if (fresh) known->second = look(path, version);
  return known->second ? &known->second->entry.facts : nullptr;
}

std::optional<FileCache::Known> FileCache::look(const std::string& path, const FileVersion& version) const {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || version_of(info) != version) {
    return std::nullopt;
  }
  Known known;
  known.entry.build = build_;
  known.entry.version = version;
  if (!stays(file.get(), info, known.entry.filesystem)) return std::nullopt;
  auto samples = samples_of(file.get(), version.size);
  if (!samples) return std::nullopt;
  known.entry.samples = std::move(*samples);
  load(known);
  return known;
}

void FileCache::load(Known& known) const {
  const std::string path = entry_path(known.entry);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !is_ours(info)) return;
  const auto file = RecordFile::open(disk(), path, FileKind::facts, 0, 0, Tail::whole);
  if (!file || (*file)->damaged() || (*file)->records().size() != 1) return;
  if ((*file)->records()[0].type != RecordType::file_facts) return;
  auto payload = (*file)->payload((*file)->records()[0]);
  if (!payload) return;
  auto entry = decode_cache_entry(*payload);
  if (!entry || entry->build != build_ || entry->version != known.entry.version ||
      entry->filesystem != known.entry.filesystem || entry->samples != known.entry.samples) {
    return;
  }
  known.stored = std::move(*payload);
  known.entry = std::move(*entry);
  if (!has_copy(known.entry, path)) {
    known.entry.copy_inode = 0;
    known.entry.copy_modified_ns = 0;
    known.entry.facts.content.clear();
  }
}

// Whether the cache's copy is unchanged. Once a week, all of its bytes are compared with their sums; the entry's time
// says when that is due.
bool FileCache::has_copy(const CacheEntry& entry, const std::string& entry_file) const {
  const std::string path = copy_path(entry.facts.content);
  struct stat copy {
  }, noted{};
  if (entry.copy_inode == 0 || lstat(path.c_str(), &copy) != 0 || !S_ISREG(copy.st_mode) || !is_ours(copy) ||
      version_of(copy).size != entry.version.size || copy.st_ino != entry.copy_inode ||
      nanoseconds(copy.st_mtim) != entry.copy_modified_ns) {
    return false;
  }
  if (lstat(entry_file.c_str(), &noted) != 0) return false;
  if (now_ns() - nanoseconds(noted.st_mtim) < kVerifyCopyAfter_ns) return true;
  const auto sums = read_sums(disk(), path);
  if (!sums || !verify_sums(disk(), path, *sums)) return false;
  utimensat(AT_FDCWD, entry_file.c_str(), nullptr, 0);
  return true;
}

// A clone shares its blocks until somebody writes to them, a hard link shares them forever.
bool FileCache::share(const std::string& from, const std::string& to) {
  if (clones_) {
    const Fd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
    const Fd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400));
    if (!source || !target) return false;
    if (ioctl(target.get(), FICLONE, source.get()) == 0) {
      utimensat(AT_FDCWD, from.c_str(), nullptr, 0);
      return true;
    }
    clones_ = false;
    ::unlink(to.c_str());
  }
  if (::link(from.c_str(), to.c_str()) == 0) return true;
  if (errno == EXDEV) shares_ = false;
  return false;
}

FileCache::Put FileCache::put_copy(const FileFacts& facts, const std::string& path) {
  if (facts.content.empty() || !shares_) return Put::nothing;
  const std::string copy = copy_path(facts.content);
  if (!share(copy, path)) return Put::nothing;
  if (share(sums_path(copy), sums_path(path))) return clones_ ? Put::clones : Put::links;
  ::unlink(path.c_str());
  return Put::nothing;
}

bool FileCache::publish(const std::string& from, const std::string& to) {
  const std::string fresh = temporary(to);
  ::chmod(from.c_str(), 0400);
  const bool done = share(from, fresh) && ::rename(fresh.c_str(), to.c_str()) == 0;
  ::unlink(fresh.c_str());  // renaming one name of a file to another name of it leaves both
  return done;
}

// False if the copy below `directory` could neither become the cache's nor be found to be the one that is there.
bool FileCache::keep_copy(CacheEntry& entry, const std::string& directory) {
  const std::string from = directory + "/" + entry.facts.content;
  const std::string to = copy_path(entry.facts.content);
  struct stat fresh {
  }, kept{};
  const auto is_whole = [&](const struct stat& info) { return version_of(info).size == entry.version.size; };
  if (lstat(from.c_str(), &fresh) != 0 || !is_whole(fresh)) return false;
  const auto verified = [&] {
    const auto sums = read_sums(disk(), to);
    return sums && sums->size == entry.version.size && verify_sums(disk(), to, *sums);
  };
  const bool there = lstat(to.c_str(), &kept) == 0 && is_whole(kept) && is_ours(kept) &&
                     ((kept.st_ino == fresh.st_ino && kept.st_dev == fresh.st_dev) || verified());
  if (!there && !(publish(sums_path(from), sums_path(to)) && publish(from, to))) return false;
  if (lstat(to.c_str(), &kept) != 0) return false;
  entry.copy_inode = kept.st_ino;
  entry.copy_modified_ns = nanoseconds(kept.st_mtim);
  return true;
}

void FileCache::keep(const std::string& directory) {
  bool added = false;
  for (auto& [version, known] : files_) {
    if (!known) continue;
    CacheEntry& entry = known->entry;
    if (!entry.facts.content.empty() && entry.copy_inode == 0 && !(shares_ && keep_copy(entry, directory))) {
      entry.facts.content.clear();
    }
    const FileFacts& facts = entry.facts;
    if (facts.content.empty() && facts.patch_plans.empty() && facts.trap_sites.empty()) continue;
    Bytes payload = encode(entry);
    if (payload == known->stored) continue;
    write(*known, payload);
    known->stored = std::move(payload);
    added = true;
  }
  if (added) prune();
}

void FileCache::write(const Known& known, const Bytes& payload) const {
  const std::string path = entry_path(known.entry), fresh = temporary(path);
  RecordWriter writer(disk(), fresh, FileKind::facts);
  writer.add(RecordType::file_facts, payload);
  const bool written = static_cast<bool>(writer.write());
  if (!written || ::chmod(fresh.c_str(), 0600) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
    ::unlink(fresh.c_str());
  }
}

// Removes the copies that have been unused longest until those that no trace shares fit the limit, the oldest entries
// if there are very many, and files that were left half written.
void FileCache::prune() const {
  struct Item {
    std::string path;
    int64_t used_ns;
    uint64_t bytes;
  };
  const auto items_in = [&](const std::string& directory, const auto& describe) {
    std::vector<Item> items;
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      const std::string path = it->path();
      struct stat info {};
      if (lstat(path.c_str(), &info) != 0) continue;
      const bool old = nanoseconds(info.st_ctim) < now_ns() - kForgottenAfter_ns;
      if (is_content_name(it->path().filename())) {
        if (auto item = describe(path, info)) items.push_back(std::move(*item));
      } else if (old && path.ends_with(".tmp")) {
        ::unlink(path.c_str());
      }
    }
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.used_ns < b.used_ns; });
    return items;
  };
  // Making and removing links changes the inode's ctime.
  const auto copies = items_in(base_ + "/copies", [](const std::string& path, const struct stat& info) {
    const bool shared = info.st_nlink > 1;
    return shared ? std::nullopt
                  : std::optional(Item{path, nanoseconds(info.st_ctim), static_cast<uint64_t>(info.st_blocks) * 512});
  });
  uint64_t bytes = 0;
  for (const auto& copy : copies) bytes += copy.bytes;
  for (const auto& copy : copies) {
    if (bytes <= limit_) break;
    ::unlink(copy.path.c_str());
    ::unlink(sums_path(copy.path).c_str());
    bytes -= copy.bytes;
  }
  const auto entries = items_in(base_ + "/files", [](const std::string& path, const struct stat& info) {
    return std::optional(Item{path, nanoseconds(info.st_mtim), 0});
  });
  for (size_t i = 0; i + kEntries < entries.size(); ++i) ::unlink(entries[i].path.c_str());
}

}  // namespace redrive
