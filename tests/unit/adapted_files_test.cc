// What programs find in files of procfs and sysfs, and of processors.
#include "supervisor/record/disguise/adapted_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>

#include "tests/unit/unit_test.h"

namespace redrive::adapted_files_test {

namespace {

cpu_set_t processors(std::initializer_list<size_t> numbers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const size_t number : numbers) CPU_SET(number, &set);
  return set;
}

// A process of one thread, which is this test.
struct Program {
  explicit Program(unsigned count = 0) : seen(processors({0, 1}), count) {}
  std::optional<std::string> open(const std::string& path) const {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return {};
    const auto find = [&](const ProcFile& status) -> std::optional<AdaptedFiles::Subject> {
      if (!status.ours || (status.thread != gettid() && status.thread != getpid())) return {};
      return AdaptedFiles::Subject{confinement, its};
    };
    return files.contents(gettid(), static_cast<uint64_t>(file.get()), find);
  }

  SeenProcessors seen;
  AdaptedFiles files{seen};
  Confinement confinement;
  cpu_set_t its = processors({1, 2, 5});
};

// The value in a line of a file; empty if it has no such line.
std::string value(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  }
  return {};
}

}  // namespace

TEST_CASE("a thread's status does not tell of the recorder") {
  const Program program;
  for (const std::string path : {"/proc/self/status", "/proc/thread-self/status"}) {
    CAPTURE(path);
    const auto status = program.open(path);
    REQUIRE(status);
    CHECK_EQ(value(*status, "TracerPid"), "0");
    CHECK_EQ(value(*status, "NoNewPrivs"), "0");
    CHECK_EQ(value(*status, "Pid"), std::to_string(path == "/proc/self/status" ? getpid() : gettid()));
    CHECK_EQ(value(*status, "Cpus_allowed_list"), "1-2,5");
    const std::string mask = value(*status, "Cpus_allowed");
    CHECK(mask.ends_with("26"));
  }
  const std::string own = std::to_string(getpid());
  CHECK(program.open("/proc/" + own + "/status"));
  CHECK(program.open("/proc/" + own + "/task/" + std::to_string(gettid()) + "/status"));
  CHECK(program.open("/proc/self/root/proc/" + own + "/status"));
}

TEST_CASE("other files hold what the kernel says") {
  const Program program;
  for (const char* path : {"/proc/1/status", "/proc/self/stat", "/proc/self/status/", "/proc/self", "proc/self/status",
                           "/proc/stat", "/proc/cpuinfo", "/sys/devices/system/cpu/online", "/etc/hosts", ""}) {
    CAPTURE(path);
    CHECK_FALSE(program.open(path));
  }
}

TEST_CASE("files that count processors") {
  const Program program(3);
  const auto online = program.open("/sys/devices/system/cpu/online");
  if (online) CHECK_EQ(*online, "0-2\n");
  const auto stat = program.open("/proc/stat");
  REQUIRE(stat);
  CHECK_NE(stat->find("cpu2 "), std::string::npos);
  CHECK_EQ(stat->find("cpu3 "), std::string::npos);
  const auto cpuinfo = program.open("/proc/cpuinfo");
  REQUIRE(cpuinfo);
  CHECK_NE(cpuinfo->find("processor\t: 2"), std::string::npos);
  CHECK_EQ(cpuinfo->find("processor\t: 3"), std::string::npos);
  CHECK(program.open("/proc/self/status"));
}

TEST_CASE("where a thread may run is what it has asked for") {
  const auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const SeenProcessors there(processors({0, 1}), 0), seen(processors({0, 1}), 4);
  CHECK_EQ(CPU_COUNT(&there.all()), 2);
  CHECK_EQ(CPU_COUNT(&seen.all()), 4);
  cpu_set_t its = processors({1, 3}), found = {};
  using Arguments = SeenProcessors::Arguments;
  const auto at = reinterpret_cast<uint64_t>(&found);
  const auto get = [&](const SeenProcessors& those, uint64_t size) {
    return those.get_affinity(its, Arguments{0, size, at}, *memory, 16);
  };
  CHECK_EQ(get(there, sizeof found), 16);
  CHECK(CPU_EQUAL(&found, &its));
  CHECK_EQ(get(seen, sizeof found), 8);
  CHECK_EQ(get(seen, 4), -EINVAL);

  uint32_t processor = 0;
  const Arguments getcpu{reinterpret_cast<uint64_t>(&processor)};
  SeenProcessors::get_processor(its, getcpu, *memory);
  CHECK_EQ(processor, 1);
  processor = 3;
  SeenProcessors::get_processor(its, getcpu, *memory);
  CHECK_EQ(processor, 3);

  const auto set = [&](std::initializer_list<size_t> numbers, int64_t result) {
    found = processors(numbers);
    return seen.set_affinity(its, Arguments{0, sizeof found, at}, *memory, result);
  };
  CHECK_EQ(set({2, 7}, -EINVAL), 0);  // the kernel does not have them
  CHECK_EQ(CPU_COUNT(&its), 1);
  CHECK(CPU_ISSET(2, &its));
  CHECK_EQ(set({7}, 0), -EINVAL);
  CHECK_EQ(set({0}, -EPERM), -EPERM);
  CHECK(CPU_ISSET(2, &its));
}

}  // namespace redrive::adapted_files_test
