// Which processors the units run on.
//
// A stop costs ten times as much between processors as on one, and so does waking a program. So a unit begins on the
// recorder's own processor, `home`. A unit that computes, and seldom stops or sleeps, is sent away to the others while
// home is shared, and called back when it stops or sleeps often. If there are several others, one that sleeps often is
// away too, as long as that costs it less than waiting for home would.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "supervisor/record/tracees/place.h"

namespace redrive {

// What a unit has done since the last look.
struct UnitUse {
  Place* place = nullptr;
  uint64_t cpu_ns = 0;
  uint64_t sleeps = 0;
  uint64_t waited_ns = 0;  // for a processor, while it could have run
  bool moved = false;      // decide() has changed its place
};

class Placement {
 public:
  // Units run on at most this many of the processors that this thread may run on; 0: on all of them.
  explicit Placement(unsigned most);
  ~Placement();  // lets this thread run where it could
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // The processors that this thread could run on before stay_home(): those that programs see.
  const cpu_set_t& seen() const { return all_; }
  bool one_processor() const { return others_ == 0; }
  // Whether a new program begins away, while this many run at home and elsewhere.
  bool begins_away(size_t home, size_t away) const { return home > 0 && away < others_; }
  // Lets this thread, and what it starts from then on, run at home only.
  void stay_home() const;
  // Has a thread run at this place from now on. Does nothing if it has ended.
  void send(pid_t tid, const Place& place) const;

  // Decides which units move, after `elapsed_ns` with this use. Returns how many compute.
  size_t decide(std::vector<UnitUse>& uses, uint64_t elapsed_ns) const { return decide(uses, elapsed_ns, others_); }
  // ... with this many processors besides home.
  static size_t decide(std::vector<UnitUse>& uses, uint64_t elapsed_ns, unsigned others);

 private:
  cpu_set_t all_{}, home_{}, away_{};
  cpu_set_t first_{};  // of all: where programs write code at first (tier/first_processor.h)
  unsigned others_ = 0;
};

// Lets a thread run where it could before it was recorded: there, if it was moved at all. If that is wherever its
// cpuset lets it (cpuset(7)), it is not bound to what that is now.
void give_back_processors(pid_t tid, const cpu_set_t& its);

// How often a thread has slept or stopped (proc_pid_status(5), voluntary_ctxt_switches); 0 if it has ended.
uint64_t sleeps_of(pid_t tid);
// How long a thread has waited for a processor (/proc/PID/schedstat); 0 if it has ended, or if the kernel does not
// count.
uint64_t waited_ns_of(pid_t tid);

}  // namespace redrive
