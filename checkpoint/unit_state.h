// The state of a unit at a checkpoint, pages apart: address spaces, threads, registers.
//
// In replay no kernel object exists but memory and threads, so this and the pages are all there is to a checkpoint.
// Encoded as the header of an image in the trace; pages are stored beside it, absent ones are zero or come from the
// mapped file.
#pragma once

#include <sys/user.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/remote.h"

namespace redrive {

struct Mapping {
  Address start = 0;
  Address end = 0;
  int protection = 0;   // PROT_*
  bool shared = false;  // MAP_SHARED
  uint64_t offset = 0;  // of the file or shared object, bytes
  uint64_t file = 0;    // id of the trace's copy of the mapped file; 0 = anonymous
  // Nonzero: the object that is mapped shared. With `file`, nobody can change it, and the file is a copy of it.
  uint64_t shared_object = 0;
  std::optional<uint64_t> object_size;  // of one that can be changed, bytes; if it is known
  uint64_t device = 0;                  // with `inode`: what the host maps here; not part of the encoding
  uint64_t inode = 0;
  std::string name;  // as in /proc/PID/maps

  uint64_t length() const { return end - start; }
  // Whether it shows an object that can be changed: the image holds its contents.
  bool shows_object() const { return shared_object && !file; }
  bool is_stack() const { return name == "[stack]"; }
};

// A segment that a process has described for itself, as modify_ldt(2) takes it (struct user_desc).
struct LocalDescriptor {
  uint32_t entry = 0;
  uint32_t base = 0;
  uint32_t limit = 0;
  uint32_t flags = 0;

  // As the call that writes entries takes it from memory; the older of its two commands ignores a flag.
  static std::optional<LocalDescriptor> read(const Memory& memory, Address address, bool older);
  bool clears_entry() const;
  bool operator==(const LocalDescriptor&) const = default;
};
// Those of a process, by their entries. Threads and processes that share their memory share them.
using LocalDescriptors = std::map<uint32_t, LocalDescriptor>;
void apply(const LocalDescriptor& descriptor, LocalDescriptors& descriptors);

struct ProcessState {
  uint32_t process = 0;  // serial within the unit
  int32_t pid = 0;       // when recorded; names the process in messages only
  Address brk = 0;
  uint64_t stack_limit = ~0ull;  // bytes, RLIM_INFINITY if none (getrlimit(2), RLIMIT_STACK); up to format 4 unknown
  std::vector<Mapping> mappings;
  LocalDescriptors descriptors;  // up to format 6 none
  // The process whose memory it runs on, as vfork(2) children do; it has neither mappings nor
  // descriptors then.
  std::optional<uint32_t> memory_of;
};

struct ThreadState {
  uint32_t thread = 0;
  uint32_t process = 0;
  bool in_syscall = false;  // entered a syscall whose exit is an event still to come
  user_regs_struct regs{};  // at the syscall instruction (about to enter) or behind it (in_syscall)
  Bytes xstate;
};

struct UnitState {
  std::vector<ProcessState> processes;
  std::vector<ThreadState> threads;
  // Pages of file mappings that were written and are zero: the page store holds no zero pages.
  struct ZeroPage {
    uint32_t process = 0;
    Address address = 0;
  };
  std::vector<ZeroPage> zero_pages;
  // Threads and processes with serials from here on joined the unit at this checkpoint: the interval before knows
  // nothing of them.
  uint32_t first_joined_thread = ~0u;
  uint32_t first_joined_process = ~0u;
  uint32_t trigger = 0;      // the thread whose next event is the first of the interval
  uint32_t next_thread = 0;  // serials handed out so far
  uint32_t next_process = 0;

  // Whose mappings and pages are those of this process.
  uint32_t memory_of(uint32_t process) const;

  // Notes the zero pages among those of a mapping's that are stored, if their absence would mean the file's contents.
  void note_zero_pages(uint32_t process, const Mapping& mapping, Address address, std::span<const uint8_t> pages);
};

void encode(const UnitState& state, Encoder& out);
bool decode(Decoder& in, UnitState& state);

// What the layout of user_regs_struct leaves to be compared: everything a program can see. orig_rax, rcx, r11 and the
// trap and resume flags depend on how the kernel was last left.
std::array<uint64_t, 18> comparable_registers(const user_regs_struct& regs);
bool same_registers(const user_regs_struct& a, const user_regs_struct& b);

// The same of the extended registers, as PTRACE_GETREGSET shows them: x87, MXCSR, SSE, AVX, AVX-512, PKRU and so on.
// Which components XSAVE says are in use depends on the processor and the kernel, and so do x87's pointers to the last
// instruction and its operand.
Bytes comparable_xstate(Bytes xstate);
// Of two processors with different registers those that are at the same place in both are compared: x87, SSE and AVX.
bool same_xstate(const Bytes& a, const Bytes& b);

}  // namespace redrive
