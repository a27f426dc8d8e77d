// The record loop: follows every thread of the recorded programs by ptrace, and writes what they see into a trace.
//
// One thread of a unit runs user code at a time: it holds the unit's baton. The baton changes hands only at events:
// when its holder enters a syscall that may sleep, or has had it for long while others wait. A thread that comes out of
// the kernel without the baton stays stopped until it gets it, and its event is logged then.
#pragma once

#include <array>
#include <functional>
#include <set>
#include <unordered_map>

#include "base/result.h"
#include "base/write_behind.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/adapted_files.h"
#include "supervisor/record/cpuid_replacement.h"
#include "supervisor/record/image_worker.h"
#include "supervisor/record/mapped_file.h"
#include "supervisor/record/mapped_objects.h"
#include "supervisor/record/messages.h"
#include "supervisor/record/outside_writers.h"
#include "supervisor/record/patch_plans.h"
#include "supervisor/record/patcher.h"
#include "supervisor/record/placement.h"
#include "supervisor/record/recorded_gate.h"
#include "supervisor/record/ring_reader.h"
#include "supervisor/record/seen_processors.h"
#include "supervisor/record/stop_queue.h"
#include "supervisor/record/tier_mapper.h"
#include "supervisor/record/tracee.h"
#include "supervisor/record/tracee_calls.h"
#include "supervisor/record/tracer.h"
#include "supervisor/tier/code_segments.h"

namespace redrive {

struct RecorderLimits {
  uint64_t checkpoint_period_ns = 0;  // T, CPU time; 0: no image checkpoints
  double restore_budget_s = 0;        // the bound, if T follows from it: units with much memory get less than T
  size_t copies = 8;                  // checkpoint copies alive at once
  bool virtual_checkpoints = false;   // every T only the place is noted, for `prepare` to make an image there
  unsigned processors = 0;            // that the programs may run on; 0: all
  unsigned processors_seen = 0;       // that they find; 0: those that there are
  bool in_process = true;             // serve calls inside tracees where that can be done
  // What a replay needs for a served call beside what the call itself takes: reading and comparing it.
  uint64_t replayed_call_ns = 1000;
  uint64_t replayed_stop_ns = 8000;  // ... of one that a replay executes
  bool cpuid_traps = true;           // else the instructions are replaced
};

// What is left when the program that was launched has ended.
struct LeftBehind {
  int exit_status = 0;   // the program's
  size_t processes = 0;  // that it has started, and that live on
};

class Recorder {
 public:
  // `cache`: what is known of files already, and is told what was learnt of them when run() ends; null if there is
  // none.
  Recorder(Tracer& tracer, TraceWriter& writer, Policy& policy, RecorderLimits limits, FileCache* cache = nullptr);

  // Starts `path` with these arguments, stopped before its first instruction, under a filter that stops at every
  // syscall.
  Result<void> launch(const std::string& path, const std::vector<std::string>& arguments);
  // Runs until every tracee has ended. `left_behind` is told, once, if others live a moment longer than the program.
  RecordingEnd run(const std::function<void(const LeftBehind&)>& left_behind);

  // What was refused and not only because all programs try it, by call and answer; and what a replay may fail at. After
  // run().
  struct Refused {
    static constexpr size_t kNamed = 8;
    uint64_t count = 0;
    uint64_t units = 0;         // that asked for it
    std::vector<UnitId> first;  // ... at most kNamed of them
  };
  const std::map<std::string, Refused>& refused() const { return refused_; }
  const std::vector<Unsure>& unsure() const { return unsure_; }

 private:
  // recorder.cc: stops and the baton
  void handle(const Stopped& stopped);
  void handle(Thread& thread, const Stop& stop);
  void handle_group_stop(Thread& thread, int signal);
  void handle_interrupted(Thread& thread);
  void handle_seccomp_stop(Thread& thread);
  void handle_syscall_exit(Thread& thread);
  void start(Thread& thread);
  void enter(Thread& thread);
  void see_birth(Thread& thread);
  void hide_untraced(Thread& thread);
  static void show_untraced(const Thread& parent, const Memory& memory);
  void leave(Thread& thread);
  void end_thread(Thread& thread, bool whole_process);
  void answer_vsyscall(Thread& thread);
  void open_call(Thread& thread, const Memory& memory);
  void close_call(Thread& thread, int64_t result, const Memory& memory, const gate::Record* served = nullptr,
                  uint64_t times = 1, uint32_t cycle = 1);
  static Messages::Call message_call(const Thread& thread, const Memory& memory);
  const Endpoint* endpoint(Thread& thread, int fd_arg);
  void receive(Thread& thread, int64_t result, const Memory& memory, Event& event);
  void end_messages(const Unit& unit);
  void refuse(Thread& thread, const SyscallRow* row);
  void answer_call(Thread& thread, int64_t result);
  void count_refusal(const Thread& thread, const SyscallRow* row, int error);
  static void count_refusal(Unit& unit, const std::string& what, const std::string& answer, bool common);
  void take_or_queue(Thread& thread, Thread::Stop stop);
  void give_up_baton(Unit& unit);
  void schedule(Unit& unit);
  bool begin_joined_interval(Unit& unit, Thread& thread);
  bool alone(const Unit& unit) const { return unit.threads.size() <= 1; }
  void resume(const Thread& thread, Resume how, int signal = 0);
  void resume_user(Thread& thread, const user_regs_struct& regs);
  void runs_from(Thread& thread, const user_regs_struct& regs);
  void rewind(Thread& thread, const user_regs_struct& entry);
  Event& open_event(Thread& thread);
  void end_copy(pid_t copy);
  bool is_lost_copy(pid_t tid);
  void collect_images();
  LeftBehind left_behind() const;
  void end_copies();
  void tick();
  void place_units();
  void place(const Unit& unit) const;
  void place_program(Unit& unit) const;
  int64_t answer_processors(const Thread& thread, int64_t result);
  int64_t move_to_processors(const Thread& thread, int64_t result);
  void watch(Unit& unit, bool checkpoint_due);
  void add_calls(const Unit& unit);
  void add_sites();
  void flush();

  // recorder_births.cc: threads, processes, programs, ends
  void born(Thread& parent, pid_t tid);
  void let_write_number(pid_t child);
  static void note_birth(const Thread& parent, const Memory& memory, Event& event);
  void executed(pid_t pid, pid_t former_tid);
  void begin_program(Thread& thread);
  static void note_pending_outputs(const Thread& parent, const Memory& memory, std::vector<MemoryWrite>& writes);
  void remove_thread(Thread& thread);
  void ask_for_exit(Thread& thread);
  void end_intruder(const Thread& thread);
  void exits(Thread& thread, TraceeEnd end);
  void note_end_of_process(const Thread& thread, TraceeEnd end);
  void ended(pid_t tid, TraceeEnd end);
  // `sharer`: whose memory it shares; null if nobody's.
  Process& add_process(Unit& unit, pid_t pid, const Process* sharer = nullptr);
  Thread& add_thread(Process& process, pid_t tid);
  Unit& add_unit(EventRef parent, pid_t pid);
  void forget_ended_units();

  // recorder_signals.cc
  const std::vector<CpuidSite>* cpuid_sites_of(const MappedFile& file) { return cpuid_.sites_of(file); }
  void replace_cpuid(Process& process, const Mapping& mapping, const MappedFile* file, Event* event);
  void handle_signal(Thread& thread, int signal);
  bool answer_trapped_instruction(Thread& thread, int signal, const user_regs_struct& regs);
  void add_trap(Thread& thread, const TrappedInstruction& trap, const user_regs_struct& before,
                const user_regs_struct& after);
  int64_t result_of_woken(Thread& thread, int64_t result);
  void shorten_timeout(Thread& thread);
  void restore_timeout(Thread& thread, Event& event);
  void deliver(Thread& thread, int signal, const user_regs_struct& regs, uint64_t where);
  bool raise_caught(Thread& thread, const siginfo_t& info);
  bool raise_held(Thread& thread);
  void pass_on_held(Thread& thread);
  void forget_stops(const Process& process);
  void stop_with_group(Thread& thread);

  // recorder_forced.cc: what faults that the program does not see take away from it
  void inherit_signals(Thread& thread);
  static void note_asked(Thread& thread, const Memory& memory);
  static void has_asked(Thread& thread);
  void read_mask(Thread& thread);
  bool undo_forced(Thread& thread, int signal, const user_regs_struct& regs);

  // recorder_confinement.cc
  bool forbidden(Thread& thread);
  void end_forbidden(Thread& thread, int signal, bool whole_process);
  void confine(Thread& thread);

  // recorder_checkpoints.cc
  void begin_interval(Unit& unit, CheckpointKind kind, Process& process, uint64_t pause_ns);
  void end_interval(Unit& unit);
  void note_end_state(const Thread& thread, const user_regs_struct& regs) const;
  bool checkpoint_due(Unit& unit);
  uint64_t checkpoint_at_ns(const Unit& unit) const;
  void ask_at_each_event();
  void align_checkpoints(const Unit& with);
  void wake_for_checkpoint(Unit& unit);
  void checkpoint(Thread& trigger);
  void note_checkpoint(Process& process);
  // Of a unit's only process.
  struct KnownMappings {
    const std::vector<Mapping>& mappings;
    MappedFiles& files;
  };
  void store_now(Unit& unit, Thread& trigger, const user_regs_struct* regs, const KnownMappings* known = nullptr);
  void await_stop(const Thread& thread);
  Result<ProcessState> capture_process(Process& process, const ProcessSerial* owner, const KnownMappings* known);
  bool capture_thread(Thread& thread, bool entering, ThreadState& saved);
  Result<UnitState> capture_state(Unit& unit, Thread& trigger, bool at_entry, const KnownMappings* known);
  Result<void> capture_pages(Unit& unit, bool shared_only, ImageJob& job);
  Result<ImageJob> capture(Unit& unit, Thread& trigger, bool at_entry, bool shared_only,
                           const KnownMappings* known = nullptr);
  Result<void> capture_into(ImageJob& job, Unit& unit, Thread& trigger, bool at_entry, bool shared_only,
                            const KnownMappings* known);
  static bool leave_out_killed(Unit& unit);
  static constexpr uint64_t kCopyMark = 0x79706f63;  // in a register that clone(2) does not read: copies can be told
  static bool births_unseen(const Unit& unit);
  static bool births_pending(const Unit& unit);
  bool take_copy(ImageJob& job, pid_t copy, const Thread& original);
  void hand_over(Unit& unit, ImageJob job);
  void add_image(Unit& unit, ImageJob job, bool copied);
  Result<uint64_t> inject(Thread& thread, const user_regs_struct& at_entry, long number,
                          std::initializer_list<uint64_t> args, pid_t* born = nullptr);
  void reap_copies(Thread& thread);
  uint64_t period_ns(uint64_t memory_bytes) const;
  Result<uint64_t> file_of(MappedFiles& files, const Mapping& mapping);

  // recorder_preemption.cc
  bool preempt(Thread& thread, bool& handled);
  bool settle(Thread& thread, user_regs_struct& regs, bool& handled);
  bool has_pending_signal(pid_t tid);
  void go_on(Thread& thread, bool signals);

  // recorder_adapted.cc
  void open_adapted(Thread& thread);
  void fill_adapted(Thread& thread, const user_regs_struct& stopped, user_regs_struct& regs);
  void open_for_reading(Thread& thread, const user_regs_struct& stopped);

  // recorder_writes.cc: calls that write into other processes' memory
  Thread* named(const Thread& caller, pid_t number);
  static bool at_rest(const Unit& unit);
  Unit* written_unit(const Thread& thread);
  static std::vector<MemoryWrite>& writes_into(Process& target, const Thread& writer, Event& event);
  void enter_write(Thread& thread, Unit* unit);
  void let_write(Unit& unit);
  void make_write(Thread& thread);
  void note_write(Thread& thread, int64_t result, Event& event);
  std::vector<AddressRange> read_by(const Thread& thread, uint64_t length, const Process** source);
  void show_own_code(Thread& thread, uint64_t length);
  static void add_written(Thread& thread, const user_regs_struct& regs, SignalPoint where);

  // recorder_traced.cc: processes that trace others with the same memory
  bool answer_tracer(Thread& thread);
  int64_t trace(Thread& thread, std::vector<MemoryWrite>& writes);
  int64_t read_registers(Thread& thread, Thread& target, std::vector<MemoryWrite>& writes);
  static void let_go(Thread& target);

  // recorder_locks.cc: futexes whose words the kernel writes
  bool waits_for_lock(Thread& thread);
  void let_sleep(const Thread& thread);

  // recorder_joins.cc: units that come to share writable memory
  void join_unit(Thread& thread, Thread::Stop stop, Unit& target, const std::string& object);
  static Unit* join_target(const Unit& unit, Unit* other);
  static void leave_join(Unit& unit);
  void absorb(Unit& unit);

  // recorder_objects.cc: what processes have mapped shared
  struct ObjectView : SharedMappings::View {
    Process* process = nullptr;
  };
  static bool asks_for_sharing(const Thread& thread);
  static std::vector<ObjectView> views(const MappedObject& object, const Unit& unit, FileRange range);
  static size_t count_views(const MappedObject& object, const Process& process);
  static size_t count_views(const MappedObject& object, const Unit& unit);
  static void note_sharing(const MappedObject& object, const Unit& unit);
  Unit* other_user(const MappedObject& object, const Unit& unit) const;
  Unit* unit_to_join(Thread& thread, int64_t result);
  static uint64_t end_of_write(const Thread& thread, uint64_t length, uint64_t size);
  Unit* unit_to_join_for_change(Thread& thread);
  static std::string name_of_mapping(const Thread& thread, int64_t result);
  std::string shared_by(const Process& process) const;
  MappedObject* object_mapped(Thread& thread, const Mapping& made);
  void map_shared(Thread& thread, Address start, MapSource& source, Event& event);
  void note_contents(Thread& thread, const MappedObject& object, const Mapping& made, FileRange range, Event& event);
  void note_growth(Thread& thread, Address start, Event& event);
  void note_change(Thread& thread, int64_t result, Event& event);
  void watch_object(const MappedObject& object, const std::string& path);
  void watch_again();
  void forget(const MappedObject& object);
  void forget_versions(const MappedObject& object);
  bool is_mapped(const MappedObject& object) const;
  void forget_unmapped_objects();
  void report_outside_changes();
  std::set<ObjectPlace> shared_places(const Process& process);
  void look_for_outside_writers();
  void look_before_end(const Process& process);
  void report(const std::vector<OutsideWriter>& writers);

  // recorder_views.cc: private views of files
  struct PrivateView {
    Process* process = nullptr;
    Mapping mapping;
  };
  void note_private_view(Process& process, const FileVersion& version, const std::string& name);
  void check_view(const Process& process, const FileVersion& version);
  void check_views(const Process& process);
  std::vector<PrivateView> private_views(const MappedObject& object) const;
  void report_seen_writes(const MappedObject& object);
  Unit* unit_that_looks(const Thread& thread);
  void report_fresh_view(Thread& thread, int64_t result);
  bool note_change_in_views(Thread& thread, MappedObject& object, FileRange changed, const FileVersion& version,
                            Event& event);

  // recorder_gate.cc: the in-process tier
  bool get_regs(const Thread& thread, user_regs_struct& regs) const;
  bool set_regs(const Thread& thread, const user_regs_struct& regs) const;
  static TraceeCalls::Caller caller_of(Thread& thread);
  static TierMapper::Tracee tracee_of(Thread& thread);
  Result<void> map_gate(Thread& thread, const user_regs_struct& regs, Address vdso,
                        const std::vector<Mapping>& mappings);
  Result<void> inherit_gate(Thread& thread, const user_regs_struct& regs, std::shared_ptr<RecordedGate> gate);
  static gate::Slot* slot_of(const Thread& thread);
  void set_slot(Thread& thread);
  void ask_to_stop(Thread& thread);
  static bool in_gate(const Thread& thread, Address ip);
  static void undo_writes(const Process& process);
  void leave_gate(Thread& thread);
  void cancel_pending(Thread& thread);
  void take_from_sleeper(Unit& unit);
  void woke(Thread& thread, const user_regs_struct& stopped);
  void note_sleep(Thread& thread);
  bool open_in_slot(Thread& thread);
  bool is_cut_short(const Thread& thread, const user_regs_struct& regs) const;
  bool end_cut_short(Thread& thread, int signal);
  void disturb(Thread& thread, bool comes_out, int signal = 0);
  void at_boundary(Thread& thread, user_regs_struct regs);
  std::optional<Patcher::Replacement> replacement(const Thread& thread, Address at, SiteKind kind);
  bool patch(Thread& thread);
  void patch_instruction(Thread& thread, Address at, SiteKind kind);
  Result<void> map_trampolines(Thread& thread, Address near);
  void apply_plan(Process& process, const Mapping& mapping, const MappedFile& file);
  bool in_use(const Thread& thread, const AddressRange& code) const;
  void drain();
  // What an address space has served and is not events yet.
  struct Served {
    std::shared_ptr<RecordedGate> gate;
    RingStretch stretch;
    uint64_t cpu_ns;  // of the unit, since its interval began
    Thread* thread;   // that has made the call of the record; null before the first

    // Gate::canonical() of the instruction that the record is of.
    Address site() const;
  };
  void break_gate(RecordedGate& gate);
  std::vector<Served> take_served();
  void empty_ring(const Thread& thread);
  void next_record(Served& served);
  void drop(Served& served);
  void make_events(std::vector<Served>& sources);
  void make_events_behind();
  bool serve_again(Thread& thread);
  void begin_served(const Served& served);
  bool open_served(Served& served);
  void add_served_trap(Served& served);
  void close_served(const Served& served);

  // recorder_memory.cc
  static void note_layout(const Thread& thread, int64_t result);
  void record_memory_call(Thread& thread, int64_t result, Event& event, const gate::Record* served);
  struct KnownFile {
    uint64_t id = 0;  // in the trace
    FileVersion version;
    std::string name;
  };
  std::optional<KnownFile> look_at_file(Thread& thread);
  gate::MappedCode mapped_code(const MappedFile& file, const std::string& name);
  void map_file(Thread& thread, Address start, MapSource& source, Event& event, const gate::Record* served);
  bool mappable(Thread& thread);
  pid_t memory_behind(const Process& process, uint64_t fd) const;
  bool is_made_by_library(const Thread& thread);
  void note_written_memory(Thread& thread, uint64_t written, Event& event);

  std::optional<Stop> wait_stop(pid_t tid);
  void add_unsure(Unit& unit, const std::string& reason);
  void add_unsure(Unit& unit, const std::string& reason, EventIndex from);
  Thread* find(pid_t tid);

  Tracer& tracer_;
  StopQueue stops_;
  TraceeCalls calls_;
  TierMapper tier_mapper_;
  TraceWriter& writer_;
  RecorderLimits limits_;
  Placement placement_;
  SeenProcessors processors_;
  AdaptedFiles adapted_files_;
  Messages messages_;
  ImageWorker images_;
  std::map<UnitId, std::unique_ptr<Unit>> units_;
  uint64_t memories_ = 0;                 // that processes have had (Process::memory_id)
  std::vector<UnitId> ended_units_;       // nobody runs in them any more
  std::vector<UnitId> ended_with_image_;  // ... and the last image did not say so
  std::unordered_map<pid_t, std::unique_ptr<Thread>> threads_;
  std::set<pid_t> early_;  // tracees that have stopped before their birth was reported
  std::map<std::string, Refused> refused_;
  std::vector<Unsure> unsure_;
  OutsideWriters outside_writers_;
  bool views_changed_ = false;                  // some file of which somebody had a private view
  std::map<FileVersion, uint64_t> file_ids_;    // of mapped files
  std::map<uint32_t, KnownFile> served_files_;  // whose mappings are served, by their place in the arena
  MappedObjects objects_;
  size_t objects_kept_ = 0;  // when those that nobody has mapped were last forgotten
  UnitId next_unit_ = 1;
  uint64_t skipped_checkpoints_ = 0;
  pid_t root_ = -1;
  TraceeEnd root_end_;
  std::optional<Clock::time_point> root_ended_;
  bool write_failed_ = false;
  Clock::time_point next_tick_{};
  Clock::time_point placed_{};  // when the units' places were last looked at
  bool crowded_ = false;        // several of them computed then
  CpuidAnswers answers_;
  // Used again and again:
  std::vector<Span> spans_;
  Bytes scratch_;
  StretchCopies copies_;
  std::unique_ptr<GateArena> arena_;  // null: stops only
  std::vector<std::weak_ptr<RecordedGate>> gates_;
  PatchPlans plans_;
  CpuidReplacement cpuid_;
  Patcher patcher_;
  CodeSegments code_;
  // Makes events on another processor; null if there is none. The last member: its thread uses the others.
  std::unique_ptr<WriteBehind<std::vector<Served>>> event_maker_;
};

}  // namespace redrive
