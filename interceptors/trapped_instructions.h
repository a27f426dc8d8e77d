// Instructions with nondeterministic results that most processors can be told to trap: rdtsc and rdtscp (prctl(2),
// PR_SET_TSC) and cpuid (arch_prctl(2), ARCH_SET_CPUID). They fault with SIGSEGV, and the tracer answers them.
#pragma once

#include <sys/user.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/remote.h"
#include "interceptors/counter.h"
#include "interceptors/inprocess/layout.h"

namespace redrive {

struct TrappedInstruction {
  int32_t instruction = 0;  // a Trap (logstore/event.h)
  int length = 0;           // bytes, with its prefixes
};

// The trapped instruction at the start of these bytes, without prefixes, if there is one.
std::optional<TrappedInstruction> decode_trapped(const uint8_t (&code)[3]);
// The one at which a thread has faulted. It may have prefixes, which the processor ignores.
std::optional<TrappedInstruction> trapped_at(const Memory& memory, Address at);

// rdtsc or rdtscp, depending on the length.
TrappedInstruction counter_instruction(uint64_t length);
bool reads_counter(const TrappedInstruction& trapped);

// The instruction of this number; nothing if there is none.
std::optional<TrappedInstruction> trapped_instruction(int64_t number);

// What stands in the place of an instruction of two or three bytes where that cannot be made to fault: ud2, which
// raises SIGILL, with a prefix if it is to be longer.
Bytes stand_in(int length);
bool is_stand_in(const uint8_t (&code)[3]);
// In code, puts back what the original has wherever something stands in for it. The original begins `before` bytes
// earlier, at most kLongestTrapped - 1, and ends as many later, because an instruction may lie across an end.
inline constexpr size_t kLongestTrapped = 3;
void put_back_trapped(std::span<const uint8_t> original, size_t before, Bytes& code);
// The bytes of the instruction itself.
Bytes instruction_bytes(const TrappedInstruction& trapped);
TrappedInstruction cpuid_instruction();

struct CpuidQuestion {
  uint32_t leaf, subleaf;
  bool operator==(const CpuidQuestion&) const = default;
};

// Sets the result registers and moves past the instruction. cpuid hides what cannot be recorded: RDRAND, RDSEED, RDPID,
// TSX, WAITPKG, and the processor that it runs on. It also hides the size of the XSAVE area, so that the dynamic linker
// uses FXSAVE: what XSAVE leaves in memory depends on when the kernel switched threads. Within a recording, the answer
// for a leaf and subleaf is always the same: asking costs 10 us on virtual machines.
class CpuidAnswers {
 public:
  const gate::CpuidAnswer& of(const CpuidQuestion& question);
  bool has(const CpuidQuestion& question) const { return find(question) != answers_.end(); }
  const std::vector<gate::CpuidAnswer>& all() const { return answers_; }  // those that were asked for first

 private:
  std::vector<gate::CpuidAnswer>::const_iterator find(const CpuidQuestion& question) const;

  std::vector<gate::CpuidAnswer> answers_;
  gate::CpuidAnswer last_{};
};
// What cpuid is asked with these registers.
CpuidQuestion cpuid_question(const user_regs_struct& regs);
void answer(const TrappedInstruction& trapped, user_regs_struct& regs, CpuidAnswers& answers);

// The same for rdtsc and rdtscp, with the value that they read.
void answer_counter(const TrappedInstruction& trapped, uint64_t now, user_regs_struct& regs);

// Makes these instructions fault in the calling thread and in threads that it starts later. On virtual machines,
// switching between threads that differ in this costs 5 us each way (rdtsc) or 15 us (cpuid), so the tracer must do
// what its tracees do. If its own libraries execute them, a SIGSEGV handler answers; clock_gettime(2) enters the kernel
// instead. SIGSEGV is unblocked. Returns which of them fault.
struct ProcessorTraps {
  bool counter = true;  // rdtsc and rdtscp
  bool cpuid = true;

  bool all() const { return counter && cpuid; }
  bool of(const TrappedInstruction& instruction) const { return reads_counter(instruction) ? counter : cpuid; }
  bool operator==(const ProcessorTraps&) const = default;
};
ProcessorTraps trap_own_instructions();
// Whether cpuid faults in the calling thread.
bool cpuid_traps();

// While it exists, the instructions do not fault in the calling thread. For libraries that block SIGSEGV. (libunwind
// does while it waits for its own mutex, for which the C library reads the counter.)
class Untrapped {
 public:
  Untrapped();
  ~Untrapped();
  Untrapped(const Untrapped&) = delete;
  Untrapped& operator=(const Untrapped&) = delete;

 private:
  int counter_ = 0;  // the previous state
  bool cpuid_ = false;
};

// The counter that answers rdtsc. trap_own_instructions() must have been called some time before.
const Counter& counter();

}  // namespace redrive
