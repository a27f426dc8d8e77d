// A stub: the process in which a unit's recorded address space is built and its code re-driven.
//
// It starts as a static program of two pages and has nothing else mapped. These pages are the gate: a `syscall`
// instruction at an address that no recorded program uses, and room for a list of calls. Memory layout and threads are
// made by running system calls at the gate, some 70 with one stop where possible. The thread that spawned a stub is its
// tracer: all functions must be called from that thread. A stub dies with its tracer (PTRACE_O_EXITKILL). About once
// per second of its CPU time it stops with a SIGXCPU, so that a tracer that waits for a stop gets one, however long the
// stub computes.
//
// A stub can do nothing but change its memory. From its start, before it holds anything of a recording, a seccomp
// filter (stub_filter.h) stops every other call, whoever makes it. Stopped calls that the tracer wants are compared
// with what it wants and then continue; all others must be answered instead of being executed. A stub opens no files:
// the tracer opens them and sends them over a socket, the stub's only descriptor. A stub gets no new privileges, its
// limits for core dumps, file sizes and locked memory are 0, and the kernel kills it first when memory gets scarce.
// rdtsc and, where the processor allows it, cpuid fault, as in recorded programs.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/stub_filter.h"
#include "checkpoint/unit_state.h"

namespace redrive {

// A stopped process that no thread has taken over yet.
struct ReleasedStub {
  void end() const;

  pid_t pid = -1;
  Fd pidfd;  // used to kill it, because its number may belong to another process by then
  Fd files;
};

class Stub {
 public:
  static Result<Stub> spawn(const StubTier& tier = {});
  // Spawns a stub that installs a filter of its own, and from which others are forked (stub_maker.h).
  static Result<Stub> spawn_template(const StubTier& tier);
  // Spawns a stub outside of all namespaces, for use without anything of a trace.
  static Result<Stub> spawn_here();
  Stub(Stub&& other) noexcept;
  Stub& operator=(Stub&& other) noexcept;
  ~Stub();  // kills and reaps the process with all its threads

  pid_t pid() const { return pid_; }
  const Memory& memory() const { return memory_; }

  // Runs a system call for real in the stopped thread `tid` and restores its registers. Returns the kernel's result
  // (negative errno), except that new threads and processes have the numbers by which we know them. Memory that the
  // arguments point to is not compared with what was meant, so only calls that the filter lets through, and calls on
  // the stub itself, may be run.
  Result<int64_t> call(pid_t tid, long number, std::initializer_list<uint64_t> args) const;

  // Adds a thread and returns its id. It is stopped and traced, and has the caller's registers.
  Result<pid_t> add_thread(pid_t tid) const;
  // Makes a child process, whose only thread has the caller's registers. Flags: CLONE_VM, CLONE_PARENT.
  Result<Stub> fork(pid_t tid, uint64_t flags) const;
  // Lets the stack grow as far as the recorded process could (getrlimit(2), RLIMIT_STACK).
  void limit_stack(uint64_t bytes) const;
  // Whether somebody else has killed the process (SIGKILL).
  bool was_killed() const;
  // The CPU time of all threads that the process has had.
  uint64_t cpu_time_ns() const;
  // Gives up the process, for another thread to take_over().
  Result<ReleasedStub> hand_over() &&;
  static Result<Stub> take_over(ReleasedStub released);
  // Takes over a process that another program has made with a stub's two pages and its filter, but without descriptors.
  // All its threads are stopped, at stub_trap(). It makes its socket, and its threads fault at rdtsc and cpuid from now
  // on. Its limit for the size of files becomes 0 only here, because the other program may have written a log by it.
  static Result<Stub> adopt(pid_t pid);
  // Ends one thread, which must not be the first of the process.
  void end_thread(pid_t tid) const;

  // Maps a file of the host. It is opened for writing with MAP_SHARED, and only for reading with MAP_PRIVATE and
  // MAP_SHARED_VALIDATE.
  Result<void> map_file(pid_t tid, const std::string& path, Address start, uint64_t length, int protection, int flags,
                        uint64_t offset) const;
  Result<void> map_anonymous(pid_t tid, Address start, uint64_t length, int protection, int flags) const;
  Result<void> unmap(pid_t tid, Address start, uint64_t length) const;
  // Sets or clears an entry of the process's table of segments.
  Result<void> describe(pid_t tid, const LocalDescriptor& descriptor) const;

 private:
  friend class StubCalls;
  struct Call {
    uint64_t number;
    uint64_t args[6];
  };
  Stub() = default;
  struct Ran {
    user_regs_struct regs{};  // after the calls
    pid_t made = -1;          // the thread or process that they made, by its number in our PID namespace
  };
  // Runs the gate's code from `start` on in the thread, which makes these calls through the list of calls. Then
  // restores the thread's registers.
  Result<Ran> run(pid_t tid, Address start, user_regs_struct regs, std::span<const Call> calls) const;
  Result<pid_t> clone(pid_t tid, uint64_t flags) const;
  // Opens the other resources that belong to the process.
  Result<void> begin();
  static Result<Stub> spawn_by(Result<pid_t> (*spawn)(int (*body)(void*), void* arg), const StubTier& tier);
  // Makes the process use a socket of its own from now on, instead of its parent's.
  Result<void> give_socket(const Stub& parent);
  Result<void> confine(const StubTier& tier) const;
  void tick() const;

  pid_t pid_ = -1;
  Fd pidfd_;
  Memory memory_;
  Fd files_;  // our end of its socket
};

// System calls to be made in a stub, one after the other.
class Calls {
 public:
  virtual ~Calls() = default;
  // `doing` completes "cannot ..." in error messages.
  virtual Result<void> add(std::string doing, long number, std::initializer_list<uint64_t> args) = 0;
  // The same as the functions of Stub.
  virtual Result<void> map_file(const std::string& path, Address start, uint64_t length, int protection, int flags,
                                uint64_t offset) = 0;
  Result<void> map_anonymous(Address start, uint64_t length, int protection, int flags);
  Result<void> unmap(Address start, uint64_t length);
};

// System calls that a stopped thread makes, with one stop for as many as there is room for. The first failure ends the
// list: functions that add a call report failures of earlier ones.
class StubCalls final : public Calls {
 public:
  StubCalls(const Stub& stub, pid_t tid) : stub_(stub), tid_(tid) {}
  Result<void> add(std::string doing, long number, std::initializer_list<uint64_t> args) override;
  Result<void> map_file(const std::string& path, Address start, uint64_t length, int protection, int flags,
                        uint64_t offset) override;

  // Makes the calls that were added. Returns the result of the last one.
  Result<int64_t> run();

 private:
  friend class Stub;
  Result<void> push(std::string doing, long number, std::initializer_list<uint64_t> args);
  // Lets the next calls use this file, as kReceived.
  Result<void> receive(std::string doing, Fd file);
  void close();

  const Stub& stub_;
  const pid_t tid_;
  std::vector<Stub::Call> calls_;
  std::vector<std::string> doing_;
  std::vector<Fd> files_;  // to be sent
  std::string open_;       // the file that was received last and is still to be closed
  int open_mode_ = 0;
};

// The pages that a stub keeps for itself. Recorded programs must not use them: the recorder maps something else there
// (Gate::reserve_stub()). It names the programs that have memory there all the same, whose replays fail.
inline constexpr Address kGateStart = 0x70000000;
inline constexpr Address kGateEnd = kGateStart + 2 * kPageSize;
// The address right after the instruction with which Stub::call runs system calls.
inline constexpr Address kStubSyscallEnd = kGateStart + 0x102;

// The executable file that a stub starts as. The stub's first page begins with its bytes; the rest of both is zero.
Bytes stub_program();
// Where a thread of a stub that is let run stops at once (SIGTRAP).
Address stub_trap();

// Whether a call on memory would change what a stub keeps for itself, or another process's memory.
bool is_forbidden(long number, std::span<const uint64_t, 6> args);
// Why such a call is not made.
Error forbidden_call();

// How many bytes the stack of a process may grow to (getrlimit(2), RLIMIT_STACK).
uint64_t stack_limit(pid_t pid);
// Whether a thread may execute all that it maps to be read (personality(2), READ_IMPLIES_EXEC).
bool read_implies_exec(pid_t tid);
// Lets a thread of a stub do so from now on, or not.
Result<void> let_read_imply_exec(const Stub& stub, pid_t tid, bool implies);

// Waits for the next stop of one tracee of the calling thread, or for the end of a tracee or child. Signals do not end
// the wait. False if there is no such process.
bool wait_for(pid_t tid, int& status);

}  // namespace redrive
