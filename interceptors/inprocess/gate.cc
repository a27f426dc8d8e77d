// The code inside tracees: serves system calls without a stop. A patched syscall site jumps to a trampoline, which
// jumps to `entry` with the address of a traced syscall instruction in rcx; a syscall instruction would clobber rcx
// too.
//
// The code has no libc and no stack except the slot's, and leaves extended registers alone. At any moment before the
// kernel is entered, it can be abandoned in favour of the traced instruction. Signals never see it: the supervisor
// holds them. A call whose result could not be recorded becomes one that has stopped, with the kernel's result. A call
// that was tried without its timeout and would have slept has left nothing: what the attempt wrote is undone.

#include <asm/errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "interceptors/inprocess/layout.h"
#include "interceptors/inprocess/replay.h"
#include "interceptors/inprocess/spans.h"

using namespace redrive;
using namespace redrive::gate;

#define TEXT(x) #x
#define VALUE(x) TEXT(x)

// Offsets of the slot's fields; checked below.
#define CODE 0x6f000000
#define COMMON_SIZE 0x20000
#define SLOT 0x6f021000
#define STACK_TOP 0x6f026000
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
#define RCX "120"
#define R11 "128"
#define SITE "136"
#define TARGET "144"
#define PHASE "152"
#define WANT_STOP "156"
#define OTHERS_WAIT "160"
#define POLLS "468"
#define ASLEEP "472"

// Calls and their arguments.
#define OPEN 2
#define CLOSE 3
#define MMAP 9
#define READ_CLOSE_ON_EXEC 0x80000
#define WRITE_CLOSE_ON_EXEC 0x80002
#define READ_EXECUTE 5
#define SHARED_FIXED 0x100001
#define OPENED -2
#define CLOCK_FILE -3
#define SLOT_FILE -4
#define MOST_PATH 64

// Those of bits 0 to 31 that are not arithmetic flags and that differ from their usual values.
#define RARE_FLAGS 0xfffff528

// The result of execute() if it has not made the call; the kernel never returns it.
#define NOT_MADE -4096

static_assert(kCode == CODE && kCommonSize == COMMON_SIZE && kMostPath == MOST_PATH);
static_assert(kOpened == static_cast<uint64_t>(OPENED) && kClockFile == static_cast<uint64_t>(CLOCK_FILE) &&
              kSlotFile == static_cast<uint64_t>(SLOT_FILE));
static_assert(READ_CLOSE_ON_EXEC == (O_RDONLY | O_CLOEXEC) && WRITE_CLOSE_ON_EXEC == (O_RDWR | O_CLOEXEC));
static_assert(SHARED_FIXED == (MAP_SHARED | MAP_FIXED_NOREPLACE) && READ_EXECUTE == (PROT_READ | PROT_EXEC));
static_assert(kSlot == SLOT && kStack + kStackSize == STACK_TOP);
static_assert(sizeof(InjectedCall) == 56 && offsetof(InjectedCall, args) == 8);
static_assert(offsetof(Registers, rbx) == 56 && offsetof(Registers, rsp) == 104 && offsetof(Registers, r11) == 128);
static_assert(offsetof(Slot, site) == 136 && offsetof(Slot, target) == 144 && offsetof(Slot, phase) == 152);
static_assert(offsetof(Slot, want_stop) == 156 && offsetof(Slot, others_wait) == 160 && offsetof(Slot, asleep) == 472);
static_assert(offsetof(Slot, polls) == 468);

#define AT(field) VALUE(SLOT) "+" field

asm(R"(
  .section .header, "ax"
  .quad entry, leave, sleeps, executed, finished, boundary, inject, injected, cpuid, pausing, polling, load, load_opened, load_end, patience
  .text
# The trampoline has put where to continue into rcx, and the program's rcx into the slot if that counts.
.macro save
  mov %rsp, )" AT(RSP) R"(
  mov $)" VALUE(STACK_TOP) R"(, %esp
  pushfq
  popq )" AT(FLAGS) R"(
  cld
  mov %rax, )" AT(RAX) R"(
  mov %rdi, )" AT(RDI) R"(
  mov %rsi, )" AT(RSI) R"(
  mov %rdx, )" AT(RDX) R"(
  mov %r10, )" AT(R10) R"(
  mov %r11, )" AT(R11) R"(
  mov %r8, )" AT(R8) R"(
  mov %r9, )" AT(R9) R"(
  mov %rbx, )" AT(RBX) R"(
  mov %rbp, )" AT(RBP) R"(
  mov %r12, )" AT(R12) R"(
  mov %r13, )" AT(R13) R"(
  mov %r14, )" AT(R14) R"(
  mov %r15, )" AT(R15) R"(
  mov %rcx, )" AT(SITE) R"(
.endm

entry:
  save
  movl $1, )" AT(PHASE) R"(
  call serve
leave:
  mov )" AT(FLAGS) R"(, %rax
  test $)" VALUE(RARE_FLAGS) R"(, %eax
  jnz pop_flags
  # popfq takes as long as everything else here, so the overflow flag is made by an addition, the others by sahf
  mov %eax, %ecx
  shr $11, %ecx
  and $1, %ecx
  add $0x7f, %cl
  mov %al, %ah
  sahf
restore:
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
  mov )" AT(RCX) R"(, %rcx
  mov )" AT(R11) R"(, %r11
  mov )" AT(RSP) R"(, %rsp
  movl $0, )" AT(PHASE) R"(
  jmp *)" AT(TARGET) R"(

pop_flags:
  mov $)" VALUE(STACK_TOP) R"(, %esp
  pushq )" AT(FLAGS) R"(
  popfq
  jmp restore

# The tracer recognizes these stops by their address. The number is one that the kernel shows to filters. (seccomp(2) ignores
# 335 and 336, which are uprobe's, and the kernel kills programs that call them.)
# rdi: the result of the calls that were made for the tracer
stop:
  mov %rax, %rdi
report:
  mov $39, %eax
  syscall
boundary:
  ud2

.macro take_descriptor argument
  cmp $)" VALUE(OPENED) R"(, \argument
  cmove %r12, \argument
  cmp $)" VALUE(CLOCK_FILE) R"(, \argument
  cmove %r13, \argument
  cmp $)" VALUE(SLOT_FILE) R"(, \argument
  cmove %r14, \argument
.endm
inject:
  mov 0(%rbp), %rax
  mov 8(%rbp), %rdi
  mov 16(%rbp), %rsi
  mov 24(%rbp), %rdx
  mov 32(%rbp), %r10
  mov 40(%rbp), %r8
  mov 48(%rbp), %r9
  take_descriptor %rdi
  take_descriptor %r8
  cmp $)" VALUE(OPEN) R"(, %rax
  cmove %r15, %r10
  cmove %r15, %r8
  cmove %r15, %r9
  syscall
injected:
  cmp $-4095, %rax
  jae stop
  cmpq $)" VALUE(OPEN) R"(, 0(%rbp)
  cmove %rax, %r12
  add $56, %rbp
  cmp %rbx, %rbp
  jne inject
  jmp stop

# Runs at any address, followed by the paths: maps this code, and makes the calls from rbp to rbx. The filter lets its calls
# through because of r15. If one fails, it stops at a close.
load:
  lea load_end(%rip), %rdi
  mov $)" VALUE(READ_CLOSE_ON_EXEC) R"(, %esi
  lea 1f(%rip), %rdx
  jmp open
1:
  mov %rax, %r12
  lea load_end+)" VALUE(MOST_PATH) R"((%rip), %rdi
  mov $)" VALUE(WRITE_CLOSE_ON_EXEC) R"(, %esi
  lea 2f(%rip), %rdx
  jmp open
2:
  mov %rax, %r13
  lea load_end+2*)" VALUE(MOST_PATH) R"((%rip), %rdi
  lea 3f(%rip), %rdx
  jmp open
3:
  mov %rax, %r14
load_opened:
  mov $)" VALUE(CODE) R"(, %edi
  mov $)" VALUE(COMMON_SIZE) R"(, %esi
  mov $)" VALUE(READ_EXECUTE) R"(, %edx
  mov %r15, %r10
  shr $32, %r10
  shl $32, %r10
  or $)" VALUE(SHARED_FIXED) R"(, %r10
  mov %r12, %r8
  xor %r9d, %r9d
  mov $)" VALUE(MMAP) R"(, %eax
  syscall
  mov $inject, %edx
  cmp %rdi, %rax
  jne fail
  jmp *%rdx
# rdx: where to continue; open(2) does not use it.
open:
  mov %r15, %r10
  mov %r15, %r8
  mov %r15, %r9
  mov $)" VALUE(OPEN) R"(, %eax
  syscall
  test %rax, %rax
  js fail
  jmp *%rdx
fail:
  mov $-1, %rdi
  mov $)" VALUE(CLOSE) R"(, %eax
  syscall
  ud2
load_end:

# rdx: the stand-in for cpuid in the trampoline. This ends before anything else happens: whatever would stop it midway is
# held until it has ended.
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

# A thread comes to an instruction of a loop. This ends before anything else happens, too.
polling:
  movl $1, )" AT(POLLS) R"(
  jmp loop
pausing:
  movl $0, )" AT(POLLS) R"(
loop:
  movl $3, )" AT(PHASE) R"(
  save
  call serve_loop
  jmp leave

# rdi: the registers of the call; esi: the phase of the slot while the kernel is in it; rdx: 0, or the number of a call
# during which the supervisor may take the slot away. Such a call is not made if it should stop instead.
  .globl execute
execute:
  push %rbx
  mov %rdx, %rbx
  movl %esi, )" AT(PHASE) R"(
  mov 0(%rdi), %rax
  mov 16(%rdi), %rsi
  mov 24(%rdi), %rdx
  mov 32(%rdi), %r10
  mov 40(%rdi), %r8
  mov 48(%rdi), %r9
  mov 8(%rdi), %rdi
  test %rbx, %rbx
  jz enter
  mov %rbx, %rcx
  xchg %rcx, )" AT(ASLEEP) R"(
sleeps:
  cmpl $0, )" AT(OTHERS_WAIT) R"(
  jne stay
  cmpl $0, )" AT(WANT_STOP) R"(
  je enter
stay:
  mov %rax, %r11
  mov %rbx, %rax
  xor %ecx, %ecx
  lock cmpxchg %rcx, )" AT(ASLEEP) R"(
  mov %r11, %rax
  jne enter
  mov $)" VALUE(NOT_MADE) R"(, %rax
  pop %rbx
  ret
enter:
  syscall
executed:
  test %rbx, %rbx
  jz keep
  mov %rax, %rdi
  mov %rbx, %rax
  xor %ecx, %ecx
  lock cmpxchg %rcx, )" AT(ASLEEP) R"(
  jne report
  mov %rdi, %rax
keep:
  movl $3, )" AT(PHASE) R"(
finished:
  pop %rbx
  ret
)");

extern "C" int64_t execute(const Registers* regs, Phase during, uint64_t asleep = 0);
extern "C" const uint8_t report[];

constexpr uint64_t kHere = -100;                         // newfstatat(2): AT_FDCWD
constexpr uint64_t kMonotonicClock = 1, kRawClock = 4;   // clock_gettime(2): CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW
constexpr uint64_t kGetFlags = 3, kNonBlocking = 04000;  // fcntl(2): F_GETFL, O_NONBLOCK
constexpr uint16_t kRdtsc = 0x0b0f, kRdtscp = 0x0f66;    // the first bytes of what stands in for them (stand_in())
constexpr uint64_t kRdtscSize = 2, kRdtscpSize = 3;
constexpr uint64_t kDontWait = 0x40;  // recv(2): MSG_DONTWAIT
constexpr int64_t kRestarts = -512;   // ERESTARTSYS (linux/errno.h)

namespace {

Slot& slot() { return *reinterpret_cast<Slot*>(kSlot); }

// A string instruction takes the processor longer for short pieces, and most are short.
void copy(void* to, const void* from, uint64_t length) {
  constexpr uint64_t kWord = sizeof(uint64_t), kShort = 256;
  uint64_t words = length / kWord;
  length %= kWord;
  if (words > kShort / kWord) {
    asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
    words = 0;
  }
  auto* t = static_cast<uint8_t*>(to);
  const auto* f = static_cast<const uint8_t*>(from);
  for (; words; --words, t += kWord, f += kWord) __builtin_memcpy(t, f, kWord);
  for (; length; --length) *t++ = *f++;
}

// Writes a record at the ring's head, never past the ring's end.
struct Writer {
  uint8_t* next;
  uint8_t* end;
  uint32_t before = 0, after = 0;  // pieces
  uint64_t room = 0;               // for what the kernel may write

  bool add(uint64_t address, uint64_t length, uint32_t& pieces) {
    if (length > kRingSize || static_cast<uint64_t>(end - next) < sizeof(Piece) + padded(length)) return false;
    auto* piece = reinterpret_cast<Piece*>(next);
    piece->address = address;
    piece->length = length;
    copy(piece + 1, reinterpret_cast<const void*>(address), length);
    next += sizeof(Piece) + padded(length);
    ++pieces;
    return true;
  }
  bool add_before(uint64_t address, uint64_t length) { return add(address, length, before); }
  // The caller has made sure that there is room; not for what is empty.
  void add_after(uint64_t address, uint64_t length) {
    if (length) add(address, length, after);
  }
  bool need(uint64_t length) {
    if (length > kRingSize) return false;
    room += sizeof(Piece) + padded(length);
    return true;
  }
  bool has_room() const { return room <= static_cast<uint64_t>(end - next); }
};

// What a piece holds. What a call has found in memory is read there after it: it may have written over the array that
// says where its buffers are.
template <typename T>
const T* content(const Piece* piece) {
  return reinterpret_cast<const T*>(piece + 1);
}
const Piece* following(const Piece* piece) {
  return reinterpret_cast<const Piece*>(content<uint8_t>(piece) + padded(piece->length));
}

void add_written(Writer& writer, const iovec* vector, uint64_t count, uint64_t bytes) {
  for (uint64_t i = 0; i < count && bytes; ++i) {
    const uint64_t part = smaller(vector[i].iov_len, bytes);
    if (vector[i].iov_base) writer.add_after(reinterpret_cast<uint64_t>(vector[i].iov_base), part);
    bytes -= part;
  }
}

// Whether these control messages have brought descriptors (unix(7), SCM_RIGHTS). Memory of a process may be among them,
// as in what opens_kernel_file() finds. The supervisor looks what they are.
bool brings_descriptors(uint64_t control, uint64_t length) {
  constexpr uint64_t kAlignment = 7;
  while (length >= sizeof(cmsghdr)) {
    const auto& header = at<cmsghdr>(control);
    if (header.cmsg_level == SOL_SOCKET && header.cmsg_type == SCM_RIGHTS) return true;
    const uint64_t size = header.cmsg_len;
    if (size < sizeof(cmsghdr) || size >= length) return false;
    const uint64_t step = smaller((size + kAlignment) & ~kAlignment, length);
    control += step, length -= step;
  }
  return false;
}

// `before`: the header as the call found it, followed by its array of buffers, if it has one. Returns what follows
// them.
const Piece* add_received(Writer& writer, const Piece* before, const msghdr& now, uint64_t bytes) {
  const auto& header = *content<msghdr>(before);
  writer.add_after(reinterpret_cast<uint64_t>(header.msg_name), smaller(name_length(header), now.msg_namelen));
  const auto control = reinterpret_cast<uint64_t>(header.msg_control);
  const uint64_t control_size = smaller(control_length(header), now.msg_controllen);
  writer.add_after(control, control_size);
  slot().stops_behind |= brings_descriptors(control, control_size);
  const Piece* const vector = following(before);
  if (!header.msg_iov) return vector;
  add_written(writer, content<iovec>(vector), header.msg_iovlen, bytes);
  return following(vector);
}

// `before`: the span's own memory, `length` bytes, as the call found it, followed by what it points to.
void add_outputs(Writer& writer, const Span& span, const Registers& regs, const Piece* before, uint64_t length,
                 int64_t result) {
  const uint64_t address = argument(regs, span.arg);
  const uint64_t made = result < 0 ? 0 : static_cast<uint64_t>(result);
  switch (span.extent) {
    case Extent::result:
      return writer.add_after(address, smaller(length, made * span.value));
    case Extent::pointee:
    case Extent::option: {
      const uint64_t other = argument(regs, span.other);
      return writer.add_after(address, other ? smaller(length, at<uint32_t>(other) * unit(span, regs)) : 0);
    }
    case Extent::vector:
      return add_written(writer, content<iovec>(before), count(span, regs), made);
    case Extent::message:
      writer.add_after(address, length);
      add_received(writer, before, at<msghdr>(address), made);
      return;
    case Extent::messages: {
      writer.add_after(address, length);
      const auto* now = &at<mmsghdr>(address);
      before = following(before);
      for (uint64_t i = 0; i < made && !span.sent; ++i) {
        before = add_received(writer, before, now[i].msg_hdr, now[i].msg_len);
      }
      return;
    }
    default:
      return writer.add_after(address, length);
  }
}

// fstat(2). `during`: whether the served call can still be left to a stop.
bool file_status(uint64_t descriptor, struct stat& info, Phase during) {
  Registers regs{};
  regs.rax = kFstat, regs.rdi = descriptor, regs.rsi = reinterpret_cast<uint64_t>(&info);
  return execute(&regs, during) == 0;
}

// The status of what is at a path, relative to a directory.
bool path_status(uint64_t directory, uint64_t path, struct stat& info, Phase during) {
  Registers regs{};
  regs.rax = kFstatAt, regs.rdi = directory, regs.rsi = path, regs.rdx = reinterpret_cast<uint64_t>(&info);
  return execute(&regs, during) == 0;
}

// The mode of the file behind a descriptor; 0 if there is none.
uint32_t file_mode(uint64_t descriptor, Phase during) {
  struct stat info;
  return file_status(descriptor, info, during) ? info.st_mode : 0;
}

// The flags of an open file (fcntl(2), F_GETFL).
int64_t status_flags(uint64_t descriptor, Phase during) {
  Registers regs{};
  regs.rax = kFcntl, regs.rdi = descriptor, regs.rsi = kGetFlags;
  return execute(&regs, during);
}

// Whether a call that reads blocks (SyscallRow::reads_blocks) may have written more of its buffers than it says.
bool may_have_written_more(Slot& s, const Call& call, uint64_t capacity, int64_t result) {
  constexpr uint64_t kDirect = 040000;  // open(2): O_DIRECT
  const bool one_buffer = call.span[0].extent != Extent::vector;
  if (one_buffer ? !may_end_in_block(capacity, result) : result <= 0) return false;
  const uint64_t descriptor = argument(s.regs, 0);
  if (is_set(s.no_file, descriptor)) return false;
  if (!S_ISREG(file_mode(descriptor, Phase::after))) {
    if (is_set(s.known, descriptor)) set_bit(s.no_file, descriptor, true);
    return false;
  }
  const int64_t flags = status_flags(descriptor, Phase::after);
  return flags >= 0 && (flags & kDirect);
}

// Whether a read from or write to the descriptor does not sleep.
bool is_nonblocking(Slot& slot, uint64_t descriptor) {
  const int64_t flags = status_flags(descriptor, Phase::kernel);
  const bool at_once = flags >= 0 && ((flags & kNonBlocking) || S_ISREG(file_mode(descriptor, Phase::kernel)));
  slot.phase = Phase::before;
  return at_once;
}

// Whether opening the path, relative to a directory, does not sleep; opening FIFOs and devices may.
bool opens_at_once(Slot& slot, uint64_t directory, uint64_t path) {
  struct stat info;
  const bool found = path_status(directory, path, info, Phase::kernel);
  slot.phase = Phase::before;
  return !found || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
}

// The directory that argument `path` of a call is relative to, unless it is the working directory.
uint64_t directory_of(const Registers& regs, uint8_t path) { return path ? argument(regs, path - 1) : kHere; }

// Whether the call may change a file that somebody has mapped.
bool changes_watched_file(Slot& s, const Call& call) {
  constexpr uint64_t kTruncate = 01000;  // open(2): O_TRUNC
  const WatchedFiles& watched = *reinterpret_cast<const WatchedFiles*>(kWatched);
  if (!__atomic_load_n(&watched.any, __ATOMIC_ACQUIRE)) return false;
  const Registers& regs = s.regs;
  if (call.truncate_flags != kNoArg && !(argument(regs, call.truncate_flags) & kTruncate)) return false;
  struct stat info;
  const uint64_t named = argument(regs, call.changed);
  if (!call.changes_path && is_set(s.no_file, named)) return false;
  const bool found = call.changes_path ? path_status(directory_of(regs, call.changed), named, info, Phase::kernel)
                                       : file_status(named, info, Phase::kernel);
  s.phase = Phase::before;
  if (!found) return false;
  if (!S_ISREG(info.st_mode)) {
    if (!call.changes_path && is_set(s.known, named)) set_bit(s.no_file, named, true);
    return false;
  }
  const uint64_t bit = watched_bit(info.st_ino);
  return __atomic_load_n(&watched.bits[bit / 64], __ATOMIC_ACQUIRE) >> bit % 64 & 1;
}

bool begins(const char* text, const char* with) {
  while (*with && *text == *with) ++text, ++with;
  return !*with;
}
bool equals(const char* text, const char* other) { return begins(text, other) && begins(other, text); }
bool ends(const char* text, const char* with) {
  const char* rest = with;
  for (; *text; ++text) rest = *text == *rest ? rest + 1 : *text == *with ? with + 1 : with;
  return !*rest;
}

// Whether the call opens a file of the kernel's that the supervisor must see: the memory of a process
// (proc_pid_mem(5)), because something may be written to it, and files that shall show the program something other than
// the kernel's contents.
bool opens_kernel_file(const Call& call, const Registers& regs) {
  if (call.makes != NewDescriptor::file) return false;
  const char* const path = &at<char>(argument(regs, call.span[0].arg));
  if (begins(path, "/sys/devices/system/cpu/")) return true;
  if (equals(path, "/proc/stat") || equals(path, "/proc/cpuinfo")) return true;
  return begins(path, "/proc/") && (ends(path, "/mem") || ends(path, "/status"));
}

// Whether the call would not sleep, as far as this is known beforehand. `tried`: it must be tried without its timeout.
bool returns_at_once(Slot& slot, const Call& call, bool& tried) {
  const Registers& regs = slot.regs;
  if (call.flags != kNoArg && (argument(regs, call.flags) & kDontWait)) return true;
  if (call.descriptor != kNoArg) return is_nonblocking(slot, argument(regs, call.descriptor));
  if (call.makes == NewDescriptor::file) {
    const uint8_t path = call.span[0].arg;
    return opens_at_once(slot, directory_of(regs, path), argument(regs, path));
  }
  if (call.word != kNoArg &&
      at<uint32_t>(argument(regs, call.word)) == static_cast<uint32_t>(argument(regs, call.expected))) {
    return false;
  }
  if (call.timeout == kNoArg) return call.yields && !slot.others_wait;
  const uint64_t timeout = argument(regs, call.timeout);
  tried = call.timeout_at || timeout != 0;
  if (!call.timeout_at || !timeout) return true;
  // A timeout that the kernel would refuse is left to the kernel.
  constexpr int64_t kSecond = 1'000'000'000;
  const auto* time = &at<int64_t>(timeout);
  return time[0] >= 0 && time[1] >= 0 && time[1] < kSecond;
}

// ---- The table of descriptors
//
// A descriptor is known if the supervisor has set its bit, or if the code here saw it made: as a file (fstat(2)), as
// something that carries no messages, as a copy of a known one, as a pipe, or as one end of a TCP connection. The
// record then says which pipe or connection it is.

// Whether the call would close a descriptor that there is none of, as programs do that close all that there might be.
// It is answered without the kernel: another thread may be given that number at any time.
bool closes_nothing(Slot& s, const Call& call) {
  if (call.closes == kNoArg || call.makes != NewDescriptor::none) return false;
  const bool nothing = status_flags(argument(s.regs, call.closes), Phase::kernel) == -EBADF;
  s.phase = Phase::before;
  return nothing && !s.want_stop;
}

bool may_lose(const Slot& s, uint64_t descriptor) { return is_set(s.known, descriptor) || is_set(s.fresh, descriptor); }

int64_t ask(uint64_t number, uint64_t a, uint64_t b, void* c, void* d = nullptr, uint64_t e = 0) {
  Registers regs{};
  regs.rax = number, regs.rdi = a, regs.rsi = b;
  regs.rdx = reinterpret_cast<uint64_t>(c), regs.r10 = reinterpret_cast<uint64_t>(d), regs.r8 = e;
  return execute(&regs, Phase::after);
}

int64_t option(uint64_t descriptor, uint64_t name, void* value, uint32_t size) {
  return ask(kGetsockopt, descriptor, SOL_SOCKET, reinterpret_cast<void*>(name), value,
             reinterpret_cast<uint64_t>(&size));
}

bool describe_file(Described& d, uint64_t descriptor) {
  struct stat info;
  if (!file_status(descriptor, info, Phase::after)) return false;
  d.device = info.st_dev;
  d.inode = info.st_ino;
  return true;
}

// False if it is not a TCP connection, or not one yet.
bool describe_connection(Described& d, uint64_t descriptor) {
  uint32_t type = 0;
  uint32_t local_size = sizeof d.local, peer_size = sizeof d.peer;
  const auto address = [&](uint64_t number, uint8_t* to, uint32_t& size) {
    return ask(number, descriptor, reinterpret_cast<uint64_t>(to), &size) == 0 && size <= sizeof d.local;
  };
  if (option(descriptor, SO_TYPE, &type, sizeof type) != 0 || type != SOCK_STREAM ||
      !address(kGetsockname, d.local, local_size) || !address(kGetpeername, d.peer, peer_size)) {
    return false;
  }
  const auto family = at<uint16_t>(reinterpret_cast<uint64_t>(d.local));
  if (family != AF_INET && family != AF_INET6) return false;
  d.network = 0;
  option(descriptor, SO_NETNS_COOKIE, &d.network, sizeof d.network);
  return describe_file(d, descriptor);
}

// Whether this may be the memory of a process, opened by a name by which opens_kernel_file() does not know it. The
// supervisor then looks what it is.
bool may_be_memory(const struct stat& info) {
  constexpr uint64_t kBlock = 1024;  // of procfs (proc_fill_super(), fs/proc/root.c)
  return info.st_mode == (S_IFREG | S_IRUSR | S_IWUSR) && info.st_blksize == kBlock;
}

// The call has made a descriptor, or has connected one. True if a description must be added to its record.
bool note_descriptor(Slot& s, const Call& call, Record& record, bool copied_is_known, uint64_t result) {
  const Registers& regs = s.regs;
  const uint64_t descriptor = call.makes == NewDescriptor::connected ? regs.rdi : result;
  switch (call.makes) {
    case NewDescriptor::none:
    case NewDescriptor::pair:
      return false;
    case NewDescriptor::socket: {
      const uint64_t type = regs.rsi & ~(uint64_t{SOCK_NONBLOCK} | SOCK_CLOEXEC);
      const bool internet = regs.rdi == AF_INET || regs.rdi == AF_INET6;
      record.no_channel = !internet && regs.rdi != AF_UNIX;
      set_bit(s.fresh, descriptor, type == SOCK_STREAM && (internet || regs.rdi == AF_UNIX));
      break;
    }
    case NewDescriptor::accepted:
    case NewDescriptor::connected:
      set_bit(s.fresh, descriptor, false);
      if (is_set(s.known, descriptor) || !describe_connection(s.described, descriptor)) return false;
      set_known(s, descriptor, true);
      return true;
    case NewDescriptor::pipe:
      if (!describe_file(s.described, at<uint32_t>(regs.rdi))) return false;
      for (uint64_t i = 0; i < 2; ++i) set_known(s, at<uint32_t>(regs.rdi + i * sizeof(uint32_t)), true);
      return true;
    case NewDescriptor::file: {
      struct stat info;
      const bool found = file_status(descriptor, info, Phase::after);
      record.no_channel = found && !may_be_channel(info.st_mode);
      s.stops_behind |= found && may_be_memory(info);
      break;
    }
    case NewDescriptor::no_channel:
      record.no_channel = 1;
      break;
    case NewDescriptor::copy:
      set_known(s, descriptor, copied_is_known);
      set_bit(s.fresh, regs.rdi, false);  // what one of them is connected to, the other one is too
      return false;
  }
  if (record.no_channel) set_known(s, descriptor, true);
  return false;
}

// ---- Memory
//
// Calls are served that change only the program's own private memory. Of anonymous memory nothing has to be known. A
// file's version must be one of which the trace has a copy (KnownFiles): its first mapping stops. Its code is patched
// after the call, at one stop; most libraries have none to patch. Calls that name the tier's memory or shared memory
// stop.

// The place in the list of the version of the file behind the descriptor; kKnownFiles if the trace does not hold it.
uint32_t known_file(Slot& s, uint64_t descriptor) {
  struct stat info;
  const bool found = file_status(descriptor, info, Phase::kernel);
  s.phase = Phase::before;
  if (!found) return kKnownFiles;
  const auto ns = [](const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; };
  const auto* const known = at<KnownFiles>(kFiles).file;
  const auto size = static_cast<uint64_t>(info.st_size);
  const int64_t modified = ns(info.st_mtim), changed = ns(info.st_ctim);
  for (uint32_t place = place_of(info.st_ino, size, modified);; place = (place + 1) % kKnownFiles) {
    const KnownFile& file = known[place];
    if (!__atomic_load_n(&file.held, __ATOMIC_ACQUIRE)) return kKnownFiles;
    if (file.inode == info.st_ino && file.device == info.st_dev && file.size == size && file.modified_ns == modified &&
        file.changed_ns == changed) {
      return place;
    }
  }
}

// Whether the call maps a file of which only its identity needs to be known: `file`, as in a record.
bool maps_known_file(Slot& s, uint16_t& file) {
  constexpr uint64_t kFlags = MAP_PRIVATE | MAP_FIXED | MAP_DENYWRITE | MAP_NORESERVE | MAP_POPULATE;
  const Registers& regs = s.regs;
  if ((regs.r10 & ~kFlags) || (regs.r10 & MAP_TYPE) != MAP_PRIVATE || !is_set(s.known, regs.r8)) return false;
  const uint32_t place = known_file(s, regs.r8);
  if (place == kKnownFiles || s.want_stop) return false;
  if (regs.rdx & PROT_EXEC) {
    const MappedCode code = __atomic_load_n(&at<KnownFiles>(kFiles).file[place].code, __ATOMIC_ACQUIRE);
    if (code == MappedCode::unknown) return false;
    s.stops_behind = code == MappedCode::replaced;
  }
  file = static_cast<uint16_t>(place + 1);
  return true;
}

// Whether the call only changes memory of the program alone, of which nothing needs to be known except the file that is
// mapped there.
bool is_private_change(Slot& s, const Call& call, uint16_t& file) {
  const Registers& regs = s.regs;
  if (makes_writable_code(regs.rax, regs.rdx)) return false;
  switch (call.memory) {
    case MemoryChange::none:
    case MemoryChange::breaks:
      return true;
    case MemoryChange::maps: {
      constexpr uint64_t kKind = MAP_TYPE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
      if ((regs.r10 & kKind) != (MAP_PRIVATE | MAP_ANONYMOUS) && !maps_known_file(s, file)) return false;
      if (!(regs.r10 & MAP_FIXED)) return true;
      break;
    }
    case MemoryChange::range:
      break;
  }
  const uint64_t start = regs.rdi, end = start + regs.rsi;
  const auto overlaps = [&](uint64_t first, uint64_t last) { return start < last && first < end; };
  if (end < start || s.areas > kAreas || overlaps(kCode, kEnd)) return false;
  for (uint32_t i = 0; i < s.areas; ++i) {
    if (overlaps(s.area[i].start, s.area[i].end)) return false;
  }
  return true;
}

// ---- Records

// The record of an unsuccessful test that the next record follows; null if there is none.
Record* last_test(const Slot& s) {
  return s.series == 0 || s.series > s.head ? nullptr : reinterpret_cast<Record*>(kRing + s.head - s.series);
}
Record* before(const Record* test) { return reinterpret_cast<Record*>(reinterpret_cast<uint64_t>(test) - test->back); }

// Whether both say the same. Registers that calls change may differ.
bool same(const Record& a, const Record& b) {
  if (a.size != b.size || a.site != b.site || a.before != b.before || a.after != b.after) return false;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&a);
  const auto* const others = reinterpret_cast<const uint8_t*>(&b);
  const auto same_words = [&](uint64_t from, uint64_t to) {
    for (uint64_t at = from, word, other; at != to; at += sizeof word) {
      __builtin_memcpy(&word, bytes + at, sizeof word);
      __builtin_memcpy(&other, others + at, sizeof other);
      if (word != other) return false;
    }
    return true;
  };
  return same_words(offsetof(Record, thread), offsetof(Record, regs) + offsetof(Registers, flags)) &&
         same_words(offsetof(Record, fs_base), offsetof(Record, before)) && same_words(sizeof a, a.size);
}

// Whether the record at the ring's head says the same as the one before it, or as the record whose turn it is in the
// cycle that the one before it ends. If so, counts that record up. A cycle has up to kLongestCycle records, all of
// single tests. A record that the supervisor has read (kTaken) is not counted up. UnitLog joins the parts of a series
// that is interrupted in this way, wherever in the cycle they begin.
bool continues_series(const Slot& s, const Record& record) {
  Record* const last = last_test(s);
  if (!last) return false;
  uint32_t count = last->repeat;
  if (count & kTaken) return false;
  const Record* again = last;
  if (count > 1) {
    for (uint32_t turn = (count - 1) % last->cycle; turn < last->cycle - 1; ++turn) again = before(again);
    if (!same(*again, record)) return false;
  } else {
    uint32_t cycle = 1;
    for (; !same(*again, record); ++cycle) {
      if (cycle == kLongestCycle || !again->back) return false;
      again = before(again);
      if (again->repeat != 1) return false;
    }
    last->cycle = cycle;
  }
  // The supervisor may read it at any moment, and marks it then.
  return __atomic_compare_exchange_n(&last->repeat, &count, count + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

uint64_t take_stamp() {
  uint64_t stamp = 1;
  asm volatile("lock xaddq %0, %1" : "+r"(stamp), "+m"(reinterpret_cast<Clock*>(kClock)->now) : : "memory", "cc");
  return stamp + 1;
}

uint64_t read_clock(uint64_t clock, Phase during) {
  struct {
    uint64_t s, ns;
  } time;
  Registers regs{};
  regs.rax = kClockGettime, regs.rdi = clock, regs.rsi = reinterpret_cast<uint64_t>(&time);
  execute(&regs, during);
  return time.s * 1'000'000'000 + time.ns;
}

// The call that can wait for less than a millisecond in place of this one, with a timespec; 0 if there is none.
uint64_t finer_call(uint64_t number) {
  constexpr uint64_t kPoll = 7, kSelect = 23, kEpollWait = 232, kPselect = 270, kPpoll = 271, kEpollPwait = 281,
                     kEpollPwait2 = 441;
  switch (number) {
    case kPoll:
    case kPpoll:
      return kPpoll;
    case kEpollWait:
    case kEpollPwait:
    case kEpollPwait2:
      return kEpollPwait2;
    case kSelect:
    case kPselect:
      return kPselect;
    default:
      return 0;
  }
}

// Whether the call only looks whether something is ready: it has a timeout, which is zero.
bool only_looks(const Call& call, const Registers& regs) {
  if (!call.test || call.timeout == kNoArg) return false;
  const uint64_t timeout = argument(regs, call.timeout);
  if (!call.timeout_at) return timeout == 0;
  return timeout && !(&at<uint64_t>(timeout))[0] && !(&at<uint64_t>(timeout))[1];
}

// How long such a call waits for something to become ready: not at all, until its thread has done nothing but test in
// vain for a while. Each test costs a record and the recorder's time, which threads that have work need. The wait is
// short, because a program may count its tests. If a signal or the recorder ends it, the call is made anew. A replay
// knows nothing of it.
uint64_t patience_ns(Slot& s) {
  constexpr uint64_t kTests = 16;  // between two looks at the clock
  constexpr uint64_t kLongestRound = 10'000, kInVain = 200'000, kWait = 20'000;
  if (++s.tests % kTests && !s.waits) return 0;
  const uint64_t now = read_clock(kMonotonicClock, Phase::before);
  const uint64_t rounds = s.waits ? 1 : kTests;
  if (s.tests <= kTests || now - s.tested_at_ns > rounds * kLongestRound) s.tests_since_ns = now;
  s.tested_at_ns = now;
  s.waits = now - s.tests_since_ns >= kInVain;
  return s.waits ? kWait : 0;
}

// Spinning threads test whatever they wait for, perhaps in several places, or make one call again and again. They may
// look at the time meanwhile.
void note_spin(Slot& s, const Call& call, int64_t result) {
  const bool in_vain = result <= 0 && (call.test || s.spin_site == s.site);
  if (in_vain) {
    ++s.spins;
  } else if (!call.tells_time) {
    s.spins = 0;
  }
  s.spin_site = s.site;
}

// Notes in the record when the call was made, if it is its turn, and then the stamp. `during`: whether the call can
// still be left to a stop.
void stamp(Slot& s, Record& record, Phase during) {
  const bool notes =
      ++s.unnoted >= __atomic_load_n(&reinterpret_cast<const Orders*>(kOrders)->notes_every, __ATOMIC_RELAXED);
  if (notes) s.unnoted = 0;
  record.time_ns = notes ? read_clock(kMonotonicClock, during) : 0;
  record.stamp = take_stamp();
}

// The kernel and the supervisor see what was written before this before what is written after it.
void barrier() { asm volatile("" : : : "memory"); }

// Executes the call whose registers are in the slot, and adds its record to the ring. False if the call must stop; then
// nothing has happened that the program could see.
bool serve_call(Slot& s) {
  const Registers& regs = s.regs;
  s.traps = 0;
  if (s.want_stop || (s.others_wait && s.spins >= kMostSpins)) return false;
  const Call* const found = call_of(regs);
  if (!found) return false;
  const Call& call = *found;
  if (call.wakes && s.stop_at_wake) return false;
  if (s.restricted[regs.rax / 64] >> regs.rax % 64 & 1) return false;
  if (call.clear != kNoArg && argument(regs, call.clear) >> call.clear_from) return false;
  int64_t answer = -call.refusal;  // 0: the kernel's
  if (call.loses != kNoArg && !may_lose(s, argument(regs, call.loses))) {
    if (!closes_nothing(s, call)) return false;
    answer = -EBADF;
  }
  if (call.changes_file && (changes_watched_file(s, call) || s.want_stop)) return false;
  uint16_t file = 0;
  if (!is_private_change(s, call, file) || opens_kernel_file(call, regs)) return false;
  bool tried = false;
  const bool may_sleep = call.serve == Serve::sleeps;
  const bool sleeps = may_sleep && !s.others_wait;
  s.sleeps += may_sleep;
  if (may_sleep && !sleeps && (!returns_at_once(s, call, tried) || s.want_stop)) return false;

  uint8_t* const ring = reinterpret_cast<uint8_t*>(kRing);
  if (kRingSize - s.head < sizeof(Record)) return false;
  auto* record = reinterpret_cast<Record*>(ring + s.head);
  Writer writer{reinterpret_cast<uint8_t*>(record + 1), ring + kRingSize};
  uint64_t lengths[kMaxSpans];
  Piece* pieces[kMaxSpans];
  for (int i = 0; i < call.spans; ++i) {
    const Span& span = call.span[i];
    const uint64_t address = argument(regs, span.arg);
    pieces[i] = reinterpret_cast<Piece*>(writer.next);
    lengths[i] = address ? capacity(span, regs) : 0;
    if (!address) continue;
    if (span.after && !writer.need(lengths[i])) return false;
    // For arrays of messages, the whole: what the kernel found there is needed later.
    if (span.extent == Extent::messages && !writer.add_before(address, lengths[i])) return false;
    // What the call writes even if it fails must be undone if a signal ends it, because it is then left to a stop.
    const bool undone = span.after && !span.before && span.extent == Extent::fixed && span.written != Written::success;
    if (undone && !writer.add_before(address, lengths[i])) return false;
    const auto reads = [&](uint64_t from, uint64_t length, bool) { return writer.add_before(from, length); };
    const auto writes = [&](uint64_t, uint64_t length) { return writer.need(length); };
    if (!visit_memory(span, regs, lengths[i], reads, writes)) return false;
  }
  if (call.makes >= NewDescriptor::accepted) writer.need(sizeof(Described));
  if (!writer.has_room()) return false;

  record->before = writer.before;
  record->after = 0;
  record->repeat = 1;
  record->counter = record->no_channel = 0;
  record->file = file & 0x7fff;
  record->behind = s.stops_behind & 1;
  record->thread = s.thread;
  record->site = s.site;
  record->regs = regs;
  asm volatile("rdfsbase %0" : "=r"(record->fs_base));
  asm volatile("rdgsbase %0" : "=r"(record->gs_base));
  if (call.send) {
    record->size = static_cast<uint32_t>(writer.next - reinterpret_cast<uint8_t*>(record));
    stamp(s, *record, Phase::before);
    barrier();
    s.pending = s.head + 1;
    barrier();
  }
  Registers changed;
  const Registers* made_with = &regs;
  if (tried) {
    changed = regs;
    made_with = &changed;
    s.timeout[0] = s.timeout[1] = 0;
    set_argument(changed, call.timeout, call.timeout_at ? reinterpret_cast<uint64_t>(s.timeout) : 0);
  }
  const uint64_t finer = sleeps && only_looks(call, regs) ? finer_call(regs.rax) : 0;
  const bool may_wait = finer && !(s.restricted[finer / 64] >> finer % 64 & 1);
  const uint64_t waits_ns = may_wait ? patience_ns(s) : 0;
  if (waits_ns) {
    s.timeout[0] = 0, s.timeout[1] = waits_ns;
    changed = regs;
    made_with = &changed;
    changed.rax = finer;
    set_argument(changed, call.timeout, reinterpret_cast<uint64_t>(s.timeout));
    set_argument(changed, call.timeout + 1, 0);  // no signal mask
  }
  if (call.closes != kNoArg) {
    set_known(s, argument(regs, call.closes), false);
    set_bit(s.fresh, argument(regs, call.closes), false);
  }
  const bool copied_is_known = is_set(s.known, argument(regs, 0));
  s.making = s.head + 1;
  if (answer) s.phase = Phase::after;
  const uint64_t sleep = sleeps && !waits_ns ? s.sleeps : 0;  // so short a wait is no sleep
  int64_t result = answer ? answer : execute(made_with, Phase::kernel, sleep);
  // The kernel, or a filter from outside, may not know that call.
  if (waits_ns && result < 0) result = execute(&regs, Phase::kernel, 0);
  // What has ended recvmmsg(2) is left to the next call on the socket. The kernel does not enter that again, because
  // nothing has woken the thread.
  if (result == kRestarts) result = execute(made_with, Phase::kernel, sleep);
  if (sleep && result == NOT_MADE) {
    s.phase = Phase::before;
    s.pending = 0;
    return false;
  }
  if (result > 0) s.tests = s.waits = 0;
  if (waits_ns) s.tested_at_ns = read_clock(kMonotonicClock, Phase::after);
  if (tried && result == call.timed_out) {
    // The call would sleep, so what the kernel has written is undone. Its own timeout, which may lie in memory that
    // cannot be written to, the kernel has not seen.
    for (int i = 0; i < call.spans; ++i) {
      const Span& span = call.span[i];
      if (!span.before || !span.after || !argument(regs, span.arg) || span.arg == call.timeout) continue;
      if (is_written(span.written, result))
        copy(reinterpret_cast<void*>(pieces[i]->address), pieces[i] + 1, lengths[i]);
    }
    return false;
  }

  record->result = result;
  barrier();  // the supervisor needs it if memory cannot be read from here on
  for (int i = 0; i < call.spans; ++i) {
    const Span& span = call.span[i];
    if (!span.after || !argument(regs, span.arg) || !is_written(span.written, result)) continue;
    add_outputs(writer, span, regs, pieces[i], lengths[i], result);
  }
  const bool made = result >= 0 || (call.makes == NewDescriptor::connected && result == -EINPROGRESS);
  if (made && note_descriptor(s, call, *record, copied_is_known, static_cast<uint64_t>(result))) {
    writer.add_after(kDescribed, sizeof(Described));
  }
  const bool wrote_more = call.reads_blocks && may_have_written_more(s, call, lengths[0], result);
  if (wrote_more) record->behind = 1;
  record->size = static_cast<uint32_t>(writer.next - reinterpret_cast<uint8_t*>(record));
  barrier();
  record->after = writer.after;
  s.regs.rax = static_cast<uint64_t>(result);
  note_spin(s, call, result);
  // The kernel may have written a part of what it could not write, or changed a part of the memory. The supervisor looks
  // what is there.
  const bool in_part = result == -EFAULT;
  const bool changed_in_part = call.memory == MemoryChange::range && result < 0;
  s.stops_behind |= in_part || changed_in_part || wrote_more;
  const bool unsuccessful = call.test && result <= 0 && !in_part;
  if (unsuccessful && continues_series(s, *record)) return true;
  if (!call.send) stamp(s, *record, Phase::after);
  const Record* const test = unsuccessful ? last_test(s) : nullptr;
  record->cycle = 1;
  record->back = test && test->thread == record->thread ? static_cast<uint32_t>(s.series) : 0;
  s.series = unsuccessful ? record->size : 0;
  barrier();
  s.last = s.head;
  s.head += record->size;
  barrier();
  s.pending = 0;
  return true;
}

// Whether an rdtsc or cpuid must stop. A thread may execute them again and again, and make no call.
bool trap_stops(Slot& s) {
  if ((s.want_stop & kServeNothing) || kRingSize - s.head < sizeof(Record)) return true;
  return (s.want_stop || s.others_wait) && ++s.traps >= kMostTraps;
}

// Executes rdtsc or rdtscp, of `size` bytes, as the recorder does when they stop. False if it must stop.
bool serve_counter(Slot& s, uint64_t size) {
  if (trap_stops(s)) return false;
  auto& record = *reinterpret_cast<Record*>(kRing + s.head);
  const uint64_t now = counter_at(at<Orders>(kOrders).counter, read_clock(kRawClock, Phase::before));
  record.size = sizeof record;
  record.repeat = 1;
  record.thread = s.thread;
  record.counter = 1;
  record.no_channel = 0;
  record.file = 0;
  record.site = s.site;
  record.regs = s.regs;
  record.fs_base = record.gs_base = 0;
  record.result = static_cast<int64_t>(now);
  record.before = record.after = 0;
  record.cycle = 1;
  record.back = 0;
  stamp(s, record, Phase::before);
  s.regs.rax = static_cast<uint32_t>(now);
  s.regs.rdx = now >> 32;
  if (size == kRdtscpSize) s.regs.rcx = 0;
  s.series = 0;
  s.target = s.site + size;
  barrier();
  s.last = s.head;
  s.head += record.size;
  return true;
}

// The same in replay.
bool replay_counter(Slot& s, uint64_t size) {
  const uint64_t* const made = counter_answer(s);
  if (!made) return false;
  s.regs.rax = made[0], s.regs.rbx = made[1], s.regs.rcx = made[2], s.regs.rdx = made[3];
  s.target = s.site + size;
  return true;
}

// Whether the thread, which has come to an instruction of a loop, stops right before it. It waits for another thread,
// which needs the baton, so it stops if others wait for that.
bool stops_in_loop(Slot& s) {
  constexpr uint64_t kTimesPolled = 1024;  // it may compute, after all
  if (s.replay) return s.awaited_loop == s.site && s.loops_left && --s.loops_left == 0;
  if (s.uncounted) return false;
  uint32_t known = 0;
  while (known < s.loops && s.loop[known].site != s.site) ++known;
  if (known == s.loops) {
    if (known == kLoops) return false;
    s.loop[s.loops++] = {s.site, 0, 0, 0};
  }
  auto& loop = s.loop[known];
  ++loop.times;
  uint64_t in_vain = loop.times;
  if (s.polls) {
    const uint64_t before = loop.hash;
    loop.hash = hash_of(s.regs);
    in_vain = loop.unchanged = loop.hash == before ? loop.unchanged + 1 : 0;
  }
  const uint64_t patience = s.polls && s.loop_patience < kTimesPolled ? kTimesPolled : s.loop_patience;
  if (!s.others_wait || (s.want_stop & kServeNothing) || in_vain < patience) return false;
  s.looped = loop.times;
  return true;
}

}  // namespace

// Decides where the thread continues: after a served call, at the supervisor's stop there, or at the call itself.
extern "C" void serve() {
  Slot& s = slot();
  s.target = s.site;
  forget_loops(s);
  const auto code = at<uint16_t>(s.site);
  if (code == kRdtsc || code == kRdtscp) {
    const uint64_t size = code == kRdtsc ? kRdtscSize : kRdtscpSize;
    s.replay ? replay_counter(s, size) : serve_counter(s, size);
    return;
  }
  s.stops_behind = 0;
  if (!(s.replay ? answer(s) : serve_call(s))) return;
  constexpr uint64_t kSyscallSize = 2;
  s.regs.r11 = s.regs.flags;
  s.target = s.want_stop || s.stops_behind ? reinterpret_cast<uint64_t>(report) : s.site + kSyscallSize;
}

// Decides where the thread continues: at the moved instructions, or at the supervisor's stop.
extern "C" void serve_loop() {
  Slot& s = slot();
  s.target = stops_in_loop(s) ? reinterpret_cast<uint64_t>(report) : s.site;
}

// In the order in which the calling code has pushed them.
struct CpuidRegisters {
  uint64_t rax, rbx, rcx, rdx;
};

// Answers cpuid if the supervisor has answered the same before. Otherwise the thread continues at the stand-in, and
// stops.
extern "C" void answer_cpuid(CpuidRegisters* regs) {
  Slot& s = slot();
  s.site = regs->rdx;
  constexpr uint64_t kInstructionSize = 2;
  if (s.replay) {
    if (const uint64_t* made = cpuid_answer(s, regs->rax, regs->rcx)) {
      *regs = {made[0], made[1], made[2], made[3]};
      s.site += kInstructionSize;
    }
    return;
  }
  forget_loops(s);
  if (trap_stops(s)) return;
  const auto leaf = static_cast<uint32_t>(regs->rax);
  const uint32_t subleaf = has_subleaves(leaf) ? static_cast<uint32_t>(regs->rcx) : 0;
  const auto& known = reinterpret_cast<const Orders*>(kOrders)->cpuid;
  const CpuidAnswer* const end = known.answers + known.count;
  const CpuidAnswer* answer = known.answers;
  while (answer != end && (answer->leaf != leaf || answer->subleaf != subleaf)) ++answer;
  if (answer == end) return;
  auto* record = reinterpret_cast<Record*>(reinterpret_cast<uint8_t*>(kRing) + s.head);
  *record = Record{};
  record->size = sizeof *record;
  record->repeat = record->cycle = 1;
  record->thread = s.thread;
  record->site = s.site;
  record->regs.rax = kCpuidNumber;
  record->regs.rdi = regs->rax;
  record->regs.rsi = regs->rcx;
  record->stamp = take_stamp();  // its caller's registers are not in the slot: it makes no calls
  regs->rax = answer->eax;
  regs->rbx = answer->ebx;
  regs->rcx = answer->ecx;
  regs->rdx = answer->edx;
  s.site += kInstructionSize;
  s.series = 0;
  barrier();
  s.last = s.head;
  s.head += record->size;
}
