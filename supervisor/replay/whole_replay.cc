#include "supervisor/replay/whole_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <numeric>
#include <thread>

#include "base/mutex.h"
#include "supervisor/replay/watch.h"

namespace redrive {
namespace {

using Clock = std::chrono::steady_clock;

// What may be in memory before no piece is started that need not be: stored pages of restored processes, and contents
// of messages.
constexpr uint64_t kMostHeld = 1ull << 30;
// How soon it shows that all that are executed wait.
constexpr auto kLook = std::chrono::milliseconds(1);

struct Piece {
  UnitId unit = 0;
  IntervalIndex first = 0, last = 0;  // intervals
  EventIndex begin = 0, end = 0;      // events
  std::optional<EventRef> birth;
  uint64_t image_bytes = 0;
  uint64_t arrival = UINT64_MAX;  // the smallest number of a message that it takes part in
  bool goes_on = false;           // what executes it can execute the next one as well
};

// ---- What there is to execute

// Intervals that cannot be come to are in no piece.
std::vector<Piece> pieces_of(const Trace& trace, const Rdg& graph) {
  std::vector<Piece> pieces;
  for (const auto& unit : trace.units()) {
    const auto& records = trace.intervals(unit.unit);
    const auto& intervals = graph.units.at(unit.unit);
    bool reaches = false;  // the last piece ends where the next interval begins
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      const Rdg::Interval& interval = intervals[i];
      if (!interval.reachable) {
        reaches = false;
        continue;
      }
      if (interval.startable || interval.birth) {
        // A process goes on into memory that it has changed itself, and no other: not where units were joined.
        const bool is_next = reaches && records[i].kind == CheckpointKind::image && unit.joined.empty();
        if (is_next) pieces.back().goes_on = true;
        pieces.push_back({unit.unit, i, i, interval.first_event, interval.end_event, interval.birth,
                          trace.stored_bytes(unit.unit, i)});
      } else if (reaches) {
        pieces.back().last = i;
        pieces.back().end = interval.end_event;
      } else {
        continue;
      }
      reaches = i + 1 < intervals.size() && interval.end_event == intervals[i + 1].first_event;
    }
  }
  return pieces;
}

struct Needs {
  std::vector<NeededSend> sends;
  std::vector<uint64_t> arrivals;        // of all receives
  std::vector<uint64_t> first_arrivals;  // by piece
};

// What the pieces receive. `with_arrivals`: of all receives, for the total order.
Needs needs_of(const Trace& trace, const std::vector<Piece>& pieces, size_t jobs, bool with_arrivals) {
  Needs all;
  all.first_arrivals.resize(pieces.size(), UINT64_MAX);
  if (trace.finished() && trace.channels().empty()) return all;
  Mutex mutex;
  std::atomic<size_t> next = 0;
  const auto read = [&] {
    for (size_t p = next++; p < pieces.size(); p = next++) {
      const Piece& piece = pieces[p];
      Needs its;
      uint64_t first_arrival = UINT64_MAX;
      const auto visited =
          trace.for_each_event(piece.unit, piece.begin, piece.end, [&](EventIndex, const Event& event) {
            if (!event.receive) return true;
            first_arrival = std::min(first_arrival, event.receive->arrival);
            if (with_arrivals) its.arrivals.push_back(event.receive->arrival);
            if (event.receive->logged) return true;
            for (const auto& part : event.receive->parts) {
              its.sends.push_back({part.sender, part.offset + part.length, static_cast<uint32_t>(p)});
            }
            return true;
          });
      static_cast<void>(visited);  // who executes the piece comes to the damage as well, and says so
      const Lock lock(mutex);
      all.sends.insert(all.sends.end(), its.sends.begin(), its.sends.end());
      all.arrivals.insert(all.arrivals.end(), its.arrivals.begin(), its.arrivals.end());
      all.first_arrivals[p] = first_arrival;
    }
  };
  std::vector<std::jthread> readers;
  for (size_t i = 0; i < jobs; ++i) readers.emplace_back(read);
  readers.clear();
  return all;
}

// The order in which pieces are started: as they were recorded, as far as their messages tell.
std::vector<size_t> order_of(std::vector<Piece>& pieces, const Needs& needs) {
  std::map<EventRef, size_t> by_first_event;
  for (size_t p = 0; p < pieces.size(); ++p) {
    pieces[p].arrival = needs.first_arrivals[p];
    by_first_event[{pieces[p].unit, pieces[p].begin}] = p;
  }
  const auto holding = [&](EventRef event) -> Piece* {
    const auto after = by_first_event.upper_bound(event);
    if (after == by_first_event.begin()) return nullptr;
    Piece& piece = pieces[std::prev(after)->second];
    return piece.unit == event.unit && event.event < piece.end ? &piece : nullptr;
  };
  for (const auto& send : needs.sends) {
    if (Piece* const sender = holding(send.event)) {
      sender->arrival = std::min(sender->arrival, needs.first_arrivals[send.receiver]);
    }
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    const bool first = p == 0 || pieces[p - 1].unit != pieces[p].unit;
    const Piece* const before = !first ? &pieces[p - 1] : pieces[p].birth ? holding(*pieces[p].birth) : nullptr;
    const uint64_t earliest = before ? before->arrival : 0;
    pieces[p].arrival = pieces[p].arrival == UINT64_MAX ? earliest : std::max(earliest, pieces[p].arrival);
  }
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pieces[a].arrival < pieces[b].arrival; });
  return order;
}

// ---- Executing it

class Whole {
 public:
  Whole(const SetRun& run, bool verify, const std::function<void()>& advance)
      : run_(run), verify_(verify), advance_(advance) {}

  Result<WholeOutcome> redrive();

 private:
  enum class State : uint8_t { waits, runs, ended };

  // One process, or several that share memory, from a piece's checkpoint on, as the thread that re-drives it sees it.
  class Process final : public Halt {
   public:
    Process(Whole& whole, size_t piece, int processor) : whole_(whole), piece_(piece), processor_(processor) {}
    void redrive();

    std::optional<EventIndex> next() override;
    bool shown() const override { return false; }
    Then stand(const StoppedUnit&) override { return interval_ended(); }

   private:
    const Piece& piece() const { return whole_.pieces_[piece_]; }
    Then interval_ended();
    void failed(const Result<Replayer::Outcome>& outcome);

    Whole& whole_;
    size_t piece_;
    const int processor_;
    IntervalIndex interval_ = 0;
    size_t last_piece_ = 0;  // that it can come to
    bool ended_ = false;     // its last piece has
    Clock::time_point since_;
  };
  struct Running {
    std::thread thread;
    int processor = 0;
    uint64_t bytes = 0;
    bool over = false;
  };

  RedrivenOnce& outcome_of(UnitId unit, IntervalIndex interval) {
    return outcome_.intervals[first_of_unit_.at(unit) + interval];
  }
  void list_intervals();
  void run_all();
  bool may_start() const REQUIRES(mutex_);
  size_t next_piece() REQUIRES(mutex_);
  void start(size_t piece) REQUIRES(mutex_);
  bool claim(size_t piece, int processor);
  void end_piece(size_t piece, bool failed);
  int idlest() const REQUIRES(mutex_);

  const SetRun& run_;
  const bool verify_;
  const std::function<void()>& advance_;
  std::vector<Piece> pieces_;
  std::vector<size_t> order_;
  std::map<EventRef, size_t> by_birth_;
  std::map<UnitId, size_t> first_of_unit_;
  std::unique_ptr<MessageStore> store_;
  WholeOutcome outcome_;  // each thread writes to those of its intervals
  Mutex mutex_;
  Condition changed_;
  std::vector<State> states_ GUARDED_BY(mutex_);
  size_t next_ GUARDED_BY(mutex_) = 0;     // in order_: those before have been started
  size_t started_ GUARDED_BY(mutex_) = 0;  // pieces
  std::list<Running> running_ GUARDED_BY(mutex_);
  uint64_t image_bytes_ GUARDED_BY(mutex_) = 0;  // of those that run
};

void Whole::Process::redrive() {
  const Piece& first = piece();
  interval_ = first.first;
  last_piece_ = piece_;
  if (!whole_.verify_) {
    while (whole_.pieces_[last_piece_].goes_on) ++last_piece_;
  }
  const Piece& last = whole_.pieces_[last_piece_];
  const PlannedInterval what{first.unit, first.first, last.last, last.end, 0};
  ReplayerOptions how;
  how.verify = whole_.verify_;
  how.halt = this;
  since_ = how.started;
  Replayer replayer(whole_.run_.trace, what, first.birth, *whole_.store_, processor_, whole_.run_.tier, how);
  const auto outcome = replayer.run();
  if (ended_) return;
  if (!outcome || outcome->divergence) return failed(outcome);
  RedrivenOnce& its = whole_.outcome_of(first.unit, interval_);
  its.verified = outcome->verified;
  its.unverified = outcome->unverified;
  interval_ended();
}

std::optional<EventIndex> Whole::Process::next() {
  if (piece_ == last_piece_ && interval_ == piece().last) return std::nullopt;
  return whole_.run_.graph.rdg().units.at(piece().unit)[interval_].end_event;
}

// It may go on into the next interval.
Halt::Then Whole::Process::interval_ended() {
  const auto now = Clock::now();
  whole_.outcome_of(piece().unit, interval_).seconds =
      std::chrono::duration<double>(now - std::exchange(since_, now)).count();
  whole_.advance_();
  if (interval_ < piece().last && whole_.verify_) {
    whole_.outcome_of(piece().unit, interval_).unverified = kNoImageAtEnd;
  }
  if (interval_++ < piece().last) return Then::go_on;
  whole_.end_piece(piece_, false);
  ended_ = piece_ == last_piece_ || !whole_.claim(piece_ + 1, processor_);
  if (!ended_) ++piece_;
  return ended_ ? Then::end : Then::go_on;
}

void Whole::Process::failed(const Result<Replayer::Outcome>& outcome) {
  RedrivenOnce& its = whole_.outcome_of(piece().unit, interval_);
  its.seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  if (!outcome) {
    its.error = outcome.error();
  } else {
    its.divergence = outcome->divergence;
    its.divergence->interval = interval_;
  }
  for (IntervalIndex i = interval_ + 1; i <= piece().last; ++i) {
    whole_.outcome_of(piece().unit, i).error =
        Error{fmt::format("interval {} before it, which leads to it, was not re-driven to its end", interval_)};
  }
  for (IntervalIndex i = interval_; i <= piece().last; ++i) whole_.advance_();
  whole_.end_piece(piece_, true);
}

bool Whole::claim(size_t piece, int processor) {
  {
    const Lock lock(mutex_);
    const bool room = store_->held_bytes() + image_bytes_ < kMostHeld;
    if (states_[piece] != State::waits || !room) return false;
    states_[piece] = State::runs;
    ++started_;
  }
  store_->interval_starts(piece, processor);
  return true;
}

void Whole::end_piece(size_t piece, bool failed) {
  store_->interval_ended(piece, failed);
  const Lock lock(mutex_);
  states_[piece] = State::ended;
}

// At least one that does not wait, and as many as there are processors if memory allows.
bool Whole::may_start() const {
  const size_t waiting = store_->waiting();
  if (waiting >= running_.size()) return true;
  return running_.size() - waiting < run_.processors.size() && store_->held_bytes() + image_bytes_ < kMostHeld;
}

// Of those that nobody has started: one that has been forked already, or the next in the order.
size_t Whole::next_piece() {
  for (const EventRef& birth : store_->births_left()) {
    const auto born = by_birth_.find(birth);
    if (born != by_birth_.end() && states_[born->second] == State::waits) return born->second;
  }
  while (states_[order_[next_]] != State::waits) ++next_;
  return order_[next_];
}

int Whole::idlest() const {
  const auto load = [&](int processor) REQUIRES(mutex_) {
    return std::count_if(running_.begin(), running_.end(),
                         [&](const Running& running) { return running.processor == processor && !running.over; });
  };
  return *std::min_element(run_.processors.begin(), run_.processors.end(),
                           [&](int a, int b) REQUIRES(mutex_) { return load(a) < load(b); });
}

void Whole::start(size_t piece) {
  const int processor = idlest();
  states_[piece] = State::runs;
  ++started_;
  store_->interval_starts(piece, processor);
  Running& running = running_.emplace_back();
  running.processor = processor;
  running.bytes = pieces_[piece].image_bytes;
  image_bytes_ += running.bytes;
  const auto end = [this, &running]() REQUIRES(mutex_) {
    image_bytes_ -= running.bytes;
    running.over = true;
  };
  try {
    running.thread = std::thread([this, piece, processor, end] {
      Process(*this, piece, processor).redrive();
      const Lock lock(mutex_);
      end();
      changed_.notify_all();
    });
  } catch (const std::system_error& failure) {
    const Error error{std::string("cannot start a thread: ") + failure.code().message()};
    for (IntervalIndex i = pieces_[piece].first; i <= pieces_[piece].last; ++i)
      outcome_of(pieces_[piece].unit, i).error = error;
    store_->interval_ended(piece, true);
    states_[piece] = State::ended;
    end();
  }
}

void Whole::run_all() {
  const Lock lock(mutex_);
  for (;;) {
    for (auto running = running_.begin(); running != running_.end();) {
      if (running->over && running->thread.joinable()) running->thread.join();  // it has nothing left to do
      running = running->over ? running_.erase(running) : std::next(running);
    }
    while (started_ < pieces_.size() && may_start()) start(next_piece());
    if (running_.empty() && started_ == pieces_.size()) return;
    const bool any_over =
        std::any_of(running_.begin(), running_.end(), [](const Running& running) { return running.over; });
    if (any_over) continue;
    if (started_ < pieces_.size()) {
      changed_.wait_for(mutex_, kLook);
    } else {
      changed_.wait(mutex_);
    }
  }
}

void Whole::list_intervals() {
  for (const auto& unit : run_.trace.units()) {
    first_of_unit_[unit.unit] = outcome_.intervals.size();
    for (const auto& record : run_.trace.intervals(unit.unit)) {
      RedrivenOnce& its = outcome_.intervals.emplace_back();
      its.unit = unit.unit;
      its.interval = record.interval;
      if (!run_.graph.rdg().units.at(unit.unit)[record.interval].reachable) {  // reported as cut
        if (verify_) its.unverified = kUnreachable;
        continue;
      }
      its.error = Error{"the trace holds no checkpoint that leads to it"};
    }
  }
  for (const auto& piece : pieces_) {
    for (IntervalIndex i = piece.first; i <= piece.last; ++i) outcome_of(piece.unit, i).error.reset();
  }
}

Result<WholeOutcome> Whole::redrive() {
  pieces_ = pieces_of(run_.trace, run_.graph.rdg());
  list_intervals();
  Needs needs = needs_of(run_.trace, pieces_, run_.processors.size(), run_.total_order);
  order_ = order_of(pieces_, needs);
  std::vector<ExecutedEvents> executed;
  std::set<EventRef> births;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    executed.push_back({pieces_[p].unit, pieces_[p].begin, pieces_[p].end});
    if (!pieces_[p].birth) continue;
    births.insert(*pieces_[p].birth);
    by_birth_[*pieces_[p].birth] = p;
  }
  ASSIGN_OR_RETURN(store_, MessageStore::make(executed, std::move(needs.sends), std::move(births)));
  if (run_.total_order) store_->keep_order_of(std::move(needs.arrivals));
  {
    const Lock lock(mutex_);
    states_.resize(pieces_.size(), State::waits);
  }
  {
    const Watch watch(run_.processors, [this] { return store_->progress(); });
    run_all();
  }
  outcome_.arrivals = store_->turns_taken();
  return std::move(outcome_);
}

}  // namespace

Result<WholeOutcome> redrive_once(const SetRun& run, bool verify, const std::function<void()>& advance) {
  return Whole(run, verify, advance).redrive();
}

}  // namespace redrive
