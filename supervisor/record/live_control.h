// What can be asked of a recording, and changed, while it goes on. The functions are for other threads than the record
// loop's; each is carried out in the loop, and fails when the loop has ended. What is asked of the trace fails with the
// writer's error when the trace cannot be written any more.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/messages/talks.h"
#include "supervisor/record/requests.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/recorded.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Policy;
class Tracees;
class Messages;
class Checkpointer;
class Ends;
class TraceWriter;
class Window;

class LiveControl {
 public:
  LiveControl(Tracer& tracer, TraceWriter& writer, Policy& policy, RecorderLimits& limits, Messages& messages,
              Tracees& tracees, Checkpointer& checkpointer, Ends& ends, Window& window)
      : tracer_(tracer),
        writer_(writer),
        policy_(policy),
        limits_(limits),
        messages_(messages),
        tracees_(tracees),
        checkpointer_(checkpointer),
        ends_(ends),
        window_(window) {}

  struct UnitState {
    UnitId unit = 0;
    std::string command;
    pid_t pid = 0;
    uint32_t processes = 0;
    IntervalIndex interval = 0;
    uint64_t events = 0, served_calls = 0, stopped_calls = 0;
  };
  struct State {
    pid_t program = 0;   // the process that was started
    bool writes = true;  // false: the trace cannot be written any more
    std::vector<UnitState> units;
    std::vector<Talks::Talk> talks;  // since count_talks()
  };
  Result<State> state();

  // Has all units take a checkpoint, and waits a moment for them.
  struct Taken {
    uint32_t taken = 0;
    uint32_t pending = 0;  // units that sleep in a call that cannot be entered again: they take it at their next event
  };
  Result<Taken> checkpoint();

  // Changes C and T (policy.h) and RecorderLimits::restore_budget_s, and has all units take a checkpoint: the policy's
  // promise holds with them for the intervals that begin then. Fails if the policy cannot change them.
  Result<void> set_limits(const Settings& settings, double restore_budget_s);

  // Completes what was recorded up to now: it can then be copied while the recording goes on in another volume of the
  // trace. Returns the number of units for which this was not possible. Both fail if all of the recording is kept.
  Result<uint32_t> cut_window();
  Result<void> set_keep(uint64_t keep_ns);
  // Whether the loop has ended, and what it recorded could be written.
  bool has_ended_well() const { return requests_.are_closed() && written_; }

  // Sends the program SIGTERM, or ends everything that is recorded. What was attached to is let go instead.
  Result<void> end_program();
  Result<void> kill_all();

  // The rest is for the loop.

  // From now on, Talks are kept. Call this before run().
  void count_talks();
  bool is_asked() const { return requests_.are_any(); }
  void carry_out() REQUIRES(recorded) { requests_.carry_out(); }
  void close();
  // At each tick: those that are born while all is being killed.
  void go_on_killing();
  // Sends the signal to the program, or, when it has ended, to all processes that are left.
  void pass_on(int signal);
  // Whether the program was sent SIGTERM, was killed, or is to be let go, because somebody asked for it.
  bool was_stopped() const { return stopped_; }

 private:
  Result<void> ask(const std::function<void()>& request);
  Result<void> ask_writer(const std::function<void()>& request);
  std::set<pid_t> processes() const;
  using Begun = std::map<UnitId, IntervalIndex>;
  Taken look_for_new(const Begun& before) REQUIRES(recorded);

  Tracer& tracer_;
  TraceWriter& writer_;
  Policy& policy_ GUARDED_BY(recorded);
  RecorderLimits& limits_;
  Messages& messages_;
  Tracees& tracees_;
  Checkpointer& checkpointer_ GUARDED_BY(recorded);
  Ends& ends_;
  Window& window_ GUARDED_BY(recorded);
  Requests requests_;
  Result<void> written_;  // by the loop; when it has ended
  bool stopped_ = false, killing_ = false;
};

}  // namespace redrive
