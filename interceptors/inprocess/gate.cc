// The code inside tracees: serves system calls without a stop. A patched syscall site jumps to a trampoline, and that
// to `entry` with the address of a traced syscall instruction in rcx, which the syscall instruction would clobber as
// well.
//
// It has no libc and no stack but the slot's, leaves extended registers alone, and can be left for the traced
// instruction at any moment before the kernel is entered. Signals never see it: the supervisor holds them.
#include <sys/uio.h>

#include "interceptors/inprocess/layout.h"
#include "interceptors/inprocess/replay.h"
#include "interceptors/inprocess/spans.h"

using namespace redrive::gate;

#define TEXT(x) #x
#define VALUE(x) TEXT(x)

// The slot's fields by their offsets; checked below.
#define SLOT 0x6f020000
#define STACK_TOP 0x6f025000
#define RAX "0"
#define RDI "8"
#define RSI "16"
#define RDX "24"
#define R10 "32"
#define R8 "40"
#define R9 "48"
#define RBX "56"
#define RBP "64"
#define R12 "72"
#define R13 "80"
#define R14 "88"
#define R15 "96"
#define RSP "104"
#define FLAGS "112"
#define SITE "120"
#define PHASE "128"
#define WANT_STOP "132"

static_assert(kSlot == SLOT && kStack + kStackSize == STACK_TOP);
static_assert(offsetof(Slot, site) == 120 && offsetof(Slot, phase) == 128 && offsetof(Slot, want_stop) == 132);
static_assert(sizeof(InjectedCall) == 56 && offsetof(InjectedCall, args) == 8);
static_assert(offsetof(Registers, rbx) == 56 && offsetof(Registers, rsp) == 104 && offsetof(Registers, flags) == 112);

#define AT(field) VALUE(SLOT) "+" field

asm(R"(
  .section .header, "ax"
  .quad entry, leave, executed, boundary, inject, injected, cpuid
  .text
entry:
  mov %rsp, )" AT(RSP) R"(
  mov $)" VALUE(STACK_TOP) R"(, %esp
  pushfq
  popq )" AT(FLAGS) R"(
  cld
  mov %rcx, )" AT(SITE) R"(
  mov %rax, )" AT(RAX) R"(
  mov %rdi, )" AT(RDI) R"(
  mov %rsi, )" AT(RSI) R"(
  mov %rdx, )" AT(RDX) R"(
  mov %r10, )" AT(R10) R"(
  mov %r8, )" AT(R8) R"(
  mov %r9, )" AT(R9) R"(
  mov %rbx, )" AT(RBX) R"(
  mov %rbp, )" AT(RBP) R"(
  mov %r12, )" AT(R12) R"(
  mov %r13, )" AT(R13) R"(
  mov %r14, )" AT(R14) R"(
  mov %r15, )" AT(R15) R"(
  movl $1, )" AT(PHASE) R"(
  call serve
  test %eax, %eax
  jz leave
  mov )" AT(RDI) R"(, %rdi
  mov )" AT(RSI) R"(, %rsi
  mov )" AT(RDX) R"(, %rdx
  mov )" AT(R10) R"(, %r10
  mov )" AT(R8) R"(, %r8
  mov )" AT(R9) R"(, %r9
  mov )" AT(RAX) R"(, %rax
  mov )" AT(SITE) R"(, %rcx
  lea 2(%rcx), %rcx
  cmpl $0, )" AT(WANT_STOP) R"(
  jne report
  pushq )" AT(FLAGS) R"(
  popfq
  mov )" AT(FLAGS) R"(, %r11
  mov )" AT(RSP) R"(, %rsp
  movl $0, )" AT(PHASE) R"(
  jmp *%rcx
report:
  mov )" AT(RSP) R"(, %rsp
stop:
  syscall
boundary:
  ud2
leave:
  mov $)" VALUE(STACK_TOP) R"(, %esp
  pushq )" AT(FLAGS) R"(
  popfq
  mov )" AT(RAX) R"(, %rax
  mov )" AT(RDI) R"(, %rdi
  mov )" AT(RSI) R"(, %rsi
  mov )" AT(RDX) R"(, %rdx
  mov )" AT(R10) R"(, %r10
  mov )" AT(R8) R"(, %r8
  mov )" AT(R9) R"(, %r9
  mov )" AT(RBX) R"(, %rbx
  mov )" AT(RBP) R"(, %rbp
  mov )" AT(R12) R"(, %r12
  mov )" AT(R13) R"(, %r13
  mov )" AT(R14) R"(, %r14
  mov )" AT(R15) R"(, %r15
  mov )" AT(RSP) R"(, %rsp
  mov )" AT(SITE) R"(, %rcx
  movl $0, )" AT(PHASE) R"(
  jmp *%rcx

inject:
  mov 0(%rbp), %rax
  mov 8(%rbp), %rdi
  mov 16(%rbp), %rsi
  mov 24(%rbp), %rdx
  mov 32(%rbp), %r10
  mov 40(%rbp), %r8
  mov 48(%rbp), %r9
  syscall
injected:
  cmp $-4095, %rax
  jae stop
  add $56, %rbp
  cmp %rbx, %rbp
  jne inject
  jmp stop

# rdx: the stand-in for cpuid in the trampoline. It is over before anything else happens: nothing stops it midway but what
# is held until it is over.
cpuid:
  movl $3, )" AT(PHASE) R"(
  mov %rsp, )" AT(RSP) R"(
  mov $)" VALUE(STACK_TOP) R"(, %esp
  pushfq
  cld
  push %r11
  push %r10
  push %r9
  push %r8
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %rbx
  push %rax
  mov %rsp, %rdi
  call answer_cpuid
  pop %rax
  pop %rbx
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  pop %r8
  pop %r9
  pop %r10
  pop %r11
  popfq
  mov )" AT(RSP) R"(, %rsp
  movl $0, )" AT(PHASE) R"(
  jmp *)" AT(SITE) R"(

# rdi: the registers of the call
  .globl execute
execute:
  mov 0(%rdi), %rax
  mov 16(%rdi), %rsi
  mov 24(%rdi), %rdx
  mov 32(%rdi), %r10
  mov 40(%rdi), %r8
  mov 48(%rdi), %r9
  mov 8(%rdi), %rdi
  movl $2, )" AT(PHASE) R"(
  syscall
executed:
  movl $3, )" AT(PHASE) R"(
  ret
)");

extern "C" int64_t execute(const Registers* regs);

constexpr uint64_t kFcntl = 72, kGetFlags = 3, kNonBlocking = 04000;  // fcntl(2): F_GETFL, O_NONBLOCK

namespace {

Slot& slot() { return *reinterpret_cast<Slot*>(kSlot); }

void copy(void* to, uint64_t from, uint64_t length) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
}

// Writes a record at the ring's head, never beyond its end.
struct Writer {
  uint8_t* at;
  uint8_t* end;

  bool add(uint64_t address, uint64_t length, uint32_t& pieces) {
    if (length > kRingSize || static_cast<uint64_t>(end - at) < sizeof(Piece) + padded(length)) return false;
    auto* piece = reinterpret_cast<Piece*>(at);
    piece->address = address;
    piece->length = length;
    copy(piece + 1, address, length);
    at += sizeof(Piece) + padded(length);
    ++pieces;
    return true;
  }
};

// The kernel keeps it in the limit of a segment (asm/segment.h, __CPUNODE_SEG).
uint32_t processor() {
  constexpr uint32_t kSegment = 0x7b, kMask = 0xfff;
  uint32_t limit = 0;
  asm volatile("lsl %1, %0" : "=r"(limit) : "r"(kSegment) : "cc");
  return limit & kMask;
}

// With the signal-safe exit of `execute`: nothing of the served call has happened yet.
bool is_nonblocking(Slot& slot, uint64_t descriptor) {
  Registers regs{};
  regs.rax = kFcntl, regs.rdi = descriptor, regs.rsi = kGetFlags;
  const int64_t flags = execute(&regs);
  slot.phase = Phase::before;
  return flags >= 0 && (flags & kNonBlocking);
}

uint64_t take_stamp() {
  uint64_t stamp = 1;
  asm volatile("lock xaddq %0, %1" : "+r"(stamp), "+m"(reinterpret_cast<Clock*>(kClock)->now) : : "memory", "cc");
  return stamp + 1;
}

}  // namespace

// Serves the call whose registers are in the slot, and puts its result there; 0 if it must stop.
extern "C" int serve() {
  Slot& s = slot();
  const Registers& regs = s.regs;
  if (s.replay) return answer(s);
  if (s.want_stop || regs.rax >= kCalls || processor() != s.processor) return 0;
  const Call& call = reinterpret_cast<const Call*>(kTable)[regs.rax];
  if (call.serve == Serve::never) return 0;
  const bool may_sleep = call.serve == Serve::always || s.alone;
  if (!may_sleep) {
    if (call.yields && s.others_wait) return 0;
    if (call.descriptor != kNoArg && !is_nonblocking(s, argument(regs, call.descriptor))) return 0;
    if (call.descriptor == kNoArg && call.timeout == kNoArg && !call.yields) return 0;
  }
  const bool without_timeout = !may_sleep && call.timeout != kNoArg && argument(regs, call.timeout) != 0;

  uint8_t* const ring = reinterpret_cast<uint8_t*>(kRing);
  if (kRingSize - s.head < sizeof(Record)) return 0;
  auto* record = reinterpret_cast<Record*>(ring + s.head);
  Writer writer{reinterpret_cast<uint8_t*>(record + 1), ring + kRingSize};
  record->before = record->after = 0;
  uint64_t capacities[kMaxSpans];
  uint64_t room = 0;  // for what the call may write
  for (int i = 0; i < call.spans; ++i) {
    const Span& span = call.span[i];
    const uint64_t address = argument(regs, span.arg);
    capacities[i] = address ? capacity(span, regs) : 0;
    if (capacities[i] > kRingSize) return 0;
    if (!address) continue;
    if (span.before && !writer.add(address, capacities[i], record->before)) return 0;
    uint64_t buffers = 0;
    if (span.extent == Extent::vector) {
      const auto* vector = reinterpret_cast<const iovec*>(address);
      for (uint64_t k = 0; k < argument(regs, span.other); ++k) {
        if (vector[k].iov_len > kRingSize) return 0;
        buffers += vector[k].iov_len + sizeof(Piece) + 8;
        if (!span.after &&
            !writer.add(reinterpret_cast<uint64_t>(vector[k].iov_base), vector[k].iov_len, record->before)) {
          return 0;
        }
      }
      if (!span.after) buffers = 0;
    }
    if (span.after) room += sizeof(Piece) + capacities[i] + 8 + buffers;
  }
  if (room > static_cast<uint64_t>(writer.end - writer.at)) return 0;

  record->thread = s.thread;
  record->site = s.site;
  record->regs = regs;
  asm volatile("rdfsbase %0" : "=r"(record->fs_base));
  asm volatile("rdgsbase %0" : "=r"(record->gs_base));
  if (call.send) {
    record->size = static_cast<uint32_t>(writer.at - reinterpret_cast<uint8_t*>(record));
    record->stamp = take_stamp();
    asm volatile("" : : : "memory");
    s.pending = 1;
    asm volatile("" : : : "memory");
  }
  int64_t result = 0;
  if (without_timeout) {
    Registers now = regs;
    (&now.rdi)[call.timeout] = 0;
    result = execute(&now);
    if (result == 0) return 0;  // it would sleep
  } else {
    result = execute(&regs);
  }

  for (int i = 0; i < call.spans; ++i) {
    const Span& span = call.span[i];
    const uint64_t address = argument(regs, span.arg);
    if (!span.after || !address || !is_written(span.written, result)) continue;
    uint64_t length = capacities[i];
    switch (span.extent) {
      case Extent::result: {
        const uint64_t made = result < 0 ? 0 : static_cast<uint64_t>(result) * span.value;
        length = made < length ? made : length;
        break;
      }
      case Extent::pointee: {
        const uint64_t made = argument(regs, span.other) ? *reinterpret_cast<uint32_t*>(argument(regs, span.other)) : 0;
        length = made < length ? made : length;
        break;
      }
      case Extent::vector: {
        uint64_t left = result < 0 ? 0 : static_cast<uint64_t>(result);
        const auto* vector = reinterpret_cast<const iovec*>(address);
        for (uint64_t k = 0; k < argument(regs, span.other) && left; ++k) {
          const uint64_t part = vector[k].iov_len < left ? vector[k].iov_len : left;
          writer.add(reinterpret_cast<uint64_t>(vector[k].iov_base), part, record->after);
          left -= part;
        }
        continue;
      }
      default:
        break;
    }
    writer.add(address, length, record->after);
  }
  record->size = static_cast<uint32_t>(writer.at - reinterpret_cast<uint8_t*>(record));
  record->result = result;
  if (!call.send) record->stamp = take_stamp();
  s.regs.rax = static_cast<uint64_t>(result);
  asm volatile("" : : : "memory");
  s.head += record->size;
  s.pending = 0;
  return 1;
}

// As the code that calls it has put them on the stack.
struct CpuidRegisters {
  uint64_t rax, rbx, rcx, rdx;
};

// Answers cpuid if the supervisor has answered the same before; else the thread goes on at the stand-in, and stops.
extern "C" void answer_cpuid(CpuidRegisters* regs) {
  Slot& s = slot();
  s.site = regs->rdx;
  if (s.want_stop || processor() != s.processor || kRingSize - s.head < sizeof(Record)) return;
  const auto leaf = static_cast<uint32_t>(regs->rax), subleaf = static_cast<uint32_t>(regs->rcx);
  const auto& known = reinterpret_cast<const Orders*>(kOrders)->cpuid;
  const CpuidAnswer* const end = known.answers + known.count;
  const CpuidAnswer* answer = known.answers;
  while (answer != end && (answer->leaf != leaf || answer->subleaf != subleaf)) ++answer;
  if (answer == end) return;
  auto* record = reinterpret_cast<Record*>(reinterpret_cast<uint8_t*>(kRing) + s.head);
  *record = Record{};
  record->size = sizeof *record;
  record->thread = s.thread;
  record->site = s.site;
  record->regs.rax = kCpuidNumber;
  record->regs.rdi = regs->rax;
  record->regs.rsi = regs->rcx;
  record->stamp = take_stamp();
  regs->rax = answer->eax;
  regs->rbx = answer->ebx;
  regs->rcx = answer->ecx;
  regs->rdx = answer->edx;
  constexpr uint64_t kInstructionSize = 2;
  s.site += kInstructionSize;
  asm volatile("" : : : "memory");
  s.head += record->size;
}
