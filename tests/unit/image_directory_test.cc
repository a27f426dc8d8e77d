// What an export for CRIU lets processes have open, and what its script says.
#include "supervisor/live/image_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "tests/unit/unit_test.h"

namespace redrive::image_directory_test {

namespace {

namespace fs = std::filesystem;

struct Place {
  Place() {
    char name[] = "/tmp/redrive-images-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Place() { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(path + "/" + name) << content;
    return path + "/" + name;
  }
  std::string images() const { return path + "/images"; }
  std::string path;
};

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

LiveObject opened(const std::string& path, uint64_t flags) {
  LiveObject object;
  object.kind = OpenObject::Kind::file;
  object.needed = true;
  object.path = path;
  object.flags = flags;
  return object;
}

}  // namespace

TEST_CASE("standard streams are files of the directory; what is written is copied, and read there too") {
  const Place place;
  const std::string written = place.file("written", "12345"), read = place.file("read", "abc");
  const std::string anew = place.path + "/below/new";
  const auto images = ImageDirectory::begin(place.images()).value();
  CHECK(ImageDirectory::begin(place.images()).error().message.find("File exists") != std::string::npos);
  LiveSpec spec;
  for (int fd = 0; fd < 3; ++fd) {
    LiveObject& stream = spec.objects.emplace_back();
    stream.kind = OpenObject::Kind::inherited;
    stream.needed = true;
    stream.number = fd;
  }
  spec.objects.push_back(opened(written, O_RDWR));
  spec.objects.back().cut_to = 3;
  spec.objects.push_back(opened(written, O_RDONLY));
  spec.objects.push_back(opened(read, O_RDONLY));
  spec.objects.push_back(opened(anew, O_WRONLY | O_CREAT));
  spec.objects.push_back(opened("/dev/null", O_RDWR));
  spec.objects.push_back(opened(place.file("closed", "x"), O_WRONLY));
  spec.objects.back().needed = false;
  REQUIRE(images->adopt(spec));

  const std::string root = fs::canonical(place.images());
  CHECK_EQ(spec.objects[0].path, root + "/stdin");
  CHECK_EQ(spec.objects[0].flags, O_RDONLY);
  CHECK_EQ(spec.objects[2].path, root + "/stderr");
  CHECK_EQ(spec.objects[2].flags, O_WRONLY | O_APPEND);
  const std::string copy = root + "/files" + written;
  CHECK_EQ(spec.objects[3].path, copy);
  CHECK_EQ(spec.objects[4].path, copy);
  CHECK_EQ(content_of(copy), "123");
  CHECK_EQ(content_of(written), "12345");
  CHECK_EQ(spec.objects[5].path, read);
  CHECK_EQ(spec.objects[6].path, root + "/files" + anew);
  CHECK(fs::exists(root + "/files" + anew));
  CHECK_FALSE(fs::exists(anew));
  CHECK_EQ(spec.objects[7].path, "/dev/null");
  CHECK_FALSE(fs::exists(root + "/files" + place.path + "/closed"));
  CHECK_EQ(spec.notes.size(), 2);

  REQUIRE(images->finish());
  const std::string script = content_of(images->script());
  CHECK(script.find("truncate -s 3 " + copy) != std::string::npos);
  CHECK(script.find("truncate -s 0 " + root + "/files" + anew) != std::string::npos);
  CHECK(script.find("--inherit-fd 'fd[1]:" + root.substr(1) + "/stdout'") != std::string::npos);
  CHECK_EQ(access(images->script().c_str(), X_OK), 0);
}

TEST_CASE("a path in a trace cannot lead out of the directory") {
  const Place place;
  const std::string from = place.file("mapped", "code");
  const auto images = ImageDirectory::begin(place.images()).value();
  const std::string root = images->path();
  LiveSpec spec;
  spec.objects.push_back(opened("/../../" + place.path + "/x/../../../../escaped", O_WRONLY | O_CREAT));
  REQUIRE(images->adopt(spec));
  CHECK(spec.objects[0].path.starts_with(root + "/files/"));
  CHECK_EQ(spec.objects[0].path.find(".."), std::string::npos);
  CHECK_EQ(images->add_mapped(from, "/usr/lib/libc.so.6").value(), root + "/mapped/1/libc.so.6");
  CHECK_EQ(images->add_mapped(from, "/another/name").value(), root + "/mapped/1/libc.so.6");
  int number = 1;
  for (const char* recorded : {"/..", "/a/../..", "", "..", "."}) {
    const std::string other = place.file("other" + std::to_string(number++), "data");
    const auto copy = images->add_mapped(other, recorded);
    REQUIRE(copy);
    CHECK_EQ(*copy, root + "/mapped/" + std::to_string(number) + "/file");
  }
}

TEST_CASE("a directory that is not finished goes again; one that is stays") {
  const Place place;
  { const auto images = ImageDirectory::begin(place.images()).value(); }
  CHECK_FALSE(fs::exists(place.images()));
  {
    const auto images = ImageDirectory::begin(place.images()).value();
    REQUIRE(images->finish());
  }
  CHECK(fs::exists(place.images() + "/restore"));
  CHECK(ImageDirectory::begin(place.path + "/none/images").error().message.find("cannot create") != std::string::npos);
}

TEST_CASE("words for a shell") {
  CHECK_EQ(shell_quoted("/tmp/a-b_c.1,@:+"), "/tmp/a-b_c.1,@:+");
  CHECK_EQ(shell_quoted(""), "''");
  CHECK_EQ(shell_quoted("a b"), "'a b'");
  CHECK_EQ(shell_quoted("it's"), "'it'\\''s'");
  CHECK_EQ(shell_quoted("fd[0]:x"), "'fd[0]:x'");
}

}  // namespace redrive::image_directory_test
