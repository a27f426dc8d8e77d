// What the recorder knows of the threads, processes and units it records.
#pragma once

#include <signal.h>
#include <sys/user.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/remote.h"
#include "base/signals.h"
#include "checkpoint/address_space.h"
#include "interceptors/channels.h"
#include "interceptors/syscall_table.h"
#include "supervisor/record/code/recorded_gate.h"
#include "supervisor/record/code/vdso_patch.h"
#include "supervisor/record/kernel/held_signals.h"
#include "supervisor/record/kernel/interval_clock.h"
#include "supervisor/record/kernel/process_status.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/tracees/baton.h"
#include "supervisor/record/tracees/call_timeout.h"
#include "supervisor/record/tracees/confinement.h"
#include "supervisor/record/tracees/false_faults.h"
#include "supervisor/record/tracees/lock_turns.h"
#include "supervisor/record/tracees/loop_looks.h"
#include "supervisor/record/tracees/loop_patience.h"
#include "supervisor/record/tracees/packet_ring.h"
#include "supervisor/record/tracees/patience.h"
#include "supervisor/record/tracees/place.h"
#include "supervisor/record/tracees/shared_mappings.h"
#include "supervisor/record/tracees/step_turns.h"
#include "supervisor/record/tracees/unit_log.h"

namespace redrive {

struct Unit;

struct Thread;
// The thread that a call names by its number, as its caller sees it; 0 is the caller itself. -1: not known.
pid_t tid_named(const Thread& caller, uint64_t number);

// How many signals threads have stopped for that were not sent to them alone.
struct TakenSignals {
  uint64_t ignored = 0;
  uint64_t others = 0;
};

struct Process {
  ProcessSerial serial = 0;
  pid_t pid = -1;
  Unit* unit = nullptr;
  Memory memory;
  uint64_t memory_id = 0;  // processes that share their memory have the same
  Fd pidfd;
  bool separate_tables = false;  // its threads do not all have the same descriptor table
  Address brk = 0;
  std::shared_ptr<LocalDescriptors> descriptors;    // shared with the memory
  unsigned threads = 0;                             // alive
  bool shares_memory = false;                       // maps objects that can be changed: its forks stay in the unit
  std::set<uint64_t> objects;                       // that it has mapped shared, and may still map (MappedObjects)
  std::set<uint64_t> private_views;                 // objects of which it has had private views, and may still have
  std::shared_ptr<SharedMappings> shared_mappings;  // shared with the memory
  std::optional<Join> stays;                        // why it is in its parent's unit, unless it executes a program
  bool opens_memory = false;                        // has memory of a process open as a file: no call is served
  bool dumpable = true;                             // what PR_GET_DUMPABLE answers, if redrive answers it
  bool maps_growing = false;                        // has mapped memory that grows downwards (MAP_GROWSDOWN)
  bool borrows_memory = false;                      // vfork child: runs on its parent's address space
  bool end_logged = false;
  bool leader_exited = false;  // its end is reported only after the last thread's
  std::string command;
  SignalAction segv, ill, trap;                     // what it does about SIGSEGV, SIGILL and SIGTRAP
  std::map<Address, TrappedInstruction> stand_ins;  // where another instruction stands in for one of these
  std::shared_ptr<RecordedGate> gate;               // the in-process tier; null: stops only
  std::shared_ptr<RecordedGate> inherited;          // of a forked child that has not run yet
  AddressRange vdso;                                // not among the program's auxiliary values
  std::vector<PacketRing> packet_rings;             // in whose place it has memory of its own: no call is served
  std::vector<MemoryWrite> written;                 // by other processes or the kernel, since its last event
  std::vector<pid_t> copies;                        // for checkpoints: children of it, by the numbers that it sees
  std::vector<pid_t> copies_to_reap;                // those of them that have ended: zombies
  TakenSignals taken;                               // by its threads, if it has several
  FalseFaults false_faults;
  std::set<pid_t> attached;                     // threads that it traces, and whose stop it has not waited for
  std::shared_ptr<const VdsoPatch> vdso_patch;  // null: it has no vDSO, or one whose form is not known
  // If the process was attached to, or its parent was (NativeState):
  std::vector<AddressRange> not_copied;  // its children do not get this memory

  // The thread by which /proc shows its memory and its files: its first one, until that has exited.
  pid_t shown_as() const { return memory.pid(); }
  // What is mapped and patched in its memory; null: nothing.
  RecordedGate* tier() const { return gate ? gate.get() : inherited.get(); }
};

// A wait that finds copies, too (HiddenCopies).
struct WaitForAll {
  std::vector<MemoryWrite> before;  // what was where it writes
  std::vector<pid_t> reaped;        // copies, since it began
};

// The call that a thread makes, or has made last.
struct CurrentCall {
  const SyscallRow* row = nullptr;
  std::array<uint64_t, 6> args{};
  std::array<uint64_t, 6> output_args{};  // the arguments that say where outputs go
  EntrySizes sizes;
  Sending sending;
  CallTimeout timeout;
  uint64_t changes_object = 0;        // an object that is mapped shared, and that it changes; 0: none
  std::optional<uint64_t> position;   // ... where it writes to the object, if its descriptor says that
  bool goes_on = false;               // its thread is to go on after it for some instructions (StepHandover)
  bool hides_untraced = false;        // a birth that the kernel makes without the CLONE_UNTRACED that was asked for
  std::optional<SignalAction> asked;  // the mask or action that it sets
  std::optional<tpacket_req> packet_ring;  // what it maps (PacketRings)
  TakenSignals taken_before;               // by the threads of the process, at its entry
  struct Rest {
    uint64_t moved = 0;    // bytes that were transferred before
    bool entered = false;  // it is in a call that transfers more of them
    bool done = false;     // all are that could be
  };
  std::optional<Rest> rest;  // of what it transfers (transfer_rest.h)
  bool transfers_rest() const { return rest && !rest->done; }
  std::vector<MemoryWrite> written_by_exec;  // by the kernel, where others find it, if it executes a program
  std::optional<WaitForAll> wait_for_all;
};

struct Thread {
  // Where it is, with what is known only there.
  struct Starting {};         // it was born, and its first stop is still to come
  struct User {               // it runs user code, and holds the baton
    user_regs_struct from{};  // when it was last let into user code; rip is 0 if it has made events since
    bool rewound = false;     // it is right before a syscall instruction that it has entered once already
  };
  struct Syscall {};      // it is in the kernel, and holds the baton
  struct Blocked {        // it is in the kernel, without the baton
    bool served = false;  // which was taken from it while it slept in a served call
  };
  enum class Stop : uint8_t { start, exit, preempted, continued };
  struct Ready {  // it has stopped, and waits for the baton to have its stop handled
    Stop stop;
    bool rewound = false;  // as in User; not of an exit
  };
  struct GroupStopped {    // ptrace(2); it is without the baton
    bool rewound = false;  // as in User
  };
  using State = std::variant<Starting, User, Syscall, Blocked, Ready, GroupStopped>;

  template <typename Where>
  bool is() const {
    return std::holds_alternative<Where>(state);
  }
  // Whether it waits for the baton to have such a stop handled.
  bool is_ready(Stop stop) const {
    const auto* const ready = std::get_if<Ready>(&state);
    return ready && ready->stop == stop;
  }
  // The recorder has interrupted it, and it has not stopped for that yet.
  bool is_interrupted() const { return preempting || looked_at; }
  bool sleeps_in_served_call() const {
    const auto* const blocked = std::get_if<Blocked>(&state);
    return blocked && blocked->served;
  }
  // Whether it runs user code, and has made no event since it was last let into it.
  bool has_made_no_event() const {
    const auto* const user = std::get_if<User>(&state);
    return user && user->from.rip != 0;
  }
  // It has made an event without a stop, or is about to: it is no longer where it was let into user code.
  void moves_on() {
    if (auto* const user = std::get_if<User>(&state)) user->from.rip = 0, user->rewound = false;
  }

  pid_t tid = -1;
  ThreadSerial serial = 0;
  Process* process = nullptr;
  State state;

  std::shared_ptr<FdCache> fds;  // its descriptor table
  Fd pidfd;                      // if the process has several, and it was needed (pidfd_of_table())

  CurrentCall call;
  user_regs_struct entry{};  // at the entry of the current syscall; where it was preempted or stopped with its group
  Bytes xstate;              // at the same place, if other threads may be checkpointed meanwhile
  const SyscallRow* restarting = nullptr;  // the call that restart_syscall(2) would restart
  bool image_at_birth = false;             // the policy wants a checkpoint before its first instruction
  cpu_set_t processors{};                  // that it may run on, as far as it can see
  std::optional<uint64_t> mask_at_birth;   // the signal mask that it, or what it creates now, has to be given
  Address clear_tid = 0;                   // CLONE_CHILD_CLEARTID, set_tid_address
  uint64_t blocked = 0;                    // its signal mask, apart from calls that set one while they sleep
  bool read_implies_exec = false;          // it may execute all that it maps to be read (personality(2))
  Confinement confinement;

  bool exited = false;         // a leader whose end is not reported yet
  bool reports_exit = false;   // ... before the kernel takes its memory
  bool left_out = false;       // it was killed, and an image does not have it: nothing is recorded of its end
  bool asked_to_stop = false;  // by ask_to_stop(); it has come to no call's entry since
  bool preempting = false;     // it was interrupted to be preempted, and has not stopped yet
  unsigned looked_at = 0;      // it was interrupted to look at so many instructions (LoopHandover)
  bool amid = false;           // it is about to be let into user code elsewhere than right after an event
  bool woken = false;          // the recorder woke it up in a call that stops
  bool disturbed = false;      // ... or it was interrupted, or a signal to which the process does nothing did
  pid_t tracer = 0;            // the recorded process that has it stopped (TracerAnswers); 0: none
  int in_hand = 0;             // the signal that it is stopped for, to be delivered when it continues; 0: none
  HeldSignals signals;         // that wait for its next event
  SignalTurns turns;
  LoopPatience loop_patience;

  std::optional<RseqArea> rseq;        // that it will have when it is let go (NativeState)
  uint64_t counter_mode = 0;           // ... its PR_GET_TSC; 0: not known
  uint64_t taken_during = 0;           // Slot::sleeps of the served call of which call.taken_before is known
  uint64_t seen_sleep = 0;             // Slot::sleeps of the served call that it was seen in last
  Clock::time_point seen_asleep_at{};  // ... for the first time
};

struct Unit {
  Unit(const Tracer& tracer, TraceWriter& writer, const EventTime& now, UnitId id)
      : id(id), log(writer, id, now), clock(tracer) {}

  UnitId id;
  UnitLog log;
  IntervalClock clock;
  std::vector<std::unique_ptr<Process>> processes;
  std::map<ThreadSerial, Thread*> threads;
  Baton baton;
  LockTurns lock_turns;
  StepTurns step_turns;
  LoopLooks loop_looks;
  uint64_t preemptions = 0;  // of threads where they were, so that others had their turn
  ThreadSerial next_thread = 0;
  ProcessSerial next_process = 0;

  UnitRecord record;                       // as in the trace
  Unit* joins = nullptr;                   // that it becomes part of; it is frozen until then
  std::string join_object;                 // ... and why
  std::vector<Unit*> joining;              // frozen units that become part of this one at its next event
  std::deque<Thread*> writers;             // stopped at calls that write into this one's memory, until its next event
  bool at_event = false;                   // such a call is being made: the thread that ran is at an event
  bool checkpoint_first = false;           // a checkpoint must come before the next event
  ThreadSerial first_joined_thread = ~0u;  // since the last checkpoint
  ProcessSerial first_joined_process = ~0u;

  bool in_interval = false;
  IntervalIndex interval = 0;  // of the current interval
  IntervalRecord interval_record;
  uint64_t period_ns = 0;  // CPU time that the current interval may take
  IntervalIndex next_interval = 0;
  Bytes end_state;                 // as the event that is about to end it finds it (end_state.h)
  uint64_t ended_ns = 0;           // length of the interval before, or of the last one if there is none now
  Clock::time_point last_woken{};  // for a checkpoint
  Clock::time_point last_clock_check{};
  Patience patience;          // with the thread that holds the baton
  uint64_t served_calls = 0;  // in process
  uint64_t stopped_calls = 0;
  struct Refused : Refusal {
    bool common = false;  // SyscallRow::common
  };
  std::map<std::string, Refused> refusals;  // by call
  // Another unit takes a checkpoint now, and this one's is old enough; or the policy wants one (set by event_maker_
  // then).
  std::atomic<bool> checkpoint_wanted = false;
  bool checkpoint_requested = false;  // Checkpointer::request(), since this interval began
  bool received = false;              // a message, in this interval
  bool has_image = false;             // of any interval
  Place place;
  Clock::time_point interval_began{};
};

// The thread has a descriptor table of its own from now on, a copy of the one that it had. `gate`: the tier of those
// that had this one before; null if nothing is served there.
void separate_descriptors(Thread& thread, RecordedGate* gate);
// The pidfd by which the descriptors of the thread can be copied (pidfd_getfd(2)). -1 if none can, where the process
// has several tables and the kernel is older than Linux 6.9.
int pidfd_of_table(Thread& thread);

// Whether no other thread is in its unit.
inline bool alone(const Unit& unit) { return unit.threads.size() <= 1; }
// Whether no thread of the unit can run user code until the recorder lets it.
bool at_rest(const Unit& unit);
// Whether something was born in the unit that has not been seen yet: a checkpoint can be taken when it has.
bool births_unseen(const Unit& unit);
// ... or a vfork child runs. Until it has its program, which is soon, all of its memory would have to be read at once.
bool births_pending(const Unit& unit);
// Where what the writer's call has written into the target's memory goes: the call's own event if both share it, else
// the next event there.
std::vector<MemoryWrite>& writes_into(Process& target, const Thread& writer, Event& event);

}  // namespace redrive
