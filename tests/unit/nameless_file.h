// A file without a name, and the path by which a stub opens it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/bytes.h"
#include "base/fd.h"
#include "tests/unit/unit_test.h"

namespace redrive {

struct NamelessFile {
  Fd fd{memfd_create("nameless", MFD_CLOEXEC)};

  explicit NamelessFile(const Bytes& contents) {
    REQUIRE_EQ(write(fd.get(), contents.data(), contents.size()), static_cast<ssize_t>(contents.size()));
  }
  std::string path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd.get()); }
};

}  // namespace redrive
