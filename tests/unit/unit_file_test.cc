// Unit files as systemd reads them, and the drop-ins that are made from them.
#include "supervisor/service/unit_file.h"

#include <filesystem>
#include <fstream>

#include "supervisor/service/drop_in.h"
#include "tests/unit/unit_test.h"

namespace redrive::unit_file_test {

namespace {

namespace fs = std::filesystem;

// A system's files, below a directory of its own.
class Root {
 public:
  Root() {
    char name[] = "/tmp/redrive-unit-files-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~Root() { fs::remove_all(directory_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void add(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(directory_ + path).parent_path());
    std::ofstream(directory_ + path) << text;
  }
  void link(const std::string& target, const std::string& path) const {
    fs::create_directories(fs::path(directory_ + path).parent_path());
    fs::create_symlink(target, directory_ + path);
  }
  Result<UnitFile> read(const std::string& unit) const { return UnitFile::read(directory_, unit, kDropInName); }
  std::string drop_in(const std::string& service) const {
    add("/usr/lib/systemd/system/one.service", "[Service]\n" + service);
    const auto unit = read("one.service");
    REQUIRE(unit);
    const auto made = make_drop_in(*unit, "/usr/bin/redrive", {"--bound", "2s"});
    return made ? made->text : "refused: " + made.error().message;
  }

 private:
  std::string directory_;
};

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("unit files: comments, continued lines, sections") {
  const auto all = parse_unit_file(
      "# a comment\n[Unit]\nDescription = two words \n\n[Service]\nExecStart=/bin/a one \\\n# within\n  two\\\n; too\n "
      " three\nbad line\nUser=\n",
      "file");
  REQUIRE_EQ(all.size(), 3);
  CHECK_EQ(all[0].section, "Unit");
  CHECK_EQ(all[0].key, "Description");
  CHECK_EQ(all[0].value, "two words");
  CHECK_EQ(all[1].section, "Service");
  CHECK_EQ(all[1].value, "/bin/a one two three");
  CHECK_EQ(all[2].value, "");
}

TEST_CASE("unit files: the first directory wins, drop-ins follow by name, empty values reset") {
  const Root root;
  root.add("/usr/lib/systemd/system/a-b.service", "[Service]\nExecStart=/bin/vendor\nUser=v\n");
  root.add("/etc/systemd/system/a-b.service", "[Service]\nExecStart=/bin/admin\nUser=u\n");
  root.add("/usr/lib/systemd/system/service.d/10.conf", "[Service]\nNice=1\n");
  root.add("/usr/lib/systemd/system/a-.service.d/20.conf", "[Service]\nNice=2\n");
  root.add("/usr/lib/systemd/system/a-b.service.d/30.conf",
           "[Service]\nNice=3\nExecStart=\nExecStart=/bin/c\nExecStart=/bin/d\n");
  root.add("/usr/lib/systemd/system/a-b.service.d/40.conf", "[Service]\nNice=4\n");
  root.link("/dev/null", "/etc/systemd/system/a-b.service.d/40.conf");
  root.add("/etc/systemd/system/a-b.service.d/redrive.conf", "[Service]\nNice=5\n");
  const auto unit = root.read("a-b.service");
  REQUIRE(unit);
  CHECK_EQ(unit->last("User"), "u");
  CHECK_EQ(unit->last("Nice"), "3");
  REQUIRE_EQ(unit->all("ExecStart").size(), 2);
  CHECK_EQ(unit->all("ExecStart")[0].value, "/bin/c");
  CHECK(unit->all("ExecStart")[1].file.ends_with("30.conf"));
}

TEST_CASE("unit files: aliases, templates, masked and missing units") {
  const Root root;
  root.add("/lib/systemd/system/real.service", "[Service]\nExecStart=/bin/r\n");
  root.link("/lib/systemd/system/real.service", "/etc/systemd/system/alias.service");
  root.add("/lib/systemd/system/t@.service", "[Service]\nExecStart=/bin/t %i\n");
  root.add("/etc/systemd/system/t@.service.d/x.conf", "[Service]\nUser=of-all\n");
  root.add("/etc/systemd/system/t@one.service.d/y.conf", "[Service]\nGroup=of-one\n");
  root.link("/dev/null", "/etc/systemd/system/masked.service");
  const auto alias = root.read("alias.service"), instance = root.read("t@one.service");
  REQUIRE(alias);
  CHECK_EQ(alias->name(), "real.service");
  REQUIRE(instance);
  CHECK_EQ(instance->name(), "t@one.service");
  CHECK_EQ(instance->last("User"), "of-all");
  CHECK_EQ(instance->last("Group"), "of-one");
  CHECK(root.read("masked.service").error().message.find("masked") != std::string::npos);
  CHECK_FALSE(root.read("none.service"));
}

TEST_CASE("drop-ins: commands keep their prefixes and their own words") {
  const Root root;
  const std::string made =
      root.drop_in("Type=oneshot\nExecStart=-:/bin/a 'b c' $VARIABLE %i\nExecStart=+/bin/d\nUser=u\nGroup=g\n");
  CHECK(has_line(made, "ExecStart="));
  CHECK(has_line(made, "ExecStart=-:/usr/bin/redrive record --session %n --bound 2s -- /bin/a 'b c' $VARIABLE %i"));
  CHECK(has_line(made, "ExecStart=+/usr/bin/redrive record --session %n --bound 2s -- /bin/d"));
  CHECK(has_line(made, "ExecStartPre=+/usr/bin/install -d -m 0700 -o u -g g /var/lib/redrive/services/%n"));
  // Names of users are the unit's own words, too.
  CHECK(has_line(root.drop_in("User=%i\nGroup=a$b\nExecStart=/bin/a\n"),
                 "ExecStartPre=+/usr/bin/install -d -m 0700 -o %i -g a$$b /var/lib/redrive/services/%n"));
  CHECK(made.find("NotifyAccess") == std::string::npos);
  CHECK(made.find("ReadWritePaths") == std::string::npos);
}

TEST_CASE("drop-ins: what a recorded service needs, and no more") {
  const Root root;
  CHECK(has_line(root.drop_in("Type=notify\nExecStart=/bin/a\n"), "NotifyAccess=all"));
  CHECK_FALSE(has_line(root.drop_in("Type=notify\nNotifyAccess=all\nExecStart=/bin/a\n"), "NotifyAccess=all"));
  CHECK(has_line(root.drop_in("WatchdogSec=10\nExecStart=/bin/a\n"), "NotifyAccess=all"));
  CHECK(has_line(root.drop_in("Type=forking\nPIDFile=/run/a\nKillMode=mixed\nExecStart=/bin/a\n"),
                 "KillMode=control-group"));
  CHECK_FALSE(has_line(root.drop_in("KillMode=mixed\nExecStart=/bin/a\n"), "KillMode=control-group"));
  CHECK(has_line(root.drop_in("ProtectSystem=strict\nExecStart=/bin/a\n"),
                 "ReadWritePaths=-/run/redrive -/var/lib/redrive/services/%n"));
  CHECK(has_line(root.drop_in("SystemCallFilter=@system-service\nExecStart=/bin/a\n"), "SystemCallFilter="));
  CHECK(has_line(root.drop_in("MemoryDenyWriteExecute=true\nExecStart=/bin/a\n"), "MemoryDenyWriteExecute=no"));
  CHECK(root.drop_in("MemoryDenyWriteExecute=no\nExecStart=/bin/a\n").find("MemoryDenyWriteExecute") ==
        std::string::npos);
  CHECK(has_line(root.drop_in("CapabilityBoundingSet=CAP_NET_BIND_SERVICE\nExecStart=/bin/a\n"),
                 "CapabilityBoundingSet=CAP_SYS_PTRACE"));
  CHECK(root.drop_in("CapabilityBoundingSet=CAP_CHOWN\nUser=u\nExecStart=/bin/a\n").find("CAP_SYS_PTRACE") ==
        std::string::npos);
  CHECK(has_line(root.drop_in("NoExecPaths=/\nExecPaths=/bin\nExecStart=/bin/a\n"), "ExecPaths=/usr/bin/redrive"));
}

TEST_CASE("drop-ins: services that cannot be recorded are refused") {
  const Root root;
  for (const char* service :
       {"ExecStart=@/bin/a b\n", "ExecStart=/bin/a ; /bin/b\n", "Type=forking\nExecStart=/bin/a\n",
        "RootDirectory=/x\nExecStart=/bin/a\n", "DynamicUser=yes\nExecStart=/bin/a\n", "User=u\n"}) {
    CAPTURE(service);
    CHECK(root.drop_in(service).starts_with("refused: "));
  }
  CHECK_FALSE(root.drop_in("DynamicUser=no\nExecStart=/bin/a\n").starts_with("refused: "));
}

TEST_CASE("drop-ins: words are quoted for systemd") {
  CHECK_EQ(quote_for_systemd("--bound"), "--bound");
  CHECK_EQ(quote_for_systemd("two words"), "\"two words\"");
  CHECK_EQ(quote_for_systemd("50%$x"), "50%%$$x");
  CHECK_EQ(quote_for_systemd("a\"b\\"), "\"a\\\"b\\\\\"");
  CHECK_EQ(quote_for_systemd(""), "\"\"");
}

}  // namespace redrive::unit_file_test
