// A kernel in miniature behind the recorder's seam: processes and threads that fork, sleep, wait, are sent signals and
// end, in an order and at times that a seed decides. It keeps the rules of ptrace(2) and signal(7) that the recorder
// relies on, and nothing of them is the recorder's own code.
//
// A thread's program is an endless row of places, one each 16 bytes: a system call, after some instructions. Which call
// it is, the seed decides when the thread first comes there. So a thread that is sent back to an instruction makes the
// same call again. A handler has places of its own, the last of which is its rt_sigreturn(2). There is no memory, or
// only what the in-process tier needs: then most places are replaced by jumps to its code (simulated_tier.h).
//
// Beside the tracer's answers it writes down, for each unit, what must be in the unit's log, in its order: a unit is
// what shares memory. It fails the running test if two threads of a unit run user code at a time, if queued signals
// come in another order than they were sent in, or if nobody gets on.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/stopped_tracees.h"

namespace redrive {

class SimulatedKernel : public StoppedTracees {
 public:
  // Not a number that Linux gives to a process (PID_MAX_LIMIT): nothing that the recorder asks of /proc is there.
  static constexpr pid_t kFirstPid = 5'000'000;

  // What a unit's log has to hold next.
  struct Logged {
    enum class What { entry, exit, signal, end } what;
    pid_t tid;
    int number;          // of the call or signal
    int64_t result = 0;  // of an exit
    bool operator==(const Logged&) const = default;
  };

  // How programs make calls.
  enum class Calls : uint8_t {
    stop,    // each of them stops
    served,  // the tier can be mapped, and serves what it can
  };
  // The first process, whose number is kFirstPid, has just begun its program.
  SimulatedKernel(uint64_t seed, Calls calls);
  ~SimulatedKernel() override;

  // By the number of the process that a unit began with.
  const std::map<pid_t, std::vector<Logged>>& logs() const { return logs_; }
  // How the first process has ended.
  TraceeEnd root_end() const { return root_end_; }
  // Calls that have stopped and were made, in all units.
  uint64_t calls() const { return calls_; }
  // Calls that were served in all units.
  uint64_t served_calls() const { return served_calls_; }

  Waited wait_for_any() override;
  Waited take_any() override;
  std::optional<Stop> wait(pid_t tid) override;
  bool has_stopped(pid_t tid) override;
  Result<void> seize(pid_t tid) override;
  void detach(pid_t tid, int signal) override;
  bool set_option(pid_t tid, TraceeOption option) override;
  void resume(pid_t tid, Resume how, int signal) override;
  void listen(pid_t tid) override;
  bool interrupt(pid_t tid) override;
  SignalMasks signal_masks(pid_t tid) override;
  Result<Memory> open_memory(pid_t pid) override;
  bool has_memory(pid_t tid) override;
  bool sees_tracer(pid_t) override { return true; }
  bool send(pid_t pid, int signal) override;
  bool send(pid_t pid, pid_t tid, int signal) override;
  Clock::time_point now() const override { return now_; }
  int64_t unix_ns() const override { return std::chrono::nanoseconds(now().time_since_epoch()).count(); }
  std::optional<uint64_t> cpu_ns(pid_t pid) const override;
  void wake_within(std::chrono::microseconds time) override { wake_at_ = now() + time; }
  bool wake_when_used(pid_t pid, std::chrono::nanoseconds cpu) override;

 private:
  struct Process;
  struct Task;

  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }

  Task* find(pid_t tid);
  // Null unless it has stopped and was waited for.
  Task* stopped(pid_t tid);
  TraceeContext* context(pid_t tid) override;
  Task& add(Process& process);
  Stopped report(Task& task);

  // Lets one that is not stopped get on a little. False if it cannot.
  bool advance(Task& task);
  // Lets some get on, chosen at random. False if none can.
  bool advance_any();
  void compute(Task& task);
  void step_in_tier(Task& task);
  int next_call(Task& task);
  static void enter(Task& task);
  void begin_call(Task& task);
  bool continue_call(Task& task);
  void end_call(Task& task, int64_t result);
  void come_out(Task& task, int number, int64_t result);
  void come_out_of_tier(Task& task);
  void give_birth(Task& task);
  void return_to_user(Task& task);
  void handle_signal(Task& task, siginfo_t info);
  void leave_handler(Task& task);
  static bool runs_user_code(const Task& task);
  void check_alone(const Task& task) const;
  std::string describe() const;

  void queue(Process& process, Task* task, const siginfo_t& info);
  std::deque<siginfo_t>* queue_with_next(Task& task, size_t& index);
  bool is_signalled(Task& task);
  bool handles_next(Task& task);
  static void note_taken(const Task& task, int signal);
  void send_something();
  void end(Task& task, TraceeEnd end);
  void end_all(Process& process, TraceeEnd end);
  void log(const Task& task, Logged::What what, int number, int64_t result = 0);
  void log_entry_in_tier(Task& task);

  std::mt19937_64 random_;
  std::atomic<Clock::time_point> now_{};  // for any thread
  Clock::time_point wake_at_ = Clock::time_point::max();
  std::map<pid_t, std::unique_ptr<Task>> tasks_;         // that have not ended, or were not waited for
  std::map<pid_t, std::unique_ptr<Process>> processes_;  // also those that have ended
  std::map<pid_t, std::vector<Logged>> logs_;
  pid_t next_pid_ = kFirstPid;
  size_t births_left_ = 0;
  bool long_results_ = false;  // some calls have results that fill rings
  int idle_ = 0;
  uint64_t calls_ = 0, served_calls_ = 0;
  TraceeEnd root_end_;
};

}  // namespace redrive
