// Names and places of sessions; requests to the record loop; who talks to whom.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "supervisor/record/messages/talks.h"
#include "supervisor/record/requests.h"
#include "supervisor/session/run_directory.h"
#include "supervisor/session/session.h"
#include "tests/unit/unit_test.h"

namespace redrive::sessions_test {

namespace {

namespace fs = std::filesystem;

// A run-time directory of the test's own.
class RunDirectory {
 public:
  RunDirectory() {
    char name[] = "/tmp/redrive-run-XXXXXX";
    path_ = mkdtemp(name);
    setenv("REDRIVE_RUN_DIR", path_.c_str(), 1);
  }
  ~RunDirectory() {
    unsetenv("REDRIVE_RUN_DIR");
    fs::remove_all(path_);
  }
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  std::string own() const { return path_ + "/" + std::to_string(geteuid()); }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("sessions: which names they may have") {
  for (const char* name : {"a", "web-1", "nginx.service", "postgresql@15-main.service", "_x", "a\\x2db"}) {
    CAPTURE(name);
    CHECK(check_session_name(name));
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".new"), std::string("-a"), std::string("a/b"), std::string("a b"),
        std::string("\xc3\xa4"), std::string(256, 'a'), std::string("a\n")}) {
    CAPTURE(name);
    CHECK_FALSE(check_session_name(name));
  }
}

TEST_CASE("sessions: a name is taken once, and again when nobody listens") {
  const RunDirectory run;
  CHECK_FALSE(UserDirectory::exists(geteuid()));
  const auto directory = UserDirectory::make(geteuid());
  REQUIRE(directory);
  CHECK(directory->names().empty());
  auto first = directory->claim("one");
  REQUIRE(first);
  CHECK_FALSE(directory->claim("one"));
  CHECK(directory->connect("one"));
  directory->forget("one");  // it is in use
  CHECK_EQ(directory->names(), std::vector<std::string>{"one"});
  *first = Fd();
  CHECK_FALSE(directory->connect("one"));
  const auto second = directory->claim("one");
  CHECK(second);
  CHECK(directory->connect("one"));
}

TEST_CASE("sessions: what nobody listens at is forgotten, what is no socket is let be") {
  const RunDirectory run;
  const auto directory = UserDirectory::make(geteuid());
  REQUIRE(directory);
  { const auto left = directory->claim("left"); }
  fs::create_directory(run.own() + "/folder");
  fs::create_symlink(run.own() + "/left", run.own() + "/link");
  for (const char* name : {"left", "folder", "link", "none"}) {
    CHECK_FALSE(directory->connect(name));
    directory->forget(name);
  }
  CHECK_FALSE(fs::exists(run.own() + "/left"));
  CHECK(fs::exists(run.own() + "/folder"));
  CHECK(fs::is_symlink(run.own() + "/link"));
}

TEST_CASE("sessions: those that have ended are not listed, and their names are forgotten") {
  const RunDirectory run;
  const auto directory = UserDirectory::make(geteuid());
  REQUIRE(directory);
  const auto one = directory->claim("one");
  { const auto left = directory->claim("left"); }
  CHECK_EQ(directory->names(), std::vector<std::string>{"left", "one"});
  CHECK(directory->has("left"));
  CHECK_EQ(directory->sessions(), std::vector<std::string>{"one"});
  CHECK_FALSE(directory->has("left"));
  CHECK(directory->has("one"));
  CHECK_FALSE(directory->has("../" + std::to_string(geteuid()) + "/one"));
}

TEST_CASE("sessions: their paths on the bus name user and session, and nothing else does") {
  if (!load_systemd()) return;
  const SessionName session{7, "a@b.service"};
  const std::string path = object_path_of(session);
  CHECK(path.starts_with("/org/redrive/Supervisor1/session/7/"));
  CHECK(session_at(path) == session);
  for (const char* other : {"/org/redrive/Supervisor1/session/7", "/org/redrive/Supervisor1/session/x/a",
                            "/org/redrive/Supervisor1/session/99999999999/a", "/org/redrive/Supervisor1", "/"}) {
    CAPTURE(other);
    CHECK_FALSE(session_at(other));
  }
}

TEST_CASE("sessions: a directory that others may enter is not used") {
  const RunDirectory run;
  REQUIRE(UserDirectory::make(geteuid()));
  chmod(run.own().c_str(), 0750);
  CHECK_FALSE(UserDirectory::open(geteuid()));
  chmod(run.own().c_str(), 0700);
  CHECK(UserDirectory::open(geteuid()));
}

TEST_CASE("requests: the loop carries them out; those that come when it has ended are refused") {
  signal(SIGALRM, [](int) {});  // sent by wake_thread()
  Requests requests;
  int sum = 0;
  std::atomic<int> left = 4, refused = 0;
  std::vector<std::jthread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) refused += !requests.ask([&] { ++sum; });
      --left;
    });
  }
  while (left > 0) requests.carry_out();
  others.clear();
  CHECK_EQ(sum, 4000);
  CHECK_EQ(refused, 0);
  std::jthread late([&] { refused += !requests.ask([&] { ++sum; }); });
  requests.close();
  late.join();
  CHECK_EQ(refused, 1);
  CHECK_FALSE(requests.ask([&] { ++sum; }));
  CHECK_EQ(sum, 4000);
  signal(SIGALRM, SIG_DFL);
}

TEST_CASE("talks: counts by sender and receiver; ended units are forgotten in time") {
  Talks talks;
  talks.add(1, 2, 100, true);
  talks.add(1, 2, 50, false);
  talks.add(2, 1, 7, true);
  auto all = talks.all();
  REQUIRE_EQ(all.size(), 2);
  CHECK_EQ(all[0].from, 1);
  CHECK_EQ(all[0].messages, 1);
  CHECK_EQ(all[0].bytes, 150);
  CHECK_EQ(all[1].bytes, 7);
  for (UnitId unit = 3; unit < 100'000; ++unit) {
    talks.add(unit, 1, 1, true);
    talks.end(unit);
  }
  CHECK_LT(talks.all().size(), 1000);
  CHECK_EQ(talks.all().front().bytes, 150);
}

}  // namespace redrive::sessions_test
