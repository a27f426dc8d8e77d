#include "base/procfs.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "tests/unit/unit_test.h"

namespace redrive::procfs_test {

TEST_CASE("procfs: what it says of this process") {
  const ProcValues status = proc_status(getpid());
  CHECK_EQ(status.number("Pid"), static_cast<uint64_t>(getpid()));
  CHECK_EQ(status.number("PPid"), static_cast<uint64_t>(getppid()));
  CHECK(status.text("State").starts_with("R"));
  CHECK_EQ(status.number("voluntary_ctxt"), 0);  // names are whole
  CHECK(status.text("Nothing").empty());
  CHECK_EQ(proc_stat_field(getpid(), 4), std::to_string(getppid()));
  CHECK_EQ(proc_stat_field(getpid(), 52), "0");  // the last, before the line's end
  CHECK(proc_stat_field(getpid(), 53).empty());
  CHECK(proc_namespace(getpid(), "pid").starts_with("pid:["));

  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK(lseek(file.get(), 20, SEEK_SET) == 20);
  const ProcValues descriptor(proc_path(getpid(), "fdinfo/" + std::to_string(file.get())));
  CHECK_EQ(descriptor.number("pos"), 20);
  CHECK_EQ(descriptor.number("flags", 8) & O_CLOEXEC, O_CLOEXEC);
  struct stat theirs {};
  struct stat own {};
  CHECK(stat(descriptor_path(getpid(), static_cast<uint64_t>(file.get())).c_str(), &theirs) == 0);
  CHECK(stat(own_descriptor_path(file.get()).c_str(), &own) == 0);
  CHECK_EQ(theirs.st_ino, own.st_ino);
}

TEST_CASE("procfs: every thread of a process") {
  std::promise<pid_t> started;
  std::promise<void> over;
  std::jthread thread([&] {
    started.set_value(gettid());
    over.get_future().wait();
  });
  const pid_t tid = started.get_future().get();
  const auto threads = proc_threads(getpid());
  CHECK_EQ(std::count(threads.begin(), threads.end(), getpid()), 1);
  CHECK_EQ(std::count(threads.begin(), threads.end(), tid), 1);
  over.set_value();
}

TEST_CASE("procfs: a process from its stop to its end, with a name that looks like fields") {
  const pid_t child = fork();
  if (child == 0) {
    (void)pthread_setname_np(pthread_self(), ") Z 1 (");
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, WUNTRACED) == child);
  CHECK(proc_threads(child) == std::vector<pid_t>{child});
  CHECK_EQ(proc_stat_field(child, 3), "T");
  kill(child, SIGKILL);
  siginfo_t info{};
  CHECK(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK_EQ(proc_stat_field(child, 3), "Z");
  CHECK_EQ(proc_stat_field(child, 52), std::to_string(SIGKILL));
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(proc_status(child).text("State").empty());
  CHECK(proc_stat_field(child, 3).empty());
  CHECK(proc_namespace(child, "pid").empty());
  CHECK(proc_threads(child).empty());
}

}  // namespace redrive::procfs_test
