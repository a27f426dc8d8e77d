#include "base/beneath.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/unit/unit_test.h"

namespace redrive::beneath_test {
namespace fs = std::filesystem;

namespace {

struct Directory {
  Directory() {
    char name[] = "/tmp/redrive-beneath-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
    fs::create_directories(path / "trace/events");
    std::ofstream(path / "outside") << "outside";
    std::ofstream(path / "trace/journal") << "journal";
    std::ofstream(path / "trace/events/1.seg") << "segment";
    fs::create_symlink("journal", path / "trace/link");
    fs::create_symlink("../outside", path / "trace/link_out");
    fs::create_symlink("events", path / "trace/link_events");
    fs::create_symlink("nothing", path / "trace/dangling");
    REQUIRE_EQ(mkfifo((path / "trace/fifo").c_str(), 0600), 0);
    file = Fd(::open((path / "trace").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  ~Directory() { fs::remove_all(path); }

  fs::path path;
  Fd file;
};

using Open = Fd (*)(int, const std::string&, int, mode_t);

int error_of(Open open, const Directory& in, const std::string& name, int flags = O_RDONLY) {
  errno = 0;
  return open(in.file.get(), name, flags, 0600) ? 0 : errno;
}

}  // namespace

TEST_CASE("what lies below a directory is opened, and nothing to which a link leads, with openat2 and without") {
  for (const Open open : {open_beneath, open_beneath_by_steps}) {
    const Directory in;
    CHECK_EQ(error_of(open, in, "journal"), 0);
    CHECK_EQ(error_of(open, in, "events/1.seg"), 0);
    CHECK_EQ(error_of(open, in, "events", O_RDONLY | O_DIRECTORY), 0);
    CHECK_EQ(error_of(open, in, "events", O_PATH | O_DIRECTORY), 0);
    CHECK_EQ(error_of(open, in, "new", O_WRONLY | O_CREAT), 0);
    CHECK_EQ(error_of(open, in, "absent"), ENOENT);
    CHECK_EQ(error_of(open, in, "events/absent"), ENOENT);
    CHECK_EQ(error_of(open, in, "journal/1.seg"), ENOTDIR);
    for (const char* link : {"link", "link_out", "link_events", "dangling", "link_events/1.seg", "link_out/x"}) {
      CAPTURE(link);
      CHECK_EQ(error_of(open, in, link), ELOOP);
      CHECK_EQ(error_of(open, in, link, O_WRONLY | O_CREAT), ELOOP);
      CHECK_EQ(error_of(open, in, link, O_PATH | O_DIRECTORY), ELOOP);
    }
    CHECK_FALSE(fs::exists(in.path / "trace/nothing"));
  }
}

TEST_CASE("names that lead elsewhere are refused, and a FIFO does not block") {
  for (const Open open : {open_beneath, open_beneath_by_steps}) {
    const Directory in;
    for (const char* name : {"", ".", "..", "../outside", "events/..", "events/../../outside", "/etc/passwd", "events/",
                             "events//1.seg", "./journal"}) {
      CAPTURE(name);
      CHECK_EQ(error_of(open, in, name), EINVAL);
    }
    CHECK_EQ(error_of(open, in, "fifo"), 0);
    CHECK_EQ(error_of(open, in, "fifo", O_WRONLY), ENXIO);
  }
}

}  // namespace redrive::beneath_test
