// Which executions move between processors; and that threads and processes do move.
#include "supervisor/replay/balancer.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "supervisor/replay/replay_set.h"
#include "tests/unit/unit_test.h"

namespace redrive::balancer_test {

namespace {

constexpr uint64_t kElapsed = 1000;

std::vector<std::pair<size_t, int>> moves(const std::vector<SeatUse>& uses, const std::vector<int>& processors) {
  std::vector<std::pair<size_t, int>> out;
  for (const auto& move : balance(uses, processors, kElapsed)) out.emplace_back(move.seat, move.to);
  return out;
}

using Moves = std::vector<std::pair<size_t, int>>;

// The only processor that the thread may run on; -1 if there are several.
int processor_of(pid_t tid) {
  cpu_set_t set;
  if (sched_getaffinity(tid, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1) return -1;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) return i;
  }
  return -1;
}

// Gives the test's thread its processors back.
class Unmoved {
 public:
  Unmoved() { sched_getaffinity(0, sizeof before_, &before_); }
  ~Unmoved() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

}  // namespace

TEST_CASE("balancer: nothing moves while each processor computes, or one alone does") {
  CHECK(moves({}, {0, 1}).empty());
  CHECK(moves({{0, 900}, {1, 900}}, {0, 1}).empty());
  CHECK(moves({{0, 500}, {0, 500}, {1, 400}}, {0, 1}).empty());
  CHECK(moves({{0, 990}, {0, 10}}, {0, 1}).empty());
  CHECK(moves({{0, 500}, {0, 500}}, {0, 0}).empty());
}

TEST_CASE("balancer: one of several that compute on a processor moves to one that is free") {
  CHECK_EQ(moves({{0, 500}, {0, 500}}, {0, 1}), Moves{{1, 1}});
  CHECK_EQ(moves({{1, 330}, {1, 330}, {1, 330}, {0, 5}}, {0, 1}), Moves{{2, 0}});
}

TEST_CASE("balancer: one moves to where at least two less compute, although something is computed there") {
  CHECK_EQ(moves({{0, 300}, {0, 300}, {0, 300}, {1, 600}}, {0, 1}), Moves{{2, 1}});
  CHECK_EQ(moves({{0, 250}, {0, 250}, {0, 250}, {0, 250}, {1, 900}}, {0, 1}), Moves{{3, 1}});
  CHECK(moves({{0, 300}, {0, 300}, {0, 300}, {1, 600}, {1, 0, false, true}}, {0, 1}).empty());
  CHECK(moves({{0, 300, true}, {0, 300, true}, {0, 300, true}, {1, 600}}, {0, 1}).empty());
}

TEST_CASE("balancer: those that have waited for their processor all the time count as computing") {
  CHECK_EQ(moves({{0, 990}, {0, 0, false, true}, {0, 0}}, {0, 1}), Moves{{1, 1}});
  CHECK(moves({{0, 990}, {0, 0}, {0, 0}}, {0, 1}).empty());
  CHECK(moves({{0, 990}, {0, 0, false, true}, {1, 400}}, {0, 1}).empty());
}

TEST_CASE("balancer: a seat is runnable while its thread or one of its processes is") {
  const Unmoved unmoved;
  const int processor = usable_processors(1)[0];
  std::atomic<bool> begun = false, over = false;
  std::optional<Seat> seat;
  std::thread sleeper([&] {
    seat.emplace(processor, processor);
    begun = true;
    begun.notify_all();
    over.wait(false);
  });
  begun.wait(false);
  const auto becomes = [&](bool runnable) {
    for (int i = 0; i < 2000 && seat->is_runnable() != runnable; ++i) usleep(1000);
    return seat->is_runnable() == runnable;
  };
  CHECK(becomes(false));
  const pid_t spins = fork();
  if (spins == 0) {
    for (;;) sched_getcpu();
  }
  seat->add(spins);
  CHECK(becomes(true));
  kill(spins, SIGKILL);
  waitpid(spins, nullptr, 0);
  seat->remove(spins);
  CHECK(becomes(false));
  over = true;
  over.notify_all();
  sleeper.join();
}

TEST_CASE("balancer: those that stay where they are do not move, and share it with none that can move") {
  CHECK_EQ(moves({{0, 500}, {0, 500, true}}, {0, 1}), Moves{{0, 1}});
  CHECK(moves({{0, 500, true}, {0, 500, true}}, {0, 1}).empty());
  CHECK_EQ(moves({{0, 330, true}, {0, 330, true}, {0, 330}}, {0, 1, 2}), Moves{{2, 1}});
  CHECK_EQ(moves({{0, 250, true}, {0, 250, true}, {0, 250, true}, {1, 500}, {1, 500}}, {0, 1, 2}), Moves{{4, 2}});
}

TEST_CASE("balancer: a seat stays on the first processor until it has used its time there") {
  const Unmoved unmoved;
  const std::vector<int> processors = usable_processors(2);
  if (processors[0] == processors[1]) return;  // nowhere to go
  std::atomic<int> told = -1;
  Seat seat(processors[1], processors[0], [&](int to) { told = to; });
  constexpr uint64_t kStays_ns = 20'000'000;
  seat.stay_on_first(kStays_ns);
  CHECK_EQ(told, processors[0]);
  CHECK_EQ(processor_of(0), processors[0]);
  CHECK(seat.stays());
  seat.move(processors[1]);
  CHECK_EQ(processor_of(0), processors[0]);
  const uint64_t before_ns = seat.cpu_ns();
  while (seat.cpu_ns() < before_ns + kStays_ns) {
  }
  CHECK_FALSE(seat.stays());
  seat.move(processors[1]);
  CHECK_EQ(processor_of(0), processors[1]);
}

TEST_CASE("balancer: each free processor gets one, from the most crowded") {
  CHECK_EQ(moves({{0, 250}, {0, 250}, {0, 250}, {0, 250}, {1, 500}, {1, 500}}, {0, 1, 2, 3}), Moves{{3, 2}, {2, 3}});
}

TEST_CASE("balancer: a seat moves its thread and its processes, and those that come later") {
  const Unmoved unmoved;
  const std::vector<int> processors = usable_processors(2);
  const pid_t first = fork();
  if (first == 0) pause();
  std::atomic<int> told = -1;
  Seat seat(processors[0], processors[0], [&](int to) { told = to; });
  CHECK_EQ(processor_of(0), processors[0]);
  seat.add(first);
  CHECK_EQ(processor_of(first), processors[0]);
  seat.move(processors[1]);
  CHECK_EQ(seat.processor(), processors[1]);
  CHECK_EQ(told, processors[1]);
  CHECK_EQ(processor_of(0), processors[1]);
  CHECK_EQ(processor_of(first), processors[1]);
  seat.remove(first);
  seat.move(processors[0]);
  CHECK_EQ(processor_of(first), processors[1]);
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
}

TEST_CASE("balancer: two that compute on one processor do not stay there") {
  const Unmoved unmoved;
  const std::vector<int> processors = usable_processors(2);
  if (processors[0] == processors[1]) return;  // nowhere to go
  Balancer balancer(processors, [] { return uint64_t{0}; });
  std::atomic<bool> moved = false;
  const auto compute = [&] {
    Seat seat(processors[0], processors[0], [&](int to) { moved = moved || to == processors[1]; });
    balancer.add(seat);
    while (!moved) {
    }
    balancer.remove(seat);
  };
  std::thread a(compute), b(compute);
  a.join();
  b.join();
  CHECK(moved);
}

}  // namespace redrive::balancer_test
