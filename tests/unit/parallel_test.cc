// Work that all processors do at once.
#include "base/parallel.h"

#include <sched.h>

#include <atomic>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/text.h"
#include "tests/unit/no_threads.h"
#include "tests/unit/unit_test.h"

namespace redrive::parallel_test {

TEST_CASE("parallel: everything is done once, whatever the number of processors") {
  for (const size_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> done(count);
    for_each_in_parallel(count, [&](size_t i) { ++done[i]; });
    for (const auto& times : done) CHECK_EQ(times.load(), 1);
  }
}

TEST_CASE("parallel: what fails in one thread is thrown where it was asked for, when the others have ended") {
  std::atomic<int> done = 0;
  const auto work = [&](size_t i) {
    if (i == 3) throw std::bad_alloc();
    ++done;
  };
  CHECK_THROWS_AS(for_each_in_parallel(8, work), std::bad_alloc);
  const int then = done;
  CHECK_GE(then, 3);
  CHECK_EQ(done.load(), then);
}

TEST_CASE("parallel: where no thread can be made, all is done by one, and who needs a thread says so") {
  std::thread([] {
    make_no_threads();
    int done = 0;
    for_each_in_parallel(8, [&](size_t) { ++done; });
    CHECK_EQ(done, 8);
    try {
      std::thread([] {}).join();
      FAIL("a thread was made");
    } catch (const std::system_error& failure) {
      CHECK_EQ(describe(failure), "cannot start a thread: Resource temporarily unavailable");
    }
  }).join();
}

TEST_CASE("parallel: only the processors count on which the thread may run") {
  cpu_set_t before, one;
  REQUIRE_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CHECK_EQ(processor_count(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  REQUIRE_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  CHECK_EQ(processor_count(), 1);
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace redrive::parallel_test
