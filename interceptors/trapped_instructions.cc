#include "interceptors/trapped_instructions.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace redrive {
namespace {

constexpr uint8_t kUndefined[] = {0x0f, 0x0b}, kPrefix = 0x66;  // ud2
constexpr int32_t kRdtsc = 0, kRdtscp = 1, kCpuid = 2;

struct Leaf {
  uint32_t eax, ebx, ecx, edx;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf out;
  __cpuid_count(leaf, subleaf, out.eax, out.ebx, out.ecx, out.edx);
  return out;
}

// Clears the bits that announce what a recording cannot see (Intel SDM volume 2, CPUID).
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

// This does not call prctl(2), which sanitizers know. ThreadSanitizer reads the counter while it blocks SIGSEGV. With
// it, the counter is not trapped here, which only costs time.
void let_counter_be_read(bool it_may) {
#ifdef REDRIVE_COUNTER_IS_READ
  it_may = true;
#endif
  syscall(SYS_prctl, PR_SET_TSC, it_may ? PR_TSC_ENABLE : PR_TSC_SIGSEGV);
}

// The real counter.
uint64_t read_counter() {
  let_counter_be_read(true);
  const uint64_t now = __rdtsc();
  let_counter_be_read(false);
  return now;
}

uint64_t raw_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Reads both at one moment: the best of several attempts.
Counter sample() {
  Counter best;
  uint64_t shortest = ~0ull;
  let_counter_be_read(true);
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = __rdtsc();
    const uint64_t ns = raw_ns();
    const uint64_t after = __rdtsc();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = {ns, before + shortest / 2, 0};
  }
  let_counter_be_read(false);
  return best;
}

Counter first_sample;

// In sanitizer builds, the sanitizers' own code faults too, so they must know neither of this handler nor of what it
// does (Makefile).
extern "C" int __sigaction(int signal, const struct sigaction* action, struct sigaction* before) noexcept;
struct sigaction before_ours;
volatile bool has_trapped = false;  // one of the instructions, in this process

void answer_own(int, siginfo_t*, void* context) {
  auto& gregs = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  uint8_t code[3];
  std::memcpy(code, reinterpret_cast<const void*>(gregs[REG_RIP]), sizeof code);
  const auto trapped = decode_trapped(code);
  if (!trapped) {
    __sigaction(SIGSEGV, &before_ours, nullptr);  // a real fault: it happens again and is reported as usual
    return;
  }
  has_trapped = true;
  gregs[REG_RIP] += trapped->length;
  if (trapped->instruction != kCpuid) {
    const uint64_t now = read_counter();
    gregs[REG_RAX] = static_cast<greg_t>(now & 0xffffffff);
    gregs[REG_RDX] = static_cast<greg_t>(now >> 32);
    if (trapped->instruction == kRdtscp) gregs[REG_RCX] = 0;
    return;
  }
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
  const Leaf out = cpuid(static_cast<uint32_t>(gregs[REG_RAX]), static_cast<uint32_t>(gregs[REG_RCX]));
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
  gregs[REG_RAX] = out.eax;
  gregs[REG_RBX] = out.ebx;
  gregs[REG_RCX] = out.ecx;
  gregs[REG_RDX] = out.edx;
}

}  // namespace

std::optional<TrappedInstruction> decode_trapped(const uint8_t (&code)[3]) {
  if (code[0] != 0x0f) return std::nullopt;
  if (code[1] == 0x31) return TrappedInstruction{kRdtsc, 2};
  if (code[1] == 0x01 && code[2] == 0xf9) return TrappedInstruction{kRdtscp, 3};
  if (code[1] == 0xa2) return TrappedInstruction{kCpuid, 2};
  return std::nullopt;
}

std::optional<TrappedInstruction> trapped_at(const Memory& memory, Address at) {
  constexpr size_t kLongestInstruction = 15;
  constexpr uint8_t kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3};
  constexpr uint8_t kRex = 0x40, kRexBits = 0xf0;  // REX: 0x40 to 0x4f
  uint8_t code[kLongestInstruction + kLongestTrapped] = {};
  const size_t readable = memory.read_some(at, code, kLongestInstruction);
  size_t prefixes = 0;
  const auto is_prefix = [&](uint8_t byte) {
    return (byte & kRexBits) == kRex || std::ranges::count(kPrefixes, byte) != 0;
  };
  while (prefixes < readable && is_prefix(code[prefixes])) ++prefixes;
  uint8_t instruction[kLongestTrapped];
  std::copy_n(code + prefixes, kLongestTrapped, instruction);
  auto trapped = decode_trapped(instruction);
  if (trapped) trapped->length += static_cast<int>(prefixes);
  return trapped;
}

bool is_stand_in(const uint8_t (&code)[3]) {
  return std::equal(std::begin(kUndefined), std::end(kUndefined), code + (code[0] == kPrefix ? 1 : 0));
}

Bytes stand_in(int length) {
  Bytes code(static_cast<size_t>(length) - std::size(kUndefined), kPrefix);
  code.insert(code.end(), std::begin(kUndefined), std::end(kUndefined));
  return code;
}

void put_back_trapped(std::span<const uint8_t> original, size_t before, Bytes& code) {
  for (size_t at = 0; at + kLongestTrapped <= original.size(); ++at) {
    uint8_t instruction[kLongestTrapped];
    std::copy_n(original.begin() + static_cast<long>(at), kLongestTrapped, instruction);
    const auto trapped = decode_trapped(instruction);
    if (!trapped) continue;
    const Bytes replacement = stand_in(trapped->length);
    const size_t first = std::max(at, before), last = std::min(at + replacement.size(), before + code.size());
    const bool replaced = first < last && std::equal(code.begin() + static_cast<long>(first - before),
                                                     code.begin() + static_cast<long>(last - before),
                                                     replacement.begin() + static_cast<long>(first - at));
    if (replaced)
      std::copy_n(original.begin() + static_cast<long>(first), last - first,
                  code.begin() + static_cast<long>(first - before));
  }
}

Bytes instruction_bytes(const TrappedInstruction& trapped) {
  if (trapped.instruction == kRdtsc) return {0x0f, 0x31};
  if (trapped.instruction == kRdtscp) return {0x0f, 0x01, 0xf9};
  return {0x0f, 0xa2};
}

std::optional<TrappedInstruction> trapped_instruction(int64_t number) {
  if (number == kRdtsc || number == kCpuid) return TrappedInstruction{static_cast<int32_t>(number), 2};
  if (number == kRdtscp) return TrappedInstruction{kRdtscp, 3};
  return std::nullopt;
}

TrappedInstruction cpuid_instruction() { return {kCpuid, 2}; }

TrappedInstruction counter_instruction(uint64_t length) {
  return {length == 2 ? kRdtsc : kRdtscp, static_cast<int>(length)};
}

bool reads_counter(const TrappedInstruction& trapped) { return trapped.instruction != kCpuid; }

std::vector<gate::CpuidAnswer>::const_iterator CpuidAnswers::find(const CpuidQuestion& question) const {
  return std::find_if(answers_.begin(), answers_.end(), [&](const gate::CpuidAnswer& known) {
    return CpuidQuestion{known.leaf, known.subleaf} == question;
  });
}

const gate::CpuidAnswer& CpuidAnswers::of(const CpuidQuestion& question) {
  if (const auto known = find(question); known != answers_.end()) return *known;
  const Leaf out = masked_cpuid(question.leaf, question.subleaf);
  last_ = {question.leaf, question.subleaf, out.eax, out.ebx, out.ecx, out.edx};
  return answers_.size() < gate::kMaxAnswers ? answers_.emplace_back(last_) : last_;
}

void answer_counter(const TrappedInstruction& trapped, uint64_t now, user_regs_struct& regs) {
  regs.rip += static_cast<uint64_t>(trapped.length);
  regs.rax = now & 0xffffffff;
  regs.rdx = now >> 32;
  if (trapped.instruction == kRdtscp) regs.rcx = 0;  // IA32_TSC_AUX: the processor's number
}

CpuidQuestion cpuid_question(const user_regs_struct& regs) {
  const auto leaf = static_cast<uint32_t>(regs.rax);
  return {leaf, gate::has_subleaves(leaf) ? static_cast<uint32_t>(regs.rcx) : 0};
}

void answer(const TrappedInstruction& trapped, user_regs_struct& regs, CpuidAnswers& answers) {
  if (trapped.instruction == kCpuid) {
    regs.rip += static_cast<uint64_t>(trapped.length);
    const auto& out = answers.of(cpuid_question(regs));
    regs.rax = out.eax;
    regs.rbx = out.ebx;
    regs.rcx = out.ecx;
    regs.rdx = out.edx;
    return;
  }
  answer_counter(trapped, counter_at(counter(), raw_ns()), regs);
}

const Counter& counter() {
  static const Counter known = [] {
    const Counter now = sample();
    const auto elapsed = static_cast<unsigned __int128>(now.value - first_sample.value) << 32;
    Counter made = first_sample;
    made.rate = static_cast<uint64_t>(elapsed / std::max<uint64_t>(1, now.ns - first_sample.ns));
    return made;
  }();
  return known;
}

ProcessorTraps trap_own_instructions() {
  struct sigaction action {};
  action.sa_sigaction = answer_own;
  action.sa_flags = SA_SIGINFO;
  struct sigaction before {};
  __sigaction(SIGSEGV, &action, &before);
  if (before.sa_sigaction != answer_own) before_ours = before;
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
  first_sample = sample();
  ProcessorTraps traps;
  has_trapped = false;
  static_cast<void>(__rdtsc());
  traps.counter = has_trapped;
  traps.cpuid = syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) == 0;
  return traps;
}

bool cpuid_traps() { return syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0) == 0; }

Untrapped::Untrapped() : cpuid_(cpuid_traps()) {
  prctl(PR_GET_TSC, &counter_);
  prctl(PR_SET_TSC, PR_TSC_ENABLE);
  if (cpuid_) syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
}

Untrapped::~Untrapped() {
  prctl(PR_SET_TSC, counter_);
  if (cpuid_) syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
}

}  // namespace redrive

// The C library's function would execute rdtsc.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
}
