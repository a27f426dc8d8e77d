#include "interceptors/trapped_instructions.h"

#include <cpuid.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <iterator>

namespace redrive {
namespace {

constexpr int32_t kRdtsc = 0, kRdtscp = 1, kCpuid = 2;
constexpr long kArchSetCpuid = 0x1012;

struct Leaf {
  uint32_t eax, ebx, ecx, edx;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf out;
  __cpuid_count(leaf, subleaf, out.eax, out.ebx, out.ecx, out.edx);
  return out;
}

// Intel SDM volume 2, CPUID: the bits that announce what a recording cannot see.
Leaf masked_cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf out = cpuid(leaf, subleaf);
  switch (leaf) {
    case 1:
      out.ebx &= 0x00ffffff;            // initial APIC id
      out.ecx &= ~(uint32_t{1} << 30);  // RDRAND
      break;
    case 7:
      if (subleaf == 0) {
        out.ebx &= ~(uint32_t{1} << 4 | uint32_t{1} << 11 | uint32_t{1} << 18);  // HLE, RTM, RDSEED
        out.ecx &= ~(uint32_t{1} << 5 | uint32_t{1} << 22);                      // WAITPKG, RDPID
      }
      break;
    case 0xd:
      if (subleaf == 0) out.ebx = 0;
      break;
    case 0xb:
    case 0x1f:
      out.edx = 0;  // x2APIC id
      break;
    default:
      break;
  }
  return out;
}

void answer_own(int, siginfo_t*, void* context) {
  auto& gregs = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* code = reinterpret_cast<const uint8_t*>(gregs[REG_RIP]);
  if (code[0] != 0x0f || code[1] != 0xa2) {
    signal(SIGSEGV, SIG_DFL);  // a real fault: it happens again and is reported as usual
    return;
  }
  syscall(SYS_arch_prctl, kArchSetCpuid, 1);
  const Leaf out = cpuid(static_cast<uint32_t>(gregs[REG_RAX]), static_cast<uint32_t>(gregs[REG_RCX]));
  syscall(SYS_arch_prctl, kArchSetCpuid, 0);
  gregs[REG_RAX] = out.eax;
  gregs[REG_RBX] = out.ebx;
  gregs[REG_RCX] = out.ecx;
  gregs[REG_RDX] = out.edx;
  gregs[REG_RIP] += 2;
}

}  // namespace

std::optional<TrappedInstruction> decode_trapped(const uint8_t (&code)[3]) {
  if (code[0] != 0x0f) return std::nullopt;
  if (code[1] == 0x31) return TrappedInstruction{kRdtsc, 2};
  if (code[1] == 0x01 && code[2] == 0xf9) return TrappedInstruction{kRdtscp, 3};
  if (code[1] == 0xa2) return TrappedInstruction{kCpuid, 2};
  return std::nullopt;
}

bool stands_for_cpuid(const uint8_t (&code)[3]) {
  return std::equal(std::begin(kCpuidStandIn), std::end(kCpuidStandIn), code);
}

TrappedInstruction cpuid_instruction() { return {kCpuid, 2}; }

const gate::CpuidAnswer& CpuidAnswers::of(uint32_t leaf, uint32_t subleaf) {
  for (const auto& known : answers_) {
    if (known.leaf == leaf && known.subleaf == subleaf) return known;
  }
  const Leaf out = masked_cpuid(leaf, subleaf);
  last_ = {leaf, subleaf, out.eax, out.ebx, out.ecx, out.edx};
  return answers_.size() < gate::kMaxAnswers ? answers_.emplace_back(last_) : last_;
}

void answer(const TrappedInstruction& trapped, user_regs_struct& regs, CpuidAnswers& answers) {
  regs.rip += static_cast<uint64_t>(trapped.length);
  if (trapped.instruction == kCpuid) {
    const auto& out = answers.of(static_cast<uint32_t>(regs.rax), static_cast<uint32_t>(regs.rcx));
    regs.rax = out.eax;
    regs.rbx = out.ebx;
    regs.rcx = out.ecx;
    regs.rdx = out.edx;
    return;
  }
  const uint64_t now = __rdtsc();
  regs.rax = now & 0xffffffff;
  regs.rdx = now >> 32;
  if (trapped.instruction == kRdtscp) regs.rcx = 0;  // IA32_TSC_AUX: the processor's number
}

bool trap_own_cpuid() {
  struct sigaction action {};
  action.sa_sigaction = answer_own;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  return syscall(SYS_arch_prctl, kArchSetCpuid, 0) == 0;
}

}  // namespace redrive
