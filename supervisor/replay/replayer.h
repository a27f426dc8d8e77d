// Re-drives one interval of one unit: restores its checkpoint in stubs and executes its code again, answering every
// event from the trace.
//
// All of an object's life happens on one thread, which is the tracer of its stubs. Tracer and tracees stay on one
// processor: stops between processors cost ten times as much. What the execution asks for must be
// what the recording holds; the first difference is a Divergence.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/restore.h"
#include "interceptors/syscall_table.h"
#include "logstore/trace.h"
#include "supervisor/plan/plan.h"
#include "supervisor/replay/checkpoints_due.h"
#include "supervisor/replay/cpu_patience.h"
#include "supervisor/replay/message_store.h"
#include "supervisor/replay/shown_output.h"
#include "supervisor/replay/step.h"
#include "supervisor/replay/stopped_unit.h"
#include "supervisor/replay/unit_messages.h"
#include "supervisor/replay/verify.h"
#include "supervisor/replay/wanted_payloads.h"
#include "supervisor/tier/gate.h"
#include "supervisor/tier/memory_calls.h"

namespace redrive {

struct Divergence {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  EventIndex event = 0;
  std::string expected;
  std::string found;
  std::string stack;        // one frame a line
  std::string disassembly;  // around the instruction pointer
};

// The in-process tier, as all intervals that are re-driven share it.
struct ReplayTier {
  explicit ReplayTier(std::unique_ptr<GateArena> made) : arena(std::move(made)) {}

  const std::unique_ptr<GateArena> arena;
  CodeSegments code;
};

// What is taken from intervals while they are re-driven: the third phase of `prepare`. Called by many threads.
class Preparation {
 public:
  virtual ~Preparation() = default;
  // Whether an image is to be made of the checkpoint that the interval begins with.
  virtual bool wants_image(UnitId unit, IntervalIndex interval) const = 0;
  virtual Result<void> add_image(UnitId unit, IntervalIndex interval, const ReadImage& read) = 0;
  virtual bool wants_payload(EventRef receiver) const = 0;
  virtual Result<void> add_payload(EventRef receiver, const Bytes& payload) = 0;
};

// Why intervals are not verified that cannot be executed, or whose next checkpoint has no image.
inline constexpr const char* kUnreachable = "the recorder did not write what leads to it";
inline constexpr const char* kNoImageAtEnd = "the image of the checkpoint at its end is not stored";

struct ReplayerOptions {
  bool verify = false;   // compare with the next checkpoint at the end
  bool output = false;   // copy what it writes to descriptors 1 and 2 to ours
  Halt* halt = nullptr;  // where it stops on its way; null: nowhere
  Preparation* preparation = nullptr;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

class Probe;
class RingCalls;

// How a comparison with what an interval ended with went.
struct Verified {};
struct Unverified {
  std::string why;  // it could not be compared
};
using Verification = std::variant<Verified, Unverified, Difference>;

// How a search for the place of a preemption went.
struct Found {};
struct NotFound {
  std::string why;  // not within a reasonable time
};
using SearchEnd = std::variant<Found, NotFound, Difference>;

class Replayer {
 public:
  Replayer(const Trace& trace, const PlannedInterval& what, std::optional<EventRef> birth, MessageStore& store,
           int processor, ReplayTier* tier, ReplayerOptions options);  // no tier: every call stops

  struct Outcome {
    std::optional<Divergence> divergence;
    bool verified = false;   // compared with the next checkpoint, and equal
    std::string unverified;  // why that is not known, if it was asked for and nothing diverged
    double seconds = 0;      // from `started` until the last event, verification not included
  };
  // An Error: the interval could not be re-driven (a damaged trace, no memory, another interval of the set failed).
  Result<Outcome> run();

 private:
  enum class StopKind : uint8_t { syscall, fault, gone, overdue };
  struct Thread {
    ThreadSerial serial = 0;
    pid_t tid = -1;
    ProcessSerial process = 0;
    bool stopped_at_syscall = false;  // entered, its result not given yet
    user_regs_struct regs{};          // as at the last stop
    std::optional<StopKind> ahead;    // it is at its next stop already
  };

  // Consecutive events of one thread that lie in its ring and have not been executed.
  struct Batch {
    ThreadSerial thread = 0;
    EventIndex first = 0;
    Gate* gate = nullptr;
    std::vector<uint64_t> ends;  // of each, in the ring
    bool changes_memory = false;
    std::vector<std::pair<size_t, Address>> breaks;  // the process's, behind so many of them
  };

  using Stood = std::variant<Halt::Then, Difference>;
  // How an event is answered: by the code inside tracees, from the ring, or by the supervisor while its thread stands.
  enum class Answer : uint8_t { in_ring, at_stop };
  enum class CodeAfter : uint8_t { same, changed };  // after a call that changes memory

  Result<Outcome> run_to_end();
  bool was_killed() const;
  Result<Step> execute(EventIndex first, EventIndex last);
  Result<void> restore_start();
  Result<void> adopt_birth(const IntervalRecord& interval);
  Thread* thread_of(const Event& event);  // null: none
  static Step no_thread(EventIndex index, const Event& event);
  Result<Step> step(EventIndex index, const Event& event, uint64_t made = 0);
  Result<Step> make_calls(Thread& thread, EventIndex index, const Event& event, uint64_t made);
  Result<std::vector<Event>> read_cycle(EventIndex index, const Event& event) const;
  Result<Step> replay_entry(Thread& thread, EventIndex index, const Event& event);
  std::optional<std::vector<Span>> equal_inputs(Thread& thread, const Event& event, const SyscallRow& row);
  void hand_over(Thread& thread, EventIndex index, const Event& event, const SyscallRow& row,
                 const std::vector<Span>& read);
  Result<Step> replay_end(Thread& thread, EventIndex index, const Event& event, const SyscallRow* row);
  Result<Step> replay_effects(Thread& thread, EventIndex index, const Event& event);
  Result<Step> replay_signal(Thread& thread, EventIndex index, const Event& event);
  Result<Step> replay_trap(Thread& thread, EventIndex index, const Event& event);
  Result<void> replay_birth(Thread& parent, EventIndex index, const Event& event, const SyscallRow& row);
  Result<Step> write_memory(Thread& thread, EventIndex index, const Event& event);
  Result<void> change_objects(const Event& event);
  Result<void> change_pages(const Thread& thread, const MemoryWrite& write);
  Result<void> make_writable(uint64_t object);
  void limit_stack(const Thread& thread, const StackLimit& limit) const;
  Result<StopKind> run_to_stop(Thread& thread);
  std::string came_to(const Thread& thread, StopKind stop) const;
  bool is_overdue(const Thread& thread);
  Result<Verification> verify_end();
  Result<Step> verify_last(Thread& thread, EventIndex index, const user_regs_struct& regs);
  Result<std::vector<AddressRange>> pending_outputs(const UnitState& state, EventIndex from) const;

  // replayer_capture.cc: what is taken on the way
  Result<Step> prepare_before(EventIndex index, const Event& event);
  Result<void> take_payloads();
  Result<void> capture(IntervalIndex interval, ThreadSerial trigger, bool at_entry);
  Result<UnitState> state_for(IntervalIndex interval, ThreadSerial trigger, bool at_entry) const;
  Result<std::vector<Mapping>> program_mappings(ProcessSerial serial) const;

  Divergence report(const Difference& difference);
  static Difference difference(const Thread& thread, EventIndex index, std::string expected, std::string found);
  static Step diverged(const Thread& thread, EventIndex index, std::string expected, std::string found);
  void forget_process(ProcessSerial process);
  bool set_regs(const Thread& thread, const user_regs_struct& regs) const;

  // replayer_place.cc: where threads were preempted
  struct Place {
    Image image;
    UnitState state;
  };
  Result<Place> read_place(IntervalIndex interval) const;
  struct OtherMemory {
    ProcessSerial process = 0;
    Address address = 0;  // 0: of registers
  };
  Result<std::optional<OtherMemory>> other_memory(const Place& place, ProcessSerial first,
                                                  const std::vector<AddressRange>& except) const;
  Result<Bytes> pages_of(const Place& place, ProcessSerial process, Address first, size_t count) const;
  Result<SearchEnd> run_to_code(Thread& thread, EventIndex index, Address address, const Bytes& code);
  SearchEnd never_came(const Thread& thread, EventIndex index, Address place, StopKind stop) const;
  Result<SearchEnd> run_to_place(ThreadSerial serial, EventIndex index, IntervalIndex interval);
  Result<SearchEnd> find_place(Thread& thread, EventIndex index, const Place& place, const ThreadState& saved);
  Result<Step> replay_preemption(Thread& thread, EventIndex index, const Event& event);
  Result<std::optional<EventKind>> kind_of_event(EventIndex index) const;

  // replayer_stop.cc: stopping on the way
  Result<Step> arrive(EventIndex index, const Event& event);
  Result<Stood> stand(EventIndex index);

  // replayer_gate.cc: the in-process tier
  Gate* gate_of(const Thread& thread) const;
  Result<void> map_gate(const std::vector<ProcessSerial>& sharing, pid_t tid);
  Result<void> map_gates();
  ProcessSerial memory_owner(ProcessSerial serial) const;
  Result<Address> map_messages(StubCalls& calls, const std::vector<Mapping>& mappings);
  Result<std::shared_ptr<Gate>> inherit_gate(const Gate& parent, const Stub& child);
  std::vector<ProcessSerial> remove_gate(ProcessSerial process);
  void reseat(const Thread& thread, const Gate& before, const Gate* after) const;
  Result<const std::vector<Mapping>*> code_of(ProcessSerial process);
  Result<CodeAfter> code_after(ProcessSerial process, const Event& event, Special special, Address brk);
  bool is_in_the_way(const Gate& gate, const Event& event, Special special, Address brk) const;
  Result<Answer> make_in_ring(const Event& event, Special special, RingCalls& calls);
  Result<void> patch_ahead(const Thread& thread, Address site, SiteKind kind, uint64_t times);
  Result<void> replace(ProcessSerial process, pid_t tid, const SitePatch& patch);
  std::vector<ProcessSerial> make_room(Thread& thread, const Event& event, Special special);
  Result<Step> visit(EventIndex index, const Event& event);
  Result<Step> receive_in_turn(EventIndex index, const Event& event);
  Result<Answer> expect(EventIndex index, const Event& event);
  Result<std::optional<uint64_t>> put_expected(EventIndex index, const Event& event, uint64_t start, uint64_t times);
  void send_to_gate(Thread& thread) const;
  Result<Step> run_batch(bool onward);

  const Memory& memory(const Thread& thread) const { return unit_.processes.at(thread.process).stub.memory(); }

  const Trace& trace_;
  const PlannedInterval what_;
  const std::optional<EventRef> birth_;
  MessageStore& store_;
  UnitMessages messages_;
  const int processor_;
  const ReplayerOptions options_;
  ReplayTier* const tier_;
  RestoredUnit unit_;
  std::map<ProcessSerial, std::shared_ptr<Gate>> gates_;
  std::map<ProcessSerial, std::vector<Mapping>> code_;
  std::map<std::pair<ProcessSerial, Address>, uint64_t> own_calls_;  // by sites in programs' own files
  std::set<std::pair<ProcessSerial, Address>> unpatchable_;  // sites where a jump did not fit: not to be tried again
  Batch batch_;
  const Event* previous_ = nullptr;    // the event before the one that is visited; null: it must be read again
  std::optional<CheckpointsDue> due_;  // for a preparation
  WantedPayloads wanted_payloads_;
  std::map<ThreadSerial, Thread> threads_;
  FilePath file_path_;
  bool killed_ = false;  // a process of the unit was, while a thread of it was waited for
  EventIndex end_ = 0;
  bool end_verified_ = false;  // before the last event, which ends its program
  ProcessSerial next_process_ = 0;
  ThreadSerial next_thread_ = 0;
  uint64_t executed_ = 0;
  uint64_t stops_ = 0;  // of all threads, so far
  CpuPatience patience_;
  const Probe* awaited_ = nullptr;  // where a search waits for a thread
  ShownOutput output_;
  Bytes scratch_;
};

}  // namespace redrive
