#include "supervisor/replay/replay_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/assert.h"
#include "base/text.h"
#include "supervisor/tier/first_processor.h"

namespace redrive {
namespace {

// When more than this is in memory (stored pages of restored processes, and contents of messages), only pieces that
// must be started are started.
constexpr uint64_t kMostHeld = 1ull << 30;
// How soon it is noticed that all pieces that are executed wait.
constexpr auto kPoll = std::chrono::milliseconds(1);

// Why others do not get what the piece should have brought them.
std::optional<Error> failure_of(const ReplaySession::Outcome& outcome) {
  if (!outcome) return outcome.error();
  if (!outcome->divergence) return std::nullopt;
  const Divergence& its = *outcome->divergence;
  return Error{fmt::format("unit {} diverged at event {}", its.unit, its.event), Status::divergence};
}

int first_of_all() {
  cpu_set_t all;
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof all, &all);
  return first_processor(all);
}

}  // namespace

// One process, or several that share memory, from a piece's checkpoint on, as the thread that executes it sees it.
class ReplaySession::Execution final : public Halt {
 public:
  Execution(ReplaySession& session, size_t piece, Running& running, int processor)
      : session_(session),
        piece_(piece),
        seat_(processor, session.first_processor_,
              [this, &running](int to) { session_.note_move(running, piece_, to); }),
        last_(piece) {
    while (session_.pieces_[last_].goes_on) ++last_;
  }

  void run() {
    const Piece &first = piece(), &last = session_.pieces_[last_];
    PlannedInterval what = first.what;
    what.interval = last.what.interval;
    what.requisite_event = last.what.requisite_event;
    begin();
    session_.balancer_.add(seat_);
    const auto outcome = session_.execute_(first, what, seat_, *this);
    session_.balancer_.remove(seat_);
    if (!left_) session_.end_piece(piece_, outcome);
  }

  std::optional<EventIndex> next() override {
    if (passed_ < piece().passes.size()) return piece().passes[passed_];
    if (piece_ != last_) return piece().what.requisite_event;
    const Lock lock(session_.mutex_);
    return session_.stages_[piece_].stop;
  }
  bool shown() const override { return piece().shown; }
  Then stand(const StoppedUnit& unit) override {
    if (passed_ < piece().passes.size()) {
      ++passed_;
      if (session_.notes_.passes) session_.notes_.passes(piece_);
      return Then::go_on;
    }
    return piece_ != last_ ? go_on() : session_.stand(piece_, unit);
  }

 private:
  const Piece& piece() const { return session_.pieces_[piece_]; }
  void begin() const {
    session_.store_->payloads().make_room(session_.store_->events_of(piece_));
    if (session_.notes_.begins) session_.notes_.begins(piece_);
  }
  // Continues into the next piece.
  Then go_on() {
    session_.end_piece(piece_, Replayer::Outcome{});
    left_ = !session_.claim(piece_ + 1, seat_.processor());
    if (left_) return Then::end;
    ++piece_;
    passed_ = 0;
    begin();
    return Then::go_on;
  }

  ReplaySession& session_;
  std::atomic<size_t> piece_;
  Seat seat_;
  size_t last_;        // the last piece that it can come to
  size_t passed_ = 0;  // of the piece's
  bool left_ = false;  // another thread executes the next piece
};

ReplaySession::ReplaySession(std::vector<Piece> pieces, std::unique_ptr<MessageStore> store,
                             std::vector<int> processors, Execute execute, Notes notes)
    : pieces_(std::move(pieces)),
      store_(std::move(store)),
      processors_(std::move(processors)),
      first_processor_(first_of_all()),
      execute_(std::move(execute)),
      notes_(std::move(notes)),
      balancer_(processors_, [this] { return store_->progress(); }) {
  const Lock lock(mutex_);
  stages_.resize(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].birth) by_birth_[*pieces_[i].birth] = i;
    if (pieces_[i].processor) store_->interval_starts(i, *pieces_[i].processor);
    store_->interval_stands();  // until it is started
  }
}

ReplaySession::~ReplaySession() {
  end_all();
  std::list<Running> running;
  {
    const Lock lock(mutex_);
    running.swap(running_);
  }
  for (Running& one : running) {
    if (one.thread.joinable()) one.thread.join();
  }
}

bool ReplaySession::any(Doing doing) const {
  return std::any_of(stages_.begin(), stages_.end(), [&](const Stage& stage) { return stage.doing == doing; });
}

bool ReplaySession::any_has_ended() const {
  const Lock lock(mutex_);
  return any(Doing::ended);
}

bool ReplaySession::has_ended(size_t piece) const {
  const Lock lock(mutex_);
  return stages_.at(piece).doing == Doing::ended;
}

bool ReplaySession::stands_at(size_t piece, EventIndex event) const {
  const Lock lock(mutex_);
  const Stage& stage = stages_.at(piece);
  return stage.doing == Doing::stands && stage.stop == event;
}

// ---- Going to places

void ReplaySession::go(const std::vector<Goal>& goals) {
  store_->intervals_go_on(goals.size());
  const Lock lock(mutex_);
  for (const auto& [piece, stop] : goals) {
    Stage& stage = stages_[piece];
    stage.stop = stop;
    if (stage.doing == Doing::waits) {
      start(piece);
    } else {
      stage.doing = Doing::runs;
    }
  }
  changed_.notify_all();
  while (any(Doing::runs)) changed_.wait(mutex_);
}

void ReplaySession::end_all() {
  std::vector<Goal> standing;
  {
    const Lock lock(mutex_);
    ending_ = true;
    for (size_t i = 0; i < stages_.size(); ++i) {
      if (stages_[i].doing == Doing::stands) standing.push_back({i, stages_[i].stop});
    }
  }
  go(standing);
}

// A piece has come to its goal, and stands there until it gets another one.
Halt::Then ReplaySession::stand(size_t piece, const StoppedUnit& unit) {
  store_->interval_stands();
  const Lock lock(mutex_);
  Stage& stage = stages_[piece];
  stage.doing = Doing::stands;
  changed_.notify_all();
  while (stage.doing == Doing::stands) {
    if (!stage.look) {
      changed_.wait(mutex_);
      continue;
    }
    (*stage.look)(unit);
    stage.look = nullptr;
    changed_.notify_all();
  }
  return ending_ ? Halt::Then::end : Halt::Then::go_on;
}

bool ReplaySession::look(size_t piece, const Look& look) {
  ASSERT(pieces_.at(piece).shown);
  const Lock lock(mutex_);
  Stage& stage = stages_[piece];
  if (stage.doing != Doing::stands) return false;
  stage.look = &look;
  changed_.notify_all();
  while (stage.look) changed_.wait(mutex_);
  return true;
}

// ---- All, as there is room

void ReplaySession::run_all(const std::vector<size_t>& order) {
  store_->intervals_go_on(pieces_.size());
  size_t next = 0;  // in the order: those before have been started
  const Lock lock(mutex_);
  for (;;) {
    reap();
    while (started_ < pieces_.size() && may_start()) start(next_of(order, next));
    if (running_.empty() && started_ == pieces_.size()) return;
    const bool any_over =
        std::any_of(running_.begin(), running_.end(), [](const Running& running) { return running.over; });
    if (any_over) continue;
    if (started_ < pieces_.size()) {
      changed_.wait_for(mutex_, kPoll);
    } else {
      changed_.wait(mutex_);
    }
  }
}

// Removes threads that have nothing left to do.
void ReplaySession::reap() {
  for (auto running = running_.begin(); running != running_.end();) {
    if (running->over && running->thread.joinable()) running->thread.join();
    running = running->over ? running_.erase(running) : std::next(running);
  }
}

// At least one piece that does not wait may run, and as many as there are processors if memory allows.
bool ReplaySession::may_start() const {
  const size_t waiting = store_->waiting();
  if (waiting >= running_.size()) return true;
  return running_.size() - waiting < processors_.size() && store_->payloads().held_bytes() + image_bytes_ < kMostHeld;
}

// Chooses among the pieces not started yet: one that has been forked already, or else the next in the order.
size_t ReplaySession::next_of(const std::vector<size_t>& order, size_t& next) const {
  for (const EventRef& birth : store_->births_left()) {
    const auto born = by_birth_.find(birth);
    if (born != by_birth_.end() && stages_[born->second].doing == Doing::waits) return born->second;
  }
  while (stages_[order[next]].doing != Doing::waits) ++next;
  return order[next];
}

int ReplaySession::idlest() const {
  const auto load = [&](int processor) REQUIRES(mutex_) {
    return std::count_if(running_.begin(), running_.end(),
                         [&](const Running& running) { return running.processor == processor && !running.over; });
  };
  return *std::min_element(processors_.begin(), processors_.end(),
                           [&](int a, int b) REQUIRES(mutex_) { return load(a) < load(b); });
}

// Whether the thread that has executed the piece before executes this one as well: it does if no other thread does, and
// memory allows.
bool ReplaySession::claim(size_t piece, int processor) {
  {
    const Lock lock(mutex_);
    const bool room = store_->payloads().held_bytes() + image_bytes_ < kMostHeld;
    if (stages_[piece].doing != Doing::waits || !room) return false;
    stages_[piece].doing = Doing::runs;
    ++started_;
  }
  store_->interval_starts(piece, processor);
  return true;
}

// ---- Threads

void ReplaySession::start(size_t piece) {
  const int processor = pieces_[piece].processor.value_or(idlest());
  stages_[piece].doing = Doing::runs;
  ++started_;
  if (!pieces_[piece].processor) store_->interval_starts(piece, processor);
  Running& running = running_.emplace_back();
  running.processor = processor;
  running.image_bytes = pieces_[piece].image_bytes;
  image_bytes_ += running.image_bytes;
  const auto end = [this, &running]() REQUIRES(mutex_) {
    image_bytes_ -= running.image_bytes;
    running.over = true;
  };
  try {
    running.thread = std::thread([this, piece, processor, &running, end] {
      Execution(*this, piece, running, processor).run();
      const Lock lock(mutex_);
      end();
      changed_.notify_all();
    });
  } catch (const std::system_error& failure) {
    if (notes_.begins) notes_.begins(piece);
    note_end(piece, Error{describe(failure)});
    stages_[piece].doing = Doing::ended;
    end();
  }
}

void ReplaySession::note_move(Running& running, size_t piece, int processor) {
  {
    const Lock lock(mutex_);
    running.processor = processor;
  }
  store_->payloads().interval_moves(store_->events_of(piece), processor);
}

// A piece has come to its end, or as far as it could.
void ReplaySession::end_piece(size_t piece, const Outcome& outcome) {
  note_end(piece, outcome);
  const Lock lock(mutex_);
  stages_[piece].doing = Doing::ended;
  changed_.notify_all();
}

void ReplaySession::note_end(size_t piece, const Outcome& outcome) {
  if (notes_.ends) notes_.ends(piece, outcome);
  store_->interval_ended(piece, failure_of(outcome));
}

}  // namespace redrive
