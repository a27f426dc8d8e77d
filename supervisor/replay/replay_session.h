// Executes pieces of a recording side by side, each on a thread of its own, which meet in a message store.
//
// The code that makes a session decides what is executed, when pieces are started, where they stop, and what is done
// there: go() runs the pieces that it is given to where they are to stand; run_all() runs all of them to their ends, no
// more at a time than there is room for. Apart from the threads that it starts, only one thread uses the object.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "supervisor/plan/plan.h"
#include "supervisor/replay/balancer.h"
#include "supervisor/replay/message_store.h"
#include "supervisor/replay/replayer.h"
#include "supervisor/replay/stopped_unit.h"

namespace redrive {

class ReplaySession {
 public:
  // Events of a unit that a process executes from a checkpoint on. The store knows it by its place among them.
  struct Piece {
    PlannedInterval what;
    std::optional<EventRef> birth;   // the fork that it begins with, if it has no image
    ReplayerOptions how;             // where it stops is up to the session
    std::optional<int> processor;    // where it starts; none: on the least busy one
    bool shown = false;              // it is looked at where it stands
    std::vector<EventIndex> passes;  // ends of intervals that it passes
    bool goes_on = false;            // its thread executes the next one as well, if that has not been started
    uint64_t image_bytes = 0;        // stored pages that are restored for it
  };
  using Outcome = Result<Replayer::Outcome>;
  // Executes this on the calling thread, whose seat it is, from the checkpoint of the piece on.
  using Execute = std::function<Outcome(const Piece& piece, const PlannedInterval& what, Seat& seat, Halt& halt)>;
  // What is done when a piece begins, passes the end of an interval, and ends: by the thread that executes it (or by
  // the caller of go() or run_all(), if no thread can be started), and before go() or run_all() returns.
  struct Notes {
    std::function<void(size_t piece)> begins;
    std::function<void(size_t piece)> passes;
    std::function<void(size_t piece, const Outcome& outcome)> ends;
  };

  ReplaySession(std::vector<Piece> pieces, std::unique_ptr<MessageStore> store, std::vector<int> processors,
                Execute execute, Notes notes);
  ~ReplaySession();  // ends all where they stand
  ReplaySession(const ReplaySession&) = delete;
  ReplaySession& operator=(const ReplaySession&) = delete;

  const std::vector<Piece>& pieces() const { return pieces_; }
  MessageStore& store() { return *store_; }

  // Where a piece is to stand next; none: it goes to its end.
  struct Goal {
    size_t piece = 0;
    std::optional<EventIndex> stop;
  };
  // Runs these to their goals, in this order if they have not started, and waits until all pieces that have started
  // stand or have ended.
  void go(const std::vector<Goal>& goals);
  // Executes all pieces, started in this order: as many that do not wait as there are processors, if memory allows; if
  // all wait, one more, even if memory does not allow it, so that no order can deadlock.
  void run_all(const std::vector<size_t>& order);
  // Ends all that stand, where they stand.
  void end_all();

  bool stands_at(size_t piece, EventIndex event) const;
  bool has_ended(size_t piece) const;
  bool any_has_ended() const;

  // Looks at a shown piece where it stands, in the thread that traces it. False if it does not stand.
  using Look = std::function<void(const StoppedUnit&)>;
  bool look(size_t piece, const Look& look);

 private:
  enum class Doing : uint8_t { waits, runs, stands, ended };  // waits: it has not been started
  struct Stage {
    Doing doing = Doing::waits;
    std::optional<EventIndex> stop;  // as in its last goal
    const Look* look = nullptr;      // to be called where it stands
  };
  struct Running {
    std::thread thread;
    int processor = 0;
    uint64_t image_bytes = 0;
    bool over = false;
  };
  class Execution;

  bool any(Doing doing) const REQUIRES(mutex_);
  void start(size_t piece) REQUIRES(mutex_);
  void reap() REQUIRES(mutex_);
  bool may_start() const REQUIRES(mutex_);
  size_t next_of(const std::vector<size_t>& order, size_t& next) const REQUIRES(mutex_);
  int idlest() const REQUIRES(mutex_);
  bool claim(size_t piece, int processor);
  void note_move(Running& running, size_t piece, int processor);
  void end_piece(size_t piece, const Outcome& outcome);
  void note_end(size_t piece, const Outcome& outcome);
  Halt::Then stand(size_t piece, const StoppedUnit& unit);

  const std::vector<Piece> pieces_;
  const std::unique_ptr<MessageStore> store_;
  const std::vector<int> processors_;
  const int first_processor_;  // of those that this process may run on
  const Execute execute_;
  const Notes notes_;
  std::map<EventRef, size_t> by_birth_;
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<Stage> stages_ GUARDED_BY(mutex_);  // of the pieces
  size_t started_ GUARDED_BY(mutex_) = 0;         // pieces
  bool ending_ GUARDED_BY(mutex_) = false;
  std::list<Running> running_ GUARDED_BY(mutex_);
  uint64_t image_bytes_ GUARDED_BY(mutex_) = 0;  // of those that run
  Balancer balancer_;
};

}  // namespace redrive
