// The processes that a guard has to stop if its recorder is killed.
#include <set>

#include "supervisor/record/front/lifeline.h"
#include "tests/unit/unit_test.h"

namespace redrive::recorded_processes_test {

namespace {

std::multiset<pid_t> all(const RecordedProcesses& recorded) {
  std::multiset<pid_t> found;
  recorded.for_each([&](pid_t pid) { found.insert(pid); });
  return found;
}

}  // namespace

TEST_CASE("processes that have ended make room for others") {
  RecordedProcesses recorded;
  for (const pid_t pid : {10, 11, 12}) recorded.add(pid);
  recorded.remove(11);
  recorded.remove(99);
  CHECK(all(recorded) == std::multiset<pid_t>{10, 12});
  recorded.add(13);
  recorded.remove(10);
  CHECK(all(recorded) == std::multiset<pid_t>{12, 13});
}

TEST_CASE("more processes than there is room for are left out") {
  RecordedProcesses recorded;
  for (pid_t pid = 1; pid <= 5000; ++pid) recorded.add(pid);
  const size_t most = all(recorded).size();
  CHECK(most < 5000);
  recorded.remove(5000);
  recorded.remove(1);
  CHECK(all(recorded).size() == most - 1);
  recorded.add(5001);
  CHECK(all(recorded).size() == most);
  CHECK(all(recorded).count(5001) == 1);
}

}  // namespace redrive::recorded_processes_test
