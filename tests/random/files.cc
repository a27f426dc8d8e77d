// Files and directories, compared with models of them.
#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>

#include "program.h"

namespace {

// One file through several descriptors; each operation is applied to a model as well.
uint64_t one_file(Actor& actor) {
  const std::string name = actor.file_name("file");
  const int fd = MUST(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const int appender = MUST(open(name.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const int copy = MUST(actor.random.coin() ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, 100));
  std::vector<unsigned char> model, buffer(5000);
  for (int i = actor.random.between(5, 60); i > 0; i--) {
    const size_t size = 1 + actor.random.next() % buffer.size();
    const size_t at = model.empty() ? 0 : actor.random.next() % model.size();
    const uint64_t seed = actor.random.next();
    for (size_t k = 0; k < size; k++) buffer[k] = pattern(seed, k);
    const auto stored = [&](size_t where) {
      model.resize(std::max(model.size(), where + size));
      std::copy_n(buffer.begin(), size, model.begin() + static_cast<long>(where));
    };
    switch (actor.random.below(7)) {
      case 0:
        CHECK(pwrite(fd, buffer.data(), size, static_cast<off_t>(at)) == static_cast<ssize_t>(size));
        stored(at);
        break;
      case 1:
        stored(model.size());
        CHECK(write(appender, buffer.data(), size) == static_cast<ssize_t>(size));
        break;
      case 2: {
        std::vector<unsigned char> got(size);
        const ssize_t n = MUST(pread(copy, got.data(), size, static_cast<off_t>(at)));
        CHECK(static_cast<size_t>(n) == std::min(size, model.size() - at) &&
              std::equal(got.begin(), got.begin() + n, model.begin() + static_cast<long>(at)));
        break;
      }
      case 3: {
        const size_t length = actor.random.next() % 20000;
        MUST(ftruncate(copy, static_cast<off_t>(length)));
        model.resize(length);
        break;
      }
      case 4: {
        MUST(lseek(fd, static_cast<off_t>(at), SEEK_SET));
        const iovec parts[2] = {{buffer.data(), size / 2}, {buffer.data() + size / 2, size - size / 2}};
        CHECK(writev(copy, parts, 2) == static_cast<ssize_t>(size));
        CHECK(lseek(fd, 0, SEEK_CUR) == static_cast<off_t>(at + size));
        stored(at);
        break;
      }
      case 5: {
        struct stat found;
        MUST(fstat(appender, &found));
        CHECK(found.st_size == static_cast<off_t>(model.size()));
        actor.note(static_cast<uint64_t>(found.st_mtim.tv_nsec)), actor.note(found.st_ino);
        break;
      }
      default:
        actor.note(static_cast<uint64_t>(fdatasync(fd)));
    }
  }
  close(copy), close(appender);
  std::vector<unsigned char> whole(model.size() + 1);
  CHECK(pread(fd, whole.data(), whole.size(), 0) == static_cast<ssize_t>(model.size()));
  CHECK(std::equal(model.begin(), model.end(), whole.begin()));
  close(fd), unlink(name.c_str());
  return hash_of(model.data(), model.size());
}

// Children and this thread append records to one file.
uint64_t appended(Actor& actor) {
  const std::string name = actor.file_name("log");
  const int fd = MUST(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600));
  const int writers = actor.random.between(1, 3), records = actor.random.between(1, 20);
  std::vector<pid_t> children;
  for (int writer = 0; writer <= writers; writer++) {
    const auto work = [&] {
      for (int i = 0; i < records; i++) {
        const uint32_t record[2] = {static_cast<uint32_t>(writer), static_cast<uint32_t>(i)};
        CHECK(write(fd, record, sizeof record) == sizeof record);
      }
      return 0;
    };
    if (writer < writers) {
      children.push_back(start_child(work));
    } else {
      work();
    }
  }
  for (const pid_t child : children) expect_exit(actor, child, 0);
  std::vector<uint32_t> found(static_cast<size_t>(2 * (writers + 1) * records)), next(static_cast<size_t>(writers + 1));
  const size_t bytes = found.size() * sizeof found[0];
  CHECK(pread(fd, found.data(), bytes + 1, 0) == static_cast<ssize_t>(bytes));
  for (size_t i = 0; i < found.size(); i += 2) CHECK(found[i] < next.size() && found[i + 1] == next[found[i]]++);
  actor.note(hash_of(found.data(), bytes));
  close(fd), unlink(name.c_str());
  return bytes;
}

// Names: made, linked, renamed, listed, removed.
uint64_t directory(Actor& actor) {
  const std::string top = actor.file_name("directory");
  MUST(mkdir(top.c_str(), 0700));
  const int count = actor.random.between(1, 25);
  for (int i = 0; i < count; i++) {
    const std::string name = top + "/n" + std::to_string(i);
    switch (i % 4) {
      case 0:
        MUST(mkdir(name.c_str(), 0700));
        break;
      case 1:
        MUST(symlink("nowhere", name.c_str()));
        break;
      default:
        close(MUST(open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)));
    }
    if (i % 3 == 0) MUST(rename(name.c_str(), (top + "/m" + std::to_string(i)).c_str()));
  }
  DIR* listing = opendir(top.c_str());
  CHECK(listing);
  int seen = 0;
  while (const dirent* entry = readdir(listing)) {
    if (entry->d_name[0] == '.') continue;
    const std::string name = top + "/" + entry->d_name;
    actor.note(hash_of(name.data(), name.size()));
    struct stat found;
    MUST(lstat(name.c_str(), &found));
    MUST(S_ISDIR(found.st_mode) ? rmdir(name.c_str()) : unlink(name.c_str()));
    seen++;
  }
  closedir(listing);
  CHECK(seen == count);
  MUST(rmdir(top.c_str()));
  return static_cast<uint64_t>(seen);
}

// A counter in a file, increased by children under a lock.
uint64_t locked_counter(Actor& actor) {
  const std::string name = actor.file_name("counter");
  const int fd = MUST(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  uint32_t value = 0;
  CHECK(pwrite(fd, &value, sizeof value, 0) == sizeof value);
  const int children = actor.random.between(1, 3), rounds = actor.random.between(1, 15);
  const bool whole_file = actor.random.coin();
  std::vector<pid_t> started;
  for (int i = 0; i < children; i++) {
    started.push_back(start_child([&] {
      const int own = MUST(open(name.c_str(), O_RDWR | O_CLOEXEC));
      for (int k = 0; k < rounds; k++) {
        struct flock lock = {F_WRLCK, SEEK_SET, 0, 0, 0};
        again(actor, [&] { return whole_file ? flock(own, LOCK_EX) : fcntl(own, F_SETLKW, &lock); });
        uint32_t now = 0;
        CHECK(pread(own, &now, sizeof now, 0) == sizeof now);
        now++;
        if (k % 5 == 0) sched_yield();
        CHECK(pwrite(own, &now, sizeof now, 0) == sizeof now);
        lock.l_type = F_UNLCK;
        MUST(whole_file ? flock(own, LOCK_UN) : fcntl(own, F_SETLK, &lock));
      }
      return 0;
    }));
  }
  for (const pid_t child : started) expect_exit(actor, child, 0);
  CHECK(pread(fd, &value, sizeof value, 0) == sizeof value && value == static_cast<uint32_t>(children * rounds));
  close(fd), unlink(name.c_str());
  return value;
}

}  // namespace

const std::vector<Action>& file_actions() {
  static const std::vector<Action> actions = {
      {"one_file", one_file}, {"appended", appended}, {"directory", directory}, {"locked_counter", locked_counter}};
  return actions;
}
