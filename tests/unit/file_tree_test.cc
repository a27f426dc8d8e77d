// Copies of a trace's files under the names that they had, whatever a trace calls them.
#include "supervisor/cli/file_tree.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/unit/unit_test.h"

namespace redrive::file_tree_test {

namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A trace with copies of files, each named and filled as a test wants.
struct Fixture {
  Fixture() {
    char name[] = "/tmp/redrive-tree-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    directory = name;
    fs::create_directory(directory / "out");
    writer = TraceWriter::create((directory / "t").string(), {}).value();
  }
  ~Fixture() { fs::remove_all(directory); }

  uint64_t add(const std::string& path, const std::string& content) {
    const fs::path source = directory / ("source" + std::to_string(++sources));
    std::ofstream(source) << content;
    return writer->add_file(source.string(), path, true).value();
  }
  void open() {
    REQUIRE(writer->finish({}));
    writer.reset();
    trace = Trace::open((directory / "t").string()).value();
  }

  fs::path directory;
  int sources = 0;
  std::unique_ptr<TraceWriter> writer;
  std::shared_ptr<Trace> trace;
};

}  // namespace

TEST_CASE("files lie below the root under their own names and those that links have") {
  Fixture f;
  const std::string large(3 << 20, 'x');
  const uint64_t one = f.add("/usr/lib/one.so.1.2", "one"), two = f.add("/bin/two", large);
  f.open();
  OpenCopies copies(*f.trace);
  FileTree tree(*f.trace, copies, (f.directory / "out").string());
  const NamedFiles named{{{"/usr/lib/one.so.1.2", one}, {"/bin/two", two}},
                         {{"/lib/sub/../one.so.1", "/usr/lib/one.so.1.2"}, {"/bin/two", "/bin/two"}, {"/no", "/none"}}};
  const auto root = tree.add(named);
  REQUIRE(root);
  CHECK_EQ(*root, (f.directory / "out/root").string());
  CHECK_EQ(contents(*root + "/usr/lib/one.so.1.2"), "one");
  CHECK(contents(*root + "/bin/two") == large);
  CHECK_EQ(fs::read_symlink(*root + "/lib/one.so.1"), "../usr/lib/one.so.1.2");
  CHECK_EQ(contents(*root + "/lib/one.so.1"), "one");
  CHECK_FALSE(fs::exists(*root + "/no"));
  CHECK_EQ(tree.bytes(), 3 + large.size());
  // Another process with some of the same files.
  const auto again = tree.add({{{"/bin/two", two}}, {}});
  REQUIRE(again);
  CHECK_EQ(*again, *root);
  CHECK_EQ(tree.bytes(), 3 + large.size());
}

TEST_CASE("two files of one name lie below two roots") {
  Fixture f;
  const uint64_t before = f.add("/bin/a", "before"), after = f.add("/bin/a", "after"), other = f.add("/bin/b", "other");
  f.open();
  OpenCopies copies(*f.trace);
  FileTree tree(*f.trace, copies, (f.directory / "out").string());
  const auto first = tree.add({{{"/bin/a", before}}, {}});
  const auto second = tree.add({{{"/bin/a", after}, {"/bin/b", other}}, {}});
  const auto third = tree.add({{{"/bin/b", other}}, {}});
  REQUIRE((first && second && third));
  CHECK_EQ(contents(*first + "/bin/a"), "before");
  CHECK_EQ(contents(*second + "/bin/a"), "after");
  CHECK_EQ(contents(*second + "/bin/b"), "other");
  CHECK_NE(*first, *second);
  CHECK_EQ(*third, *first);
}

TEST_CASE("nothing is written outside the root, whatever files are called") {
  Fixture f;
  NamedFiles named;
  for (const char* const path : {"/../../escaped", "/a/../../escaped", "relative", "../escaped", "/", "", "/a//b",
                                 "//x", "/dev/zero (deleted)"}) {
    named.files[path] = f.add(path, std::string("content of ") + path);
  }
  named.files["/good"] = f.add("/good", "good");
  named.links = {{"/../../../../linked", "/good"}, {"relative/link", "/good"}, {"/bad", "/../../escaped"}};
  f.open();
  OpenCopies copies(*f.trace);
  FileTree tree(*f.trace, copies, (f.directory / "out").string());
  const auto root = tree.add(named);
  REQUIRE(root);
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(f.directory / "out")) {
    if (!entry.is_directory()) found.insert(entry.path().string().substr(root->size()));
  }
  CHECK(found == std::set<std::string>{"/dev/zero (deleted)", "/good", "/linked"});
  CHECK_EQ(contents(*root + "/linked"), "good");
  CHECK_FALSE(fs::exists(f.directory / "escaped"));
  CHECK_EQ(FileTree::path_in(*root, "/../escaped"), "");
  CHECK_EQ(FileTree::path_in(*root, "/good"), *root + "/good");
}

}  // namespace redrive::file_tree_test
