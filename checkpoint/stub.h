// A stub: the process in which a unit's recorded address space is built and its code re-driven.
//
// It starts as a static program of two pages (the gate: a `syscall` instruction at an address that no recorded program
// uses, and room for a list of calls) and has nothing else mapped. Memory layout and threads are made by running
// syscalls at the gate, several with one stop if need be. The thread
// that spawned a stub is its tracer: all functions must be called from that thread. A stub dies with its tracer
// (PTRACE_O_EXITKILL). About once in a second of its CPU time it stops with a SIGXCPU, so that a tracer that waits for
// a stop gets one however long that takes.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/unit_state.h"

namespace redrive {

class Stub {
 public:
  static Result<Stub> spawn();
  Stub(Stub&& other) noexcept;
  Stub& operator=(Stub&& other) noexcept;
  ~Stub();  // kills and reaps the process with all its threads

  pid_t pid() const { return pid_; }
  const Memory& memory() const { return memory_; }

  // Runs a syscall for real in the stopped thread `tid` and restores its registers. The result is the kernel's
  // (negative errno).
  Result<int64_t> call(pid_t tid, long number, std::initializer_list<uint64_t> args) const;

  // Adds a thread (flags hold CLONE_THREAD) or makes a child process; returns its id, stopped, traced, with the
  // caller's registers.
  Result<pid_t> clone(pid_t tid, uint64_t flags) const;
  // Lets the stack grow as far as the recorded process could (getrlimit(2), RLIMIT_STACK).
  void limit_stack(uint64_t bytes) const;
  // The CPU time of all threads that the process has had.
  uint64_t cpu_time_ns() const;
  // The stub of a child process made by clone().
  static Result<Stub> adopt(pid_t pid);
  // Gives the process up, stopped, for another thread to take_over(). Returns its id.
  Result<pid_t> hand_over() &&;
  static Result<Stub> take_over(pid_t pid);
  // Ends one thread that is not the process's first.
  void end_thread(pid_t tid) const;

  // Maps a file of the host, opened by the stub itself: for writing with MAP_SHARED, only for reading with MAP_PRIVATE
  // and MAP_SHARED_VALIDATE.
  Result<void> map_file(pid_t tid, const std::string& path, Address start, uint64_t length, int protection, int flags,
                        uint64_t offset) const;
  Result<void> map_anonymous(pid_t tid, Address start, uint64_t length, int protection, int flags) const;
  Result<void> unmap(pid_t tid, Address start, uint64_t length) const;
  // Puts an entry into the process's table of segments, or clears it.
  Result<void> describe(pid_t tid, const LocalDescriptor& descriptor) const;

 private:
  friend class StubCalls;
  Stub() = default;
  // Runs the gate's code with these registers, as the list of calls wants them, in the thread. Its registers behind it;
  // it has those of before again.
  Result<user_regs_struct> run(pid_t tid, user_regs_struct regs) const;
  void tick() const;

  pid_t pid_ = -1;
  Memory memory_;
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
  struct Call {
    uint64_t number;
    uint64_t args[6];
  };
  Result<void> push(std::string doing, long number, std::initializer_list<uint64_t> args);
  void close();

  const Stub& stub_;
  const pid_t tid_;
  std::vector<Call> calls_;
  std::vector<std::string> doing_;
  std::string texts_;  // paths, which lie at the end of the page
  std::string open_;   // the file that was opened last, and is to be closed
  uint64_t open_mode_ = 0;
};

// The pages that a stub keeps for itself. Recorded programs must leave them alone.
inline constexpr Address kGateStart = 0x70000000;
inline constexpr Address kGateEnd = kGateStart + 2 * kPageSize;
// Behind the instruction with which Stub::call runs system calls: a seccomp filter must let them through.
inline constexpr Address kStubSyscallEnd = kGateStart + 0x102;

// Whether a call on memory would change what a stub keeps: then a trace asks for what no recording has done.
bool touches_stub(long number, std::span<const uint64_t, 6> args);

// Up to how many bytes the stack of a process may grow (getrlimit(2), RLIMIT_STACK).
uint64_t stack_limit(pid_t pid);

// Waits for the next stop of one tracee of the calling thread, or the end of a tracee or child. Signals do not end the
// wait. False if it does not exist.
bool wait_for(pid_t tid, int& status);

}  // namespace redrive
