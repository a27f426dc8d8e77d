// What a recording's snapshots are taken for.
#include "supervisor/record/settings/triggers.h"

#include <signal.h>

#include "supervisor/record/kernel/tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::triggers_test {

namespace {

constexpr uint64_t kMs = 1'000'000;

Trigger parsed(const std::string& text) {
  auto trigger = parse_trigger(text);
  REQUIRE_MESSAGE(trigger, text);
  return *trigger;
}

// The times are as inexact as those of served calls.
void set_time(EventTime& now, uint64_t ms) { now = {ms * kMs, ms * kMs + kMs / 2, ms * kMs}; }

}  // namespace

TEST_CASE("triggers are written as the manual says") {
  CHECK_EQ(parsed("exit=3").number, 3);
  CHECK(parsed("exit!=0").other);
  CHECK_EQ(parsed("killed=SEGV").number, SIGSEGV);
  CHECK_EQ(parsed("killed=SIGTERM").number, SIGTERM);
  CHECK_EQ(parsed("signal=12").number, 12);
  CHECK_EQ(parsed("reply>200ms").longest_ns, 200 * kMs);
  for (const char* wrong :
       {"",         "exit",      "exit=",       "exit=256",    "exit=-1",     "killed=",  "killed=NOTHING",
        "killed=0", "signal=99", "signal=KILL", "signal=STOP", "signal=SEGV", "reply>0s", "file=",
        "writes=",  "writes=[a", "reply>",      "reply>200",   "reply=1s",    "Crash"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_trigger(wrong));
  }
}

TEST_CASE("triggers: how a process ends") {
  EventTime now;
  set_time(now, 5);
  const auto happens = [&](const std::string& text, TraceeEnd end) {
    Triggers triggers({parsed(text)}, now);
    triggers.note_end(7, "worker", end);
    return triggers.take();
  };
  CHECK(happens("exit=3", {3, 0}));
  CHECK_FALSE(happens("exit=3", {4, 0}));
  CHECK_FALSE(happens("exit=0", {0, SIGKILL}));
  CHECK(happens("exit!=0", {1, 0}));
  CHECK_FALSE(happens("exit!=0", {0, 0}));
  CHECK_FALSE(happens("exit!=0", {0, SIGTERM}));
  CHECK(happens("crash", {0, SIGSEGV}));
  CHECK_FALSE(happens("crash", {0, SIGTERM}));
  CHECK(happens("killed", {0, SIGTERM}));
  CHECK(happens("killed=TERM", {0, SIGTERM}));
  CHECK_FALSE(happens("killed=TERM", {0, SIGKILL}));
  const auto happened = happens("crash", {0, SIGABRT});
  REQUIRE(happened);
  CHECK_EQ(happened->what, "crash: worker, in unit 7, was ended by SIGABRT");
}

TEST_CASE("triggers: an answer that takes long, when it comes or while it does not") {
  EventTime now;
  Triggers triggers({parsed("reply>100ms")}, now);
  set_time(now, 1000);
  triggers.note_request(1, 7);
  set_time(now, 1050);
  triggers.note_request(1, 7);  // more of it
  triggers.note_request(2, 8);
  set_time(now, 1090);
  triggers.note_reply(7);
  CHECK_FALSE(triggers.take());
  triggers.note_reply(7);  // unasked
  set_time(now, 1160);
  triggers.note_reply(8);
  const auto late = triggers.take();
  REQUIRE(late);
  CHECK_EQ(late->at_ns, 1160 * kMs);

  triggers.note_request(3, 9);
  triggers.look(1250 * kMs);
  CHECK_FALSE(triggers.take());
  triggers.look(1270 * kMs);
  CHECK(triggers.take());
  triggers.look(1400 * kMs);  // it is reported once
  set_time(now, 1500);
  triggers.note_reply(9);
  CHECK_FALSE(triggers.take());
}

TEST_CASE("triggers: a time is long only if it certainly is") {
  EventTime now;
  Triggers triggers({parsed("reply>100ms")}, now);
  now = {0, 50 * kMs, 0};
  triggers.note_request(1, 7);
  now = {140 * kMs, 190 * kMs, 140 * kMs};
  triggers.note_reply(7);
  CHECK_FALSE(triggers.take());
}

TEST_CASE("triggers: signals are taken from the program, and nothing else") {
  EventTime now;
  set_time(now, 1);
  Triggers triggers({parsed("signal=USR2")}, now);
  CHECK_FALSE(triggers.takes_signal(SIGTERM, 7));
  CHECK_FALSE(triggers.take());
  CHECK(triggers.takes_signal(SIGUSR2, 7));
  CHECK(triggers.take());
  CHECK_FALSE(triggers.take());
}

TEST_CASE("triggers: a line that is written, in one piece or in several") {
  EventTime now;
  set_time(now, 10);
  Triggers triggers({parsed("writes=^ERROR [0-9]+$")}, now);
  REQUIRE(triggers.watch_writes());
  const auto happens = [&](UnitId unit, pid_t process, int descriptor, std::string_view bytes) {
    triggers.note_written(unit, process, descriptor, bytes);
    const auto happened = triggers.take();
    return happened ? happened->what : std::string();
  };
  CHECK_EQ(happens(1, 10, 2, "all is well\nno ERROR 5\n"), "");
  CHECK_EQ(happens(1, 10, 2, "well\nERROR 17\nmore"), "writes=^ERROR [0-9]+$: unit 1 wrote 'ERROR 17'");
  CHECK_EQ(happens(1, 10, 2, "\n"), "");
  // A piece belongs to the descriptor that the one before was written to, of this process.
  CHECK_EQ(happens(1, 10, 2, "ERR"), "");
  CHECK_EQ(happens(1, 10, 1, "OR 1\n"), "");
  CHECK_EQ(happens(1, 11, 2, "OR 1\n"), "");
  CHECK_EQ(happens(2, 10, 2, "OR 1\n"), "");
  CHECK_EQ(happens(1, 10, 2, "OR 1\n"), "writes=^ERROR [0-9]+$: unit 1 wrote 'ERROR 1'");
  // Bytes that are no text, among them NUL, and a line of which only the end is looked at.
  CHECK_EQ(happens(1, 10, 2, std::string_view("\0\xff\nERROR 2\n\0", 12)),
           "writes=^ERROR [0-9]+$: unit 1 wrote 'ERROR 2'");
  CHECK_EQ(happens(1, 10, 3, std::string(100'000, 'x')), "");
  CHECK_EQ(happens(1, 10, 3, "\nERROR 3\n"), "writes=^ERROR [0-9]+$: unit 1 wrote 'ERROR 3'");
}

TEST_CASE("triggers: a pattern is found once, although its line goes on") {
  EventTime now;
  set_time(now, 10);
  Triggers triggers({parsed("writes=panic")}, now);
  triggers.note_written(1, 10, 2, "kernel panic: ");
  CHECK(triggers.take());
  triggers.note_written(1, 10, 2, "not syncing\n");
  CHECK_FALSE(triggers.take());
  CHECK_FALSE(Triggers({parsed("crash")}, now).watch_writes());
}

}  // namespace redrive::triggers_test
