// When a thread that makes no event is stopped where it is.
#include "supervisor/record/tracees/patience.h"

#include "tests/unit/unit_test.h"

namespace redrive::patience_test {

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 500 * kMs;  // CPU time that the unit has used before
using Due = Patience::Due;

bool interrupts(Patience& patience, Due due, uint64_t at_ns) {
  return patience.look(due, kStart + at_ns, true).interrupt;
}

}  // namespace

TEST_CASE("a thread for which others wait has 10 ms") {
  Patience patience;
  CHECK_FALSE(interrupts(patience, Due::soon, 0));
  CHECK_FALSE(interrupts(patience, Due::soon, 10 * kMs - 1));
  CHECK(interrupts(patience, Due::soon, 10 * kMs));
}

TEST_CASE("a thread whose checkpoint is late is stopped if it has run since it was asked") {
  Patience patience;
  CHECK_FALSE(interrupts(patience, Due::at_once, 0));
  CHECK_FALSE(interrupts(patience, Due::at_once, 0));  // it waits for the processor
  CHECK(interrupts(patience, Due::at_once, 1));
}

TEST_CASE("an event that was made, or is not due any more, ends the wait") {
  Patience patience;
  CHECK_FALSE(interrupts(patience, Due::soon, 0));
  patience.reset();
  CHECK_FALSE(interrupts(patience, Due::soon, 9 * kMs));
  CHECK_FALSE(interrupts(patience, Due::soon, 18 * kMs));
  CHECK(interrupts(patience, Due::soon, 19 * kMs));
}

TEST_CASE("it is interrupted again after 1 ms, because another stop takes an interrupt back") {
  Patience patience;
  CHECK_FALSE(interrupts(patience, Due::soon, 0));
  CHECK(interrupts(patience, Due::soon, 12 * kMs));
  CHECK_FALSE(interrupts(patience, Due::soon, 12 * kMs));
  CHECK_FALSE(interrupts(patience, Due::soon, 13 * kMs - 1));
  CHECK(interrupts(patience, Due::soon, 13 * kMs));
  patience.reset();  // the reason is over, but not the interrupt
  CHECK_FALSE(interrupts(patience, Due::at_once, 13 * kMs));
  CHECK_FALSE(interrupts(patience, Due::at_once, 13 * kMs + 1));
  CHECK(interrupts(patience, Due::at_once, 14 * kMs));
}

TEST_CASE("while no image can be taken, no thread is stopped, and time passes all the same") {
  Patience patience;
  CHECK_FALSE(patience.look(Due::soon, kStart, false).interrupt);
  const auto answer = patience.look(Due::soon, kStart + 3000 * kMs, false);
  CHECK_FALSE(answer.interrupt);
  CHECK_FALSE(answer.gave_up);
  CHECK(interrupts(patience, Due::soon, 3000 * kMs));
}

TEST_CASE("what cannot be stopped is said once, and tried on") {
  Patience patience;
  patience.look(Due::soon, kStart, true);
  CHECK_FALSE(patience.look(Due::soon, kStart + 2000 * kMs, true).gave_up);
  const auto answer = patience.look(Due::soon, kStart + 2000 * kMs + 1, true);
  CHECK(answer.gave_up);
  CHECK_FALSE(answer.interrupt);  // it was, right before
  patience.reset();
  patience.look(Due::soon, kStart + 2001 * kMs, true);
  const auto later = patience.look(Due::soon, kStart + 9000 * kMs, true);
  CHECK_FALSE(later.gave_up);
  CHECK(later.interrupt);
}

TEST_CASE("a late checkpoint is never given up") {
  Patience patience;
  patience.look(Due::at_once, kStart, true);
  CHECK_FALSE(patience.look(Due::at_once, kStart + 5000 * kMs, true).gave_up);
}

TEST_CASE("where stops take most of the time they come less often, and as often as before where they do not") {
  Patience patience;
  Patience::Used used;
  const auto stopped = [&](uint64_t cpu_ns, uint64_t faults_ns, uint64_t pause_ns) {
    used.cpu_ns += cpu_ns, used.faults_ns += faults_ns;
    patience.stopped(used, pause_ns);
    patience.reset();
    patience.look(Due::soon, used.cpu_ns, true);
    uint64_t waited_ns = 0;
    while (!patience.look(Due::soon, used.cpu_ns + waited_ns, true).interrupt) waited_ns += kMs;
    patience.reset();
    return waited_ns / kMs;
  };
  stopped(kStart, 0, 0);
  CHECK(stopped(20 * kMs, 9 * kMs, kMs) == 10);
  CHECK(stopped(20 * kMs, 15 * kMs, 0) == 20);
  CHECK(stopped(20 * kMs, 0, 30 * kMs) == 40);
  CHECK(stopped(20 * kMs, 6 * kMs, 0) == 40);
  for (int i = 0; i < 10; ++i) stopped(20 * kMs, 20 * kMs, 0);
  CHECK(stopped(20 * kMs, 20 * kMs, 0) == 640);
  CHECK(stopped(20 * kMs, kMs, kMs) == 320);
  for (int i = 0; i < 10; ++i) stopped(20 * kMs, 0, 0);
  CHECK(stopped(20 * kMs, 0, 0) == 10);
}

TEST_CASE("a unit of which a process has ended is not taken for one that uses less than nothing") {
  Patience patience;
  patience.stopped({100 * kMs, 40 * kMs}, kMs);
  patience.stopped({40 * kMs, 10 * kMs}, kMs);
  CHECK_FALSE(interrupts(patience, Due::soon, 0));
  CHECK(interrupts(patience, Due::soon, 10 * kMs));
}

}  // namespace redrive::patience_test
