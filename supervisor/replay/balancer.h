// Keeps the processors of a replay busy: moves executions to where less is computed while others share a processor.
// So a replay set takes no longer than a list schedule does (Graham), up to the time in which this is noticed.
//
// Where nothing gets on, it lets everything run on all processors. The kernel can starve a thread that has to stay on
// one processor for as long as other sessions keep that busy (sched(7), autogroup).
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace redrive {

// Where an execution runs: the thread that made this, which stays on one processor from then on, and the processes that
// it traces. Tracer and tracees stay together, because stops between processors cost ten times as much.
class Seat {
 public:
  // `first`: the first processor that redrive may run on. `moved` is called after each move, by the thread that has
  // moved it.
  explicit Seat(int processor, int first, std::function<void(int processor)> moved = {});
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  int processor() const;
  // A process that belongs to it, and one that does no more.
  void add(pid_t process);
  void remove(pid_t process);

  // Does nothing while it stays on the first processor.
  void move(int processor);
  // Moves there, and stays until so much more CPU time has been used.
  void stay_on_first(uint64_t cpu_ns);
  bool stays() const;
  uint64_t cpu_ns() const;  // used by all of them so far, including those that were removed
  // Whether the thread, or the first thread of a process, runs or waits for the processor.
  bool is_runnable() const;

 private:
  void place(pid_t process) const REQUIRES(mutex_);
  bool stays_here() const REQUIRES(mutex_);
  uint64_t used_ns() const REQUIRES(mutex_);
  void move_to(int processor) REQUIRES(mutex_);

  const pid_t thread_;
  const int first_;
  const std::function<void(int)> moved_;
  mutable Mutex mutex_;
  int processor_ GUARDED_BY(mutex_);
  std::map<pid_t, uint64_t> processes_ GUARDED_BY(mutex_);  // CPU time that they had used when they came
  uint64_t removed_ns_ GUARDED_BY(mutex_) = 0;              // of those that were removed
  uint64_t stays_until_ns_ GUARDED_BY(mutex_) = 0;          // on the first processor
};

// What an execution has used of its processor, in one look's time.
struct SeatUse {
  int processor = 0;
  uint64_t cpu_ns = 0;
  bool stays = false;  // it cannot be moved
  bool waits = false;  // for the processor, which others have had meanwhile
};
struct SeatMove {
  size_t seat = 0;
  int to = 0;
};
// Which executions move: from processors on which several compute to those on which nothing is computed; if there are
// none of these, one of them to where at least two less compute: where executions exchange messages all the time, no
// processor is free for long, although they wait.
std::vector<SeatMove> balance(const std::vector<SeatUse>& uses, const std::vector<int>& processors,
                              uint64_t elapsed_ns);

class Balancer {
 public:
  // `progress`: a number that changes whenever an interval advances.
  Balancer(const std::vector<int>& processors, std::function<uint64_t()> progress);
  ~Balancer();

  // Seats that may be moved. They must be taken away before they end.
  void add(Seat& seat);
  void remove(Seat& seat);

 private:
  void run();
  void move_some(uint64_t elapsed_ns) REQUIRES(mutex_);
  static void note_waiting(const std::vector<Seat*>& seats, std::vector<SeatUse>& uses, uint64_t elapsed_ns);

  const std::vector<int> processors_;
  const std::function<uint64_t()> progress_;
  Mutex mutex_;
  Condition changed_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  unsigned idle_looks_ GUARDED_BY(mutex_) = 0;          // in a row at which something could move
  std::map<Seat*, uint64_t> seats_ GUARDED_BY(mutex_);  // what they had used at the last look
  std::thread thread_;                                  // the last member: it uses the others
};

}  // namespace redrive
