// The copies of processes from which images are stored off the critical path (checkpoint/DESIGN.md): they are born by
// an injected clone(2), never run, and are ended and reaped unseen by the program.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class StopQueue;
class Tracees;
class ThreadControl;
class Ends;

class CheckpointCopies {
 public:
  CheckpointCopies(Tracer& tracer, StopQueue& stops, TraceeCalls& calls, ImageWorker& images, GateArena* arena,
                   Tracees& tracees, ThreadControl& control, Ends& ends);

  // Put into a register that clone(2) does not read, to tell copies from what programs make.
  static constexpr uint64_t kMark = 0x79706f63;

  // Has the thread make a call in place of the one at whose entry it is stopped; afterwards it is stopped at its exit,
  // and must be rewound. `born`: the child, if the call makes one, even if the thread was killed meanwhile.
  Result<uint64_t> inject(Thread& thread, const user_regs_struct& at_entry, long number,
                          std::initializer_list<uint64_t> args, pid_t* born = nullptr);
  // Gives the image a copy that was born, and whose pages are to be stored. False if there is none (`copy` is -1), or
  // if it was killed.
  bool give(ImageJob& job, pid_t copy, const Thread& original);
  // Has a copy that CRIU is to dump sleep, untraced, and without the tier where recorded calls are kept. It needs the
  // tier's code. The copy remains as it was if that cannot be done.
  void put_to_sleep(ImageJob::Copy& copy);
  // A tracee has stopped that is not recorded. True if it is a copy that leaves what it shares with its program: it runs
  // on until it has.
  bool take_stop(const Stopped& stopped);
  void end(pid_t copy);
  void end(const ImageJob::Copy& copy);
  // Whether an unknown tracee is a copy whose original was killed before the copy's birth was reported.
  bool is_lost(pid_t tid);
  // Ends the copies whose images are stored.
  void collect();
  // Waits for the images of all copies, and ends these. Returns whether there were any. Call this before a call that
  // would fail because of what they have mapped, or change it.
  bool end_all();
  // The thread is stopped, and is about to end its process or to execute a program: others may see then what its copies
  // still have, such as the files of its memory. True if it has to wait until they have ended; then `go_on` is called,
  // unless it was killed meanwhile.
  bool delay(const Thread& thread, std::function<void(Thread&)> go_on);
  // At a call's entry: has the program's process wait for a copy that has ended, and enter the call again.
  void reap(Thread& thread);

  void count_skipped() { ++skipped_; }
  // Checkpoints that could not be taken or stored.
  uint64_t skipped() const { return skipped_; }

 private:
  void leave_shared(pid_t copy, const Process& original);

  Tracer& tracer_;
  StopQueue& stops_;
  TraceeCalls& calls_;
  ImageWorker& images_;
  GateArena* arena_;  // null: there is no in-process tier
  Tracees& tracees_;
  ThreadControl& control_;
  Ends& ends_;
  std::set<pid_t> leaving_;  // copies that leave what they share with their programs
  uint64_t skipped_ = 0;
  struct Delayed {
    pid_t tid;
    ThreadSerial serial;
    std::function<void(Thread&)> go_on;
  };
  std::vector<Delayed> delayed_;
};

}  // namespace redrive
