// The memory and registers of a stopped tracee (ptrace(2), process_vm_readv(2)).
//
// The caller of these functions must be the tracer, and the tracee must be in a ptrace-stop. The exception is memory
// access, which usually goes through an open /proc/PID/mem and works from any thread. If the tracee has died, the
// functions return false: that is data, not an error.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/page.h"
#include "base/result.h"

namespace redrive {

// Segments in which 64-bit code runs (asm/segment.h).
inline constexpr uint64_t kCodeSegment = 0x33, kStackSegment = 0x2b;

// Bytes of a tracee, and where they lie in our memory.
struct MemoryPiece {
  Address address = 0;
  uint8_t* data = nullptr;
  size_t size = 0;
};

// Consecutive bytes of a tracee, copied.
struct Stretch {
  Address start = 0;
  Bytes bytes;

  Address end() const { return start + bytes.size(); }
};

// Where a Memory finds its bytes.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual size_t read_some(Address from, void* to, size_t size) const = 0;  // up to the first unreadable page
  virtual bool write(Address to, const void* from, size_t size) const = 0;  // all or false
  virtual bool gone() const { return false; }                               // as below
};

// A process's memory. Reads and writes ignore page protections, as ptrace does.
class Memory {
 public:
  Memory() = default;
  // `pid`: the process whose memory it is.
  Memory(pid_t pid, std::shared_ptr<const MemorySource> source) : pid_(pid), source_(std::move(source)) {}
  // If no more files can be opened (errno EMFILE and the like), the process is accessed by its number instead.
  static Result<Memory> open(pid_t pid);
  // Pieces of memory as they were at some moment; later pieces take precedence over earlier ones. Everything else is
  // unreadable. The data must outlive the Memory, which must not be written to.
  struct Piece {
    Address address;
    std::span<const uint8_t> data;
  };
  static Memory of(std::span<const Piece> pieces);
  // The same memory, each page of which is read only once: for looking at many places while the process is stopped.
  // `source` must outlive it. It must not be written to.
  static Memory snapshot(const Memory& source);

  // The memory of this process, which it shares with the process of `source`.
  static Memory shared(pid_t pid, const Memory& source);

  pid_t pid() const { return pid_; }
  bool read(Address from, void* to, size_t size) const;         // all or false
  size_t read_some(Address from, void* to, size_t size) const;  // up to the first unreadable page
  // The same, at the end of `to`. A call may name more than there is, so no more room is made than is needed.
  void append_some(Address from, size_t size, Bytes& to) const;
  bool write(Address to, const void* from, size_t size) const;  // all or false
  // Whether the memory is there no more, because the process has ended. If it is there, it was there for all that was
  // read or written before. A snapshot from which everything could be read does not ask.
  bool gone() const { return source_ && source_->gone(); }
  // The place where these bytes already lie in one piece; null if they have to be read.
  const uint8_t* view(Address from, size_t size) const;
  // Up to 1024 pieces in one call. Do not use these for a process that may exec meanwhile, because the process is named
  // by its number, nor for a fork's copy, because the kernel then gives the copy a page of its own for each page that
  // is read.
  bool read(std::span<const MemoryPiece> pieces) const;   // all or false
  bool write(std::span<const MemoryPiece> pieces) const;  // all or false
  // The stretches in which these pieces lie; the pieces are in ascending order. Pieces that are close together share a
  // stretch, which includes what is between them. All are read in one go. Pieces that cannot be read are left out.
  std::vector<Stretch> stretches(std::span<const MemoryPiece> pieces) const;
  // Writes pieces, which are in ascending order, whatever their protection. Whole stretches are written, so the process
  // must be stopped. False if some could not be written.
  bool patch(std::span<const MemoryPiece> pieces) const;
  // A NUL-terminated string of at most `limit` bytes, without its NUL; if there is no NUL, what could be read.
  std::string string(Address from, size_t limit = 4096) const;

  template <typename T>
  bool get(Address from, T& value) const {
    return read(from, &value, sizeof value);
  }
  template <typename T>
  bool put(Address to, const T& value) const {
    return write(to, &value, sizeof value);
  }

 private:
  size_t read_piece(Address from, void* to, size_t size) const;

  pid_t pid_ = -1;
  std::shared_ptr<const MemorySource> source_;  // null: the pieces
  std::span<const Piece> pieces_;
};

bool get_regs(pid_t tid, user_regs_struct& regs);
bool set_regs(pid_t tid, const user_regs_struct& regs);
Bytes get_xstate(pid_t tid);  // NT_X86_XSTATE; empty if the tracee is gone
[[nodiscard]] bool set_xstate(pid_t tid, const Bytes& xstate);
// Has the kernel make no call where a filter has stopped the tracee before one.
bool skip_call(pid_t tid);

// The signal at whose stop the tracee is.
bool get_siginfo(pid_t tid, siginfo_t& info);
bool set_siginfo(pid_t tid, const siginfo_t& info);
// The signals that the tracee blocks, each at bit `number - 1`.
bool get_signal_mask(pid_t tid, uint64_t& mask);
bool set_signal_mask(pid_t tid, uint64_t mask);

// What a thread has registered with rseq(2).
struct RseqArea {
  Address address = 0;
  uint32_t length = 0, signature = 0;
};
std::optional<RseqArea> rseq_area(pid_t tid);  // nothing if it has registered none

// Becomes the tracer of a thread, with these options (PTRACE_SEIZE); it runs on.
bool seize(pid_t tid, long options);
bool interrupt(pid_t tid);
// Lets the tracee go on, by a request such as PTRACE_CONT, with this signal.
bool resume(pid_t tid, __ptrace_request how, int signal = 0);
bool detach(pid_t tid, int signal = 0);
// What belongs to the tracee's last stop (PTRACE_GETEVENTMSG), such as the thread that it has made. 0 if it is gone.
uint64_t event_message(pid_t tid);

// Whether an instruction of the thread itself raised the signal (sigaction(2), si_code).
inline bool caused_by_instruction(const siginfo_t& info) {
  switch (info.si_signo) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
      return info.si_code > 0;
    default:
      return false;
  }
}

// The six argument registers of a syscall, in order: rdi rsi rdx r10 r8 r9.
inline unsigned long long& syscall_arg(user_regs_struct& regs, int index) {
  unsigned long long* const slots[] = {&regs.rdi, &regs.rsi, &regs.rdx, &regs.r10, &regs.r8, &regs.r9};
  return *slots[index];
}

inline std::array<uint64_t, 6> syscall_args(user_regs_struct& regs) {
  std::array<uint64_t, 6> args;
  for (size_t i = 0; i < args.size(); ++i) args[i] = syscall_arg(regs, static_cast<int>(i));
  return args;
}

}  // namespace redrive
