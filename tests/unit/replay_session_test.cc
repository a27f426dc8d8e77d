// When pieces of a session are started, where they stop, and who goes on. What executes them is a fake.
#include "supervisor/replay/replay_session.h"

#include <atomic>
#include <thread>

#include "tests/unit/no_threads.h"
#include "tests/unit/unit_test.h"

namespace redrive::replay_session_test {

namespace {

// Pieces of one unit, of 10 events each.
std::vector<ReplaySession::Piece> pieces_of(size_t count) {
  std::vector<ReplaySession::Piece> pieces(count);
  for (size_t i = 0; i < count; ++i) {
    const auto interval = static_cast<IntervalIndex>(i);
    pieces[i].what = {1, interval, interval, 10 * (i + 1), 0};
  }
  return pieces;
}

std::unique_ptr<MessageStore> store_for(const std::vector<ReplaySession::Piece>& pieces) {
  std::vector<ExecutedEvents> executed;
  for (const auto& piece : pieces) executed.push_back({1, 10ull * piece.what.start, piece.what.requisite_event});
  auto store = MessageStore::make(executed, {}, {});
  REQUIRE(store);
  return std::move(*store);
}

// Goes where it is told; ends well.
ReplaySession::Outcome obey(Halt& halt) {
  while (const auto stop = halt.next()) {
    if (halt.stand({1, *stop, std::nullopt, {}, {}}) == Halt::Then::end) return Replayer::Outcome{};
  }
  Replayer::Outcome outcome;
  outcome.verified = true;
  return outcome;
}

using Outcomes = std::vector<std::optional<ReplaySession::Outcome>>;

ReplaySession::Notes into(Outcomes& outcomes) {
  return {{}, {}, [&outcomes](size_t piece, const auto& outcome) { outcomes[piece] = outcome; }};
}

// What was noted, by any thread, in its order.
class Notebook {
 public:
  void add(const std::string& what, size_t piece) {
    const Lock lock(mutex_);
    lines_.push_back(what + " " + std::to_string(piece));
  }
  std::vector<std::string> lines() const {
    const Lock lock(mutex_);
    return lines_;
  }
  ReplaySession::Notes notes() {
    return {[this](size_t piece) { add("begins", piece); }, [this](size_t piece) { add("passes", piece); },
            [this](size_t piece, const auto& outcome) { add(outcome ? "ends" : "fails", piece); }};
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ GUARDED_BY(mutex_);
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("replay session: pieces that go to their ends have outcomes, whether good or bad") {
  auto pieces = pieces_of(3);
  auto store = store_for(pieces);
  Outcomes outcomes(pieces.size());
  ReplaySession session(
      pieces, std::move(store), {0, 0},
      [](const auto& piece, const auto&, Seat&, Halt& halt) -> ReplaySession::Outcome {
        if (piece.what.start == 1) return Error{"no memory"};
        return obey(halt);
      },
      into(outcomes));
  CHECK_FALSE(session.any_has_ended());
  session.go({{1, std::nullopt}, {0, std::nullopt}});
  REQUIRE(outcomes[0]);
  CHECK((*outcomes[0])->verified);
  REQUIRE(outcomes[1]);
  CHECK_EQ(outcomes[1]->error().message, "no memory");
  CHECK_FALSE(outcomes[2]);  // it was not told to go anywhere
  CHECK_FALSE(session.has_ended(2));
}

TEST_CASE("replay session: a piece stands at its goal, is looked at there, and goes on") {
  auto pieces = pieces_of(2);
  pieces[0].shown = true;
  auto store = store_for(pieces);
  Outcomes outcomes(pieces.size());
  ReplaySession session(
      pieces, std::move(store), {0}, [](const auto&, const auto&, Seat&, Halt& halt) { return obey(halt); },
      into(outcomes));
  EventIndex seen = 0;
  const auto see = [&](const StoppedUnit& unit) { seen = unit.event; };
  CHECK_FALSE(session.look(0, see));  // it has not started
  session.go({{0, 4}, {1, 13}});
  CHECK(session.stands_at(0, 4));
  CHECK(session.stands_at(1, 13));
  CHECK(session.look(0, see));
  CHECK_EQ(seen, 4);
  session.go({{0, 7}});
  CHECK(session.look(0, see));
  CHECK_EQ(seen, 7);
  CHECK(session.stands_at(1, 13));
  session.go({{0, std::nullopt}});
  CHECK(session.has_ended(0));
  CHECK((*outcomes[0])->verified);
  CHECK_FALSE(session.look(0, see));
  session.end_all();
  REQUIRE(outcomes[1]);
  CHECK_FALSE((*outcomes[1])->verified);  // it ended where it stood
}

TEST_CASE("replay session: a thread that reaches a piece's end continues into the next, if that has not been started") {
  auto pieces = pieces_of(2);
  pieces[0].goes_on = true;
  pieces[0].passes = {3, 6};
  auto store = store_for(pieces);
  Notebook notebook;
  std::vector<EventIndex> ends;
  ReplaySession session(
      pieces, std::move(store), {0},
      [&](const auto&, const PlannedInterval& what, Seat&, Halt& halt) {
        ends.push_back(what.requisite_event);
        return obey(halt);
      },
      notebook.notes());
  session.run_all({0, 1});
  CHECK_EQ(ends, std::vector<EventIndex>{20});  // one process executed both
  CHECK_EQ(notebook.lines(), Lines{"begins 0", "passes 0", "passes 0", "ends 0", "begins 1", "ends 1"});
}

TEST_CASE("replay session: where one has failed, the next piece starts from its own checkpoint") {
  auto pieces = pieces_of(2);
  pieces[0].goes_on = true;
  auto store = store_for(pieces);
  Notebook notebook;
  ReplaySession session(
      pieces, std::move(store), {0},
      [](const auto& piece, const auto&, Seat&, Halt& halt) -> ReplaySession::Outcome {
        if (piece.what.start == 0) return Error{"no memory"};
        return obey(halt);
      },
      notebook.notes());
  session.run_all({0, 1});
  CHECK_EQ(notebook.lines(), Lines{"begins 0", "fails 0", "begins 1", "ends 1"});
}

TEST_CASE("replay session: no more pieces run at a time than there are processors, in the given order") {
  auto pieces = pieces_of(6);
  auto store = store_for(pieces);
  Notebook notebook;
  std::atomic<int> running = 0, most = 0;
  ReplaySession session(
      pieces, std::move(store), {0},
      [&](const auto&, const auto&, Seat&, Halt& halt) {
        most = std::max(most.load(), ++running);
        auto outcome = obey(halt);
        --running;
        return outcome;
      },
      notebook.notes());
  session.run_all({5, 4, 3, 2, 1, 0});
  CHECK_EQ(most, 1);
  CHECK_EQ(notebook.lines().size(), 12);
  CHECK_EQ(notebook.lines().front(), "begins 5");
  CHECK_EQ(notebook.lines().back(), "ends 0");
}

TEST_CASE("replay session: a piece for which no thread can be started begins and fails") {
  std::thread([] {
    auto pieces = pieces_of(2);
    auto store = store_for(pieces);
    Notebook notes;
    ReplaySession session(
        pieces, std::move(store), {0, 0}, [](const auto&, const auto&, Seat&, Halt& halt) { return obey(halt); },
        notes.notes());
    make_no_threads();
    session.run_all({0, 1});
    CHECK(notes.lines() == Lines{"begins 0", "fails 0", "begins 1", "fails 1"});
  }).join();
}

}  // namespace redrive::replay_session_test
