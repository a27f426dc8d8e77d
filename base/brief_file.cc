#include "base/brief_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/mutex.h"

namespace redrive {
namespace {

Mutex mutex;
Fd kept GUARDED_BY(mutex);  // in place of a file

void keep_one() REQUIRES(mutex) {
  if (!kept) kept = Fd(::open("/", O_PATH | O_CLOEXEC));
}

}  // namespace

Fd open_briefly(const std::string& path, int flags) {
  const auto opened = [&] { return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)); };
  Fd file = opened();
  if (!file && no_file_left(errno)) {
    const Lock lock(mutex);
    kept = Fd();
    return opened();
  }
  const int error = errno;
  const Lock lock(mutex);
  keep_one();
  errno = error;
  return file;
}

std::string read_briefly(const std::string& path) {
  constexpr size_t kUsual = 4096;
  const Fd file = open_briefly(path);
  std::string text;
  for (ssize_t got = file ? 1 : 0; got > 0;) {
    const size_t had = text.size();
    text.resize(had + kUsual);
    got = ::read(file.get(), text.data() + had, kUsual);
    text.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  }
  return text;
}

}  // namespace redrive
