#include "supervisor/live/image_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "base/text.h"
#include "checkpoint/criu.h"
#include "checkpoint/tiny_program.h"
#include "supervisor/live/keeper.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnFile = 0600, kOwnProgram = 0700;
constexpr const char* kStreams[] = {"stdin", "stdout", "stderr"};

// The first process waits for its children (wait4(2), __WALL) until there are none (ECHILD), and exits.
extern "C" const uint8_t redrive_init_code[], redrive_init_code_end[];
asm(R"(
  .pushsection .rodata
redrive_init_code:
  mov $-1, %rdi
  xor %esi, %esi
  mov $0x40000000, %edx
  xor %r10d, %r10d
  mov $61, %eax
  syscall
  cmp $-10, %rax
  jne redrive_init_code
  xor %edi, %edi
  mov $231, %eax
  syscall
redrive_init_code_end:
  .popsection
)");

Error cannot_create(const fs::path& path, int err) { return errno_error("cannot create " + path.string(), err); }

Result<void> make_file(const fs::path& path, mode_t mode, const std::string& content = {}) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file || ::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    return cannot_create(path, errno);
  }
  return {};
}

Result<void> copy_file(const std::string& from, const fs::path& to) {
  std::error_code failure;
  fs::create_directories(to.parent_path(), failure);
  if (!failure) fs::copy_file(from, to, failure);
  return failure ? Result<void>(cannot_create(to, failure.value())) : Result<void>();
}

bool writes(const LiveObject& object) {
  return object.needed && object.kind == OpenObject::Kind::file && !object.fifo && !object.terminal &&
         !object.terminal_of && (object.flags & O_ACCMODE) != O_RDONLY;
}

}  // namespace

Result<std::unique_ptr<ImageDirectory>> ImageDirectory::begin(const std::string& directory) {
  if (mkdir(directory.c_str(), kOwnProgram) != 0) return cannot_create(directory, errno);
  std::error_code failure;
  const fs::path path = fs::canonical(directory, failure);
  if (failure) return cannot_create(directory, failure.value());
  std::unique_ptr<ImageDirectory> made(new ImageDirectory(path.string()));
  for (const char* const name : kStreams) TRY(make_file(path / name, kOwnFile));
  TRY(made->write_init());
  return made;
}

ImageDirectory::~ImageDirectory() {
  std::error_code ignored;
  if (!done_) fs::remove_all(path_, ignored);
}

Result<void> ImageDirectory::write_init() const {
  const std::span code(redrive_init_code, static_cast<size_t>(redrive_init_code_end - redrive_init_code));
  constexpr Address kCode = kLiveGate + 0x100;
  ASSIGN_OR_RETURN(const Fd program, make_tiny_program("init", {kLiveGate, kCode, code, kCode, false}));
  std::string content(kTinyProgramSize, '\0');
  if (pread(program.get(), content.data(), content.size(), 0) != static_cast<ssize_t>(content.size())) {
    return errno_error("cannot make the program of the first process");
  }
  return make_file(init(), kOwnProgram, content);
}

Result<std::string> ImageDirectory::written_copy(LiveObject& object) {
  const std::string& path = object.path;
  const std::string copy = path_ + "/files" + fs::path("/" + path).lexically_normal().string();
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) {
    TRY(copy_file(path, copy));
    if (object.cut_to && truncate(copy.c_str(), static_cast<off_t>(*object.cut_to)) != 0) {
      return errno_error("cannot cut " + copy);
    }
  } else {
    std::error_code failure;
    fs::create_directories(fs::path(copy).parent_path(), failure);
    TRY(make_file(copy, kOwnFile, {object.content.begin(), object.content.end()}));
    object.content.clear();
  }
  if (stat(copy.c_str(), &info) != 0) return cannot_create(copy, errno);
  sizes_[copy] = static_cast<uint64_t>(info.st_size);
  return copy;
}

Result<void> ImageDirectory::adopt(LiveSpec& spec) {
  std::map<std::string, std::string> copies;
  for (LiveObject& object : spec.objects) {
    if (object.needed && object.kind == OpenObject::Kind::inherited && object.number <= STDERR_FILENO) {
      object.kind = OpenObject::Kind::file;
      object.path = path_ + "/" + kStreams[object.number];
      object.flags = object.number == STDIN_FILENO ? O_RDONLY : O_WRONLY | O_APPEND;
      object.offset.reset();
      continue;
    }
    if (!writes(object) || copies.contains(object.path)) continue;
    struct stat info {};
    if (stat(object.path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) continue;
    ASSIGN_OR_RETURN(copies[object.path], written_copy(object));
    spec.notes.push_back(fmt::format("{} stays as it is: the processes write to {}", object.path, copies[object.path]));
  }
  for (LiveObject& object : spec.objects) {
    if (object.lock)
      spec.notes.push_back(object.path + " is not locked (flock(2)), as CRIU does not take locks by itself");
    object.lock = 0;
    const auto copy = copies.find(object.path);
    if (object.kind == OpenObject::Kind::file && copy != copies.end()) object.path = copy->second;
  }
  return {};
}

Result<std::string> ImageDirectory::add_mapped(const std::string& from, const std::string& recorded_path) {
  if (const auto known = mapped_.find(from); known != mapped_.end()) return known->second;
  const std::string name = fs::path(recorded_path).lexically_normal().filename().string();
  const bool plain = !name.empty() && name != "." && name != "..";
  const std::string copy = fmt::format("{}/mapped/{}/{}", path_, mapped_.size() + 1, plain ? name : "file");
  TRY(copy_file(from, copy));
  constexpr mode_t kAnybody = 0755;  // as far as the directory lets others in
  chmod(copy.c_str(), kAnybody);
  return mapped_[from] = copy;
}

Result<void> ImageDirectory::finish() {
  std::string text =
      "#!/bin/sh\n"
      "# Restores the processes, with the standard streams of this command. Arguments are more options of criu.\n";
  for (const auto& [file, size] : sizes_)
    text += fmt::format("truncate -s {} {} || exit 1\n", size, shell_quoted(file));
  text += fmt::format("{} exec criu restore --images-dir {} --manage-cgroups=ignore", kCriuWithoutBreakpoints,
                      shell_quoted(path_));
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    const std::string name = path_.substr(1) + "/" + kStreams[fd];
    text += fmt::format(" \\\n  --inherit-fd {}", shell_quoted(fmt::format("fd[{}]:{}", fd, name)));
  }
  text += " \"$@\"\n";
  TRY(make_file(script(), kOwnProgram, text));
  done_ = true;
  return {};
}

}  // namespace redrive
