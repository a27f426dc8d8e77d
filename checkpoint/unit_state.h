// The state of a unit at a checkpoint, without its pages: address spaces, threads, registers.
//
// In a replay no kernel objects exist except memory and threads, so a checkpoint consists only of this and the pages.
// It is encoded as the header of an image in the trace. Pages are stored beside it; pages that are not stored are zero
// or come from the mapped file.
#pragma once

#include <sys/mman.h>
#include <sys/user.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/remote.h"
#include "base/result.h"

namespace redrive {

// Advice after which children do not get memory, or get it empty (madvise(2)).
inline constexpr int kForkAdvice[] = {MADV_DONTFORK, MADV_WIPEONFORK};

struct Mapping {
  Address start = 0;
  Address end = 0;
  int protection = 0;   // PROT_*
  bool shared = false;  // MAP_SHARED
  uint64_t offset = 0;  // in the file or shared object, bytes
  uint64_t file = 0;    // id of the trace's copy of the mapped file; 0 = anonymous
  // Nonzero: the number of the object that is mapped shared. If `file` is set too, nobody can change the object, and
  // the file is a copy of it.
  uint64_t shared_object = 0;
  std::optional<uint64_t> object_size;  // of an object that can be changed, in bytes, if known
  uint64_t device = 0;                  // with `inode`: what the host has mapped here; not encoded
  uint64_t inode = 0;
  uint64_t fork_advice = 0;  // bit N: advice N of kForkAdvice was given
  std::string name;          // as in /proc/PID/maps

  uint64_t length() const { return end - start; }
  bool advised(int advice) const { return fork_advice >> advice & 1; }
  // Whether it shows an object that can be changed; the image then holds the object's contents.
  bool shows_object() const { return shared_object && !file; }
  // Whether it shows an object that nobody can change: the trace's copy of the file is there when it is mapped, so no
  // image holds its pages.
  bool shows_copy() const { return shared_object && file; }
  bool is_stack() const { return name == "[stack]"; }
};

// A segment that a process has defined for itself, as modify_ldt(2) takes it (struct user_desc).
struct LocalDescriptor {
  uint32_t entry = 0;
  uint32_t base = 0;
  uint32_t limit = 0;
  uint32_t flags = 0;

  // Reads it as the call that writes entries does. The older one of the call's two commands ignores a flag.
  static std::optional<LocalDescriptor> read(const Memory& memory, Address address, bool older);
  bool clears_entry() const;
  bool operator==(const LocalDescriptor&) const = default;
};
// The segments of a process, by entry. Threads and processes that share their memory share them.
using LocalDescriptors = std::map<uint32_t, LocalDescriptor>;
void apply(const LocalDescriptor& descriptor, LocalDescriptors& descriptors);

struct ProcessState {
  uint32_t process = 0;  // serial within the unit
  int32_t pid = 0;       // when recorded; names the process in messages only
  Address brk = 0;
  uint64_t stack_limit = ~0ull;  // bytes, RLIM_INFINITY if none (getrlimit(2), RLIMIT_STACK); unknown up to format 4
  std::vector<Mapping> mappings;
  LocalDescriptors descriptors;  // none up to format 6
  // The process in whose memory it runs, as vfork(2) children do; it then has neither mappings nor descriptors.
  std::optional<uint32_t> memory_of;
  // What CRIU has written of the process besides its pages; none if the image is our own.
  struct ImageFile {
    std::string name;
    std::string content;
  };
  std::vector<ImageFile> files;
};

struct ThreadState {
  uint32_t thread = 0;
  uint32_t process = 0;
  bool in_syscall = false;         // it has entered a system call whose exit is an event still to come
  bool read_implies_exec = false;  // may execute all that it maps to be read (personality(2)); unknown up to format 17
  user_regs_struct regs{};         // before the syscall instruction, or right after it (in_syscall)
  Bytes xstate;
};

struct UnitState {
  std::vector<ProcessState> processes;
  std::vector<ThreadState> threads;
  // A page of a file mapping that was written and is zero. The page store holds no zero pages.
  struct ZeroPage {
    uint32_t process = 0;
    Address address = 0;
  };
  std::vector<ZeroPage> zero_pages;
  // Threads and processes with serials from here on joined the unit at this checkpoint; they have no past in the
  // interval before it.
  uint32_t first_joined_thread = ~0u;
  uint32_t first_joined_process = ~0u;
  uint32_t trigger = 0;      // the thread whose next event is the first of the interval
  uint32_t next_thread = 0;  // how many serials have been handed out
  uint32_t next_process = 0;

  // The process whose mappings and pages this process uses.
  uint32_t memory_of(uint32_t process) const;

  // Notes the zero pages among the stored pages of a mapping, if leaving them out would mean the file's contents.
  void note_zero_pages(uint32_t process, const Mapping& mapping, Address address, std::span<const uint8_t> pages);
};

void encode(const UnitState& state, Encoder& out);
bool decode(Decoder& in, UnitState& state);
// The state in the header of an image, which an interval of a unit begins with. Status::damaged, with both, if it is
// none.
Result<UnitState> read_state(std::span<const uint8_t> header, uint32_t unit, uint32_t interval);

// The part of user_regs_struct that can be compared: everything that a program can see. orig_rax, rcx, r11 and the trap
// and resume flags depend on how the kernel was last left.
std::array<uint64_t, 18> comparable_registers(const user_regs_struct& regs);
bool same_registers(const user_regs_struct& a, const user_regs_struct& b);

// The same for the extended registers in the form of PTRACE_GETREGSET: x87, MXCSR, SSE, AVX, AVX-512, PKRU and so on.
// It leaves out what depends on the processor and the kernel: which components XSAVE marks as in use, and x87's
// pointers to the last instruction and its operand.
Bytes comparable_xstate(Bytes xstate);
// Compares states of two processors. If they have different registers, only those at the same place in both are
// compared: x87, SSE and AVX.
bool same_xstate(const Bytes& a, const Bytes& b);

}  // namespace redrive
