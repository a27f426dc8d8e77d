// Instructions whose results are nondeterministic and that the processor can be told to trap: rdtsc and rdtscp
// (prctl(2), PR_SET_TSC) and cpuid (arch_prctl(2), ARCH_SET_CPUID). They fault with SIGSEGV and are answered by the
// tracer.
#pragma once

#include <sys/user.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "interceptors/inprocess/layout.h"

namespace redrive {

struct TrappedInstruction {
  int32_t instruction = 0;  // a Trap (logstore/event.h)
  int length = 0;           // bytes
};

// The trapped instruction that begins with these bytes, if it is one.
std::optional<TrappedInstruction> decode_trapped(const uint8_t (&code)[3]);

// Where cpuid cannot be told to fault, ud2 stands in for it: as long, and raises SIGILL.
inline constexpr uint8_t kCpuidStandIn[] = {0x0f, 0x0b};
bool stands_for_cpuid(const uint8_t (&code)[3]);
TrappedInstruction cpuid_instruction();

// Sets the result registers and moves behind the instruction. cpuid hides what cannot be recorded: RDRAND, RDSEED,
// RDPID, TSX, WAITPKG, and which processor it runs on; and the size of the XSAVE area, so that the dynamic linker uses
// FXSAVE: what XSAVE leaves in memory depends on when the kernel switched threads.
// Its answers for the same leaf and subleaf are the same in a recording: asking costs 10 us on virtual machines.
class CpuidAnswers {
 public:
  const gate::CpuidAnswer& of(uint32_t leaf, uint32_t subleaf);
  const std::vector<gate::CpuidAnswer>& all() const { return answers_; }  // the first ones that were asked for

 private:
  std::vector<gate::CpuidAnswer> answers_;
  gate::CpuidAnswer last_{};
};
void answer(const TrappedInstruction& trapped, user_regs_struct& regs, CpuidAnswers& answers);

// Makes cpuid fault in the calling thread too. Switching between threads that differ in this costs about 15 us on
// virtual machines, so the tracer must do what its tracees do. cpuid executed by the tracer's own libraries is answered
// by a SIGSEGV handler. False if this processor cannot.
bool trap_own_cpuid();

}  // namespace redrive
