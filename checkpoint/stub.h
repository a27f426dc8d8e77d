// A stub: the process in which a unit's recorded address space is built and its code re-driven.
//
// It starts as a static program of two pages (the gate: a `syscall` instruction at an address that no recorded program
// uses, and room for a list of calls) and has nothing else mapped. Memory layout and threads are made by running
// syscalls at the gate, several with one stop if need be. The thread
// that spawned a stub is its tracer: all functions must be called from that thread. A stub dies with its tracer
// (PTRACE_O_EXITKILL). About once in a second of its CPU time it stops with a SIGXCPU, so that a tracer that waits for
// a stop gets one however long that takes.
//
// A stub can do nothing but change its memory. From its start on, before it holds anything of a recording, a seccomp
// filter (stub_filter.h) stops every other call, whoever makes it; those that its tracer wants are compared with what
// it wants and go on, all others must be answered in the kernel's place. It opens no files: the tracer does, and sends
// them over the socket that is its only descriptor.
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

// A process that no thread has taken over yet, stopped.
struct ReleasedStub {
  void end() const;

  pid_t pid = -1;
  Fd pidfd;  // what ends it: its number may have become another process's by then
  Fd files;
};

class Stub {
 public:
  static Result<Stub> spawn(const StubTier& tier = {});
  // One that installs a filter of its own, from which others are forked (stub_maker.h).
  static Result<Stub> spawn_template(const StubTier& tier);
  // Outside of all namespaces, for one that executes nothing of a trace.
  static Result<Stub> spawn_here();
  Stub(Stub&& other) noexcept;
  Stub& operator=(Stub&& other) noexcept;
  ~Stub();  // kills and reaps the process with all its threads

  pid_t pid() const { return pid_; }
  const Memory& memory() const { return memory_; }

  // Runs a syscall for real in the stopped thread `tid` and restores its registers. The result is the kernel's
  // (negative errno), but that threads and processes that it makes have the number that we know them by. Nothing that
  // its arguments point to is compared with what was meant: only what the filter lets through, and calls on the stub
  // itself, can be wanted.
  Result<int64_t> call(pid_t tid, long number, std::initializer_list<uint64_t> args) const;

  // Adds a thread; returns its id, stopped, traced, with the caller's registers.
  Result<pid_t> add_thread(pid_t tid) const;
  // Makes a child process, whose only thread has the caller's registers. Flags: CLONE_VM, CLONE_PARENT.
  Result<Stub> fork(pid_t tid, uint64_t flags) const;
  // Lets the stack grow as far as the recorded process could (getrlimit(2), RLIMIT_STACK).
  void limit_stack(uint64_t bytes) const;
  // Whether somebody else has killed the process (SIGKILL).
  bool was_killed() const;
  // The CPU time of all threads that the process has had.
  uint64_t cpu_time_ns() const;
  // Gives the process up for another thread to take_over().
  Result<ReleasedStub> hand_over() &&;
  static Result<Stub> take_over(ReleasedStub released);
  // Ends one thread that is not the process's first.
  void end_thread(pid_t tid) const;

  // Maps a file of the host, opened for writing with MAP_SHARED, only for reading with MAP_PRIVATE and
  // MAP_SHARED_VALIDATE.
  Result<void> map_file(pid_t tid, const std::string& path, Address start, uint64_t length, int protection, int flags,
                        uint64_t offset) const;
  Result<void> map_anonymous(pid_t tid, Address start, uint64_t length, int protection, int flags) const;
  Result<void> unmap(pid_t tid, Address start, uint64_t length) const;
  // Puts an entry into the process's table of segments, or clears it.
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
    pid_t made = -1;          // the thread or process that they made, by our number: its own namespace has another
  };
  // Runs the gate's code from `start` on in the thread, which makes these calls as the list of calls wants them, and
  // has its registers of before again.
  Result<Ran> run(pid_t tid, Address start, user_regs_struct regs, std::span<const Call> calls) const;
  Result<pid_t> clone(pid_t tid, uint64_t flags) const;
  // Opens what belongs to the process beside it.
  Result<void> begin();
  static Result<Stub> spawn_by(Result<pid_t> (*spawn)(int (*body)(void*), void* arg), const StubTier& tier);
  // Has the process use a socket of its own from now on, instead of its parent's.
  Result<void> give_socket(const Stub& parent);
  Result<void> confine(const StubTier& tier) const;
  void tick() const;

  pid_t pid_ = -1;
  Fd pidfd_;
  Memory memory_;
  Fd files_;  // our end of its socket
};

// Syscalls to be made in a stub, one after the other.
class Calls {
 public:
  virtual ~Calls() = default;
  // `doing`: what errors say cannot be done.
  virtual Result<void> add(std::string doing, long number, std::initializer_list<uint64_t> args) = 0;
  // As the functions of a Stub.
  virtual Result<void> map_file(const std::string& path, Address start, uint64_t length, int protection, int flags,
                                uint64_t offset) = 0;
  Result<void> map_anonymous(Address start, uint64_t length, int protection, int flags);
  Result<void> unmap(Address start, uint64_t length);
};

// Those that a stopped thread makes, with one stop for as many as there is room for. The first that fails ends it: the
// functions that add one report what failed of those before.
class StubCalls final : public Calls {
 public:
  StubCalls(const Stub& stub, pid_t tid) : stub_(stub), tid_(tid) {}
  Result<void> add(std::string doing, long number, std::initializer_list<uint64_t> args) override;
  Result<void> map_file(const std::string& path, Address start, uint64_t length, int protection, int flags,
                        uint64_t offset) override;

  // Makes those that were added. The last one's result.
  Result<int64_t> run();

 private:
  friend class Stub;
  Result<void> push(std::string doing, long number, std::initializer_list<uint64_t> args);
  // Lets the next calls have this file, as kReceived.
  Result<void> receive(std::string doing, Fd file);
  void close();

  const Stub& stub_;
  const pid_t tid_;
  std::vector<Stub::Call> calls_;
  std::vector<std::string> doing_;
  std::vector<Fd> files_;  // to be sent
  std::string open_;       // the file that was received last, and is to be closed
  int open_mode_ = 0;
};

// The pages that a stub keeps for itself. Recorded programs must leave them alone.
inline constexpr Address kGateStart = 0x70000000;
inline constexpr Address kGateEnd = kGateStart + 2 * kPageSize;
// Behind the instruction with which Stub::call runs system calls.
inline constexpr Address kStubSyscallEnd = kGateStart + 0x102;

// Whether a call on memory would change what a stub keeps, or another process's memory: then a trace asks for what no
// recording has done.
bool is_forbidden(long number, std::span<const uint64_t, 6> args);

// Up to how many bytes the stack of a process may grow (getrlimit(2), RLIMIT_STACK).
uint64_t stack_limit(pid_t pid);

// Waits for the next stop of one tracee of the calling thread, or the end of a tracee or child. Signals do not end the
// wait. False if it does not exist.
bool wait_for(pid_t tid, int& status);

}  // namespace redrive
