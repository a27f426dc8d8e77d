// What the supervisor and the code inside tracees share: where the code lies, the table of calls that it serves, and
// the slot of an address space, with the ring of records that it writes.
//
// One thread of a unit runs user code at a time, so an address space needs one slot only. It may run on another
// processor than the supervisor, which looks at the slot meanwhile: the order in which the code writes there counts,
// and x86 keeps it (Intel SDM volume 3, "Memory Ordering").
#pragma once

#include <cstddef>
#include <cstdint>

#include "interceptors/counter.h"
#include "interceptors/memory_change.h"
#include "interceptors/new_descriptor.h"
#include "interceptors/written.h"

namespace redrive::gate {

// Fixed, so that a seccomp filter can tell the code's own syscalls from others by their address. Below 2 GiB, so that
// the code can address all of it absolutely.
inline constexpr uint64_t kCode = 0x6f000000;
inline constexpr uint64_t kCodeSize = 0x8000;
inline constexpr uint64_t kTable = kCode + kCodeSize;  // Table
inline constexpr uint64_t kTableSize = 0x10000;
inline constexpr uint64_t kFiles = kTable + kTableSize;  // KnownFiles
inline constexpr uint64_t kFilesSize = 0x6000;
inline constexpr uint64_t kWatched = kFiles + kFilesSize;  // WatchedFiles
inline constexpr uint64_t kWatchedSize = 0x1000;
inline constexpr uint64_t kClock = kWatched + kWatchedSize;  // Clock, the same page in all address spaces
inline constexpr uint64_t kClockSize = 0x1000;
inline constexpr uint64_t kCommonSize = kClock - kCode;  // what is mapped together, read only
inline constexpr uint64_t kSlot = kCode + 0x20000;
static_assert(kClock + kClockSize <= kSlot);
inline constexpr uint64_t kStackSize = 0x4000;
inline constexpr uint64_t kRingSize = 0x100000;

inline constexpr uint32_t kCalls = 470;
inline constexpr uint32_t kCallWords = (kCalls + 63) / 64;  // of bits, one for each
inline constexpr uint32_t kCommands = 96;                   // of multiplexers, that are served
inline constexpr uint32_t kMaxSpans = 6;
inline constexpr uint32_t kAreas = 16;
inline constexpr uint32_t kDescriptors = 4096;  // higher ones are closed with a stop

// How long the memory is that a call reads or writes at one of its arguments (ExtentKind in syscall_table.h).
enum class Extent : uint8_t {
  fixed,     // `value` bytes
  arg,       // argument `other`, divided by `divisor` and rounded up, times `value`
  result,    // result times `value`, at most argument `other` times `value`
  pointee,   // *(u32*)argument `other`, the smaller of before and after
  path,      // NUL-terminated
  vector,    // iovec array with `value` elements, or argument `other` if that is 0, and its buffers
  message,   // msghdr, and what it points to
  messages,  // mmsghdr array with argument `other` elements, and what they point to
};
struct Span {
  uint8_t arg = 0;
  Extent extent = Extent::fixed;
  Written written = Written::success;
  bool before : 1 = false;   // read by the kernel
  bool after : 1 = false;    // written by it
  bool sent : 1 = false;     // vectors and messages: read by it are the buffers that they point to, not written
  bool payload : 1 = false;  // travels through the channel; of vectors and messages, the buffers do
  uint8_t other = 0;
  uint16_t divisor = 1;
  uint32_t value = 0;
};

enum class Serve : uint8_t {
  never,   // stops
  always,  // never sleeps
  sleeps,  // may sleep; not while another thread of the unit could run
};

inline constexpr uint8_t kNoArg = 0xff;

struct Call {
  Serve serve = Serve::never;
  bool send = false;  // its bytes can be received before it returns
  bool test = false;  // may be repeated unsuccessfully in series
  // May change the contents of a file, as in the table's rows (FileChange).
  bool changes_file = false;
  bool changes_path = false;
  uint8_t closes = kNoArg;  // the argument that holds a descriptor which it closes
  NewDescriptor makes = NewDescriptor::none;
  MemoryChange memory = MemoryChange::none;
  // What tells whether a call that may sleep would. Its descriptor: not if O_NONBLOCK is set, or MSG_DONTWAIT is among
  // the flags. A futex: not if the word at `word` is another than argument `expected`. A timeout: it is tried without
  // one, and answers `timed_out` if it would; `timeout_at`: the argument points to it. If a call has none of these, it
  // gives up the processor (sched_yield): not while another thread waits.
  bool yields = false;
  bool timeout_at = false;
  uint8_t descriptor = kNoArg;
  uint8_t flags = kNoArg;
  uint8_t word = kNoArg;
  uint8_t expected = kNoArg;
  uint8_t timeout = kNoArg;
  uint8_t changed = kNoArg;  // the argument that names the changed file: a descriptor, or with changes_path a path
  uint8_t truncate_flags = kNoArg;  // changes it only if these hold O_TRUNC
  uint8_t null = kNoArg;            // an argument that must be null: a signal mask that holds while the call sleeps
  int16_t timed_out = 0;
  int16_t refusal = 0;  // positive errno that it gets, without the kernel
  // Multiplexers: the argument that holds the command, which bits of it count, and its commands in the table.
  uint8_t selector = kNoArg;
  uint8_t commands = 0;
  uint16_t first_command = 0;
  uint32_t selector_mask = 0;
  uint8_t spans = 0;
  Span span[kMaxSpans];
};

struct Table {
  Call calls[kCalls];
  uint32_t command_numbers[kCommands];  // sorted for each multiplexer
  Call commands[kCommands];
};
static_assert(sizeof(Table) <= kTableSize);

// The calls that the code makes in a recording beside those that it serves. By the last the kernel goes on with one
// that was interrupted.
inline constexpr uint64_t kFstat = 5, kGetsockname = 51, kGetpeername = 52, kGetsockopt = 55, kFcntl = 72,
                          kRestartSyscall = 219, kClockGettime = 228, kFstatAt = 262;
inline constexpr uint64_t kOwnCalls[] = {kFstat, kGetsockname,    kGetpeername,  kGetsockopt,
                                         kFcntl, kRestartSyscall, kClockGettime, kFstatAt};

// What mapping a file's code calls for.
enum class MappedCode : uint32_t {
  unknown,   // a stop
  replaced,  // instructions are replaced there behind the call, at one stop
  plain,     // nothing
};
// A version of a file of which the trace holds a copy (stat(2)); `held` becomes set when all else is.
struct KnownFile {
  uint64_t device, inode, size;
  int64_t modified_ns, changed_ns;
  uint32_t held;
  MappedCode code;
};
inline constexpr uint32_t kKnownFiles = 512;
// Each is at place_of(its version) or one of the next.
struct KnownFiles {
  KnownFile file[kKnownFiles];
};
static_assert(sizeof(KnownFiles) <= kFilesSize);
constexpr uint32_t place_of(uint64_t inode, uint64_t size, int64_t modified_ns) {
  const uint64_t mixed = (inode * 31 + size) * 31 + static_cast<uint64_t>(modified_ns);
  return static_cast<uint32_t>(mixed ^ mixed >> 32) % kKnownFiles;
}

// What all tracees write.
struct Clock {
  uint64_t now;  // the last stamp taken
};

// The registers of a served call at its entry, as the gate saves them; rcx only if it is none that the call changes.
struct Registers {
  uint64_t rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12, r13, r14, r15, rsp, flags, rcx, r11;
};

// What the code inside tracees has asked of a descriptor as soon as it was one end of a channel.
struct Described {
  uint64_t device, inode;       // stat(2)
  uint64_t network;             // of a TCP connection: SO_NETNS_COOKIE
  uint8_t local[32], peer[32];  // ... sockaddr_in or sockaddr_in6
};

enum class Phase : uint32_t {
  outside,  // user code runs
  before,   // the call's inputs are being recorded: it can still be left to a stop
  kernel,   // about to enter the kernel, in it, or just out of it
  after,    // its result is being recorded
};

inline constexpr uint32_t kStopAtCall = 1;    // the next call shall stop; rdtsc and cpuid need not
inline constexpr uint32_t kServeNothing = 2;  // nothing is served

struct Slot {
  Registers regs;
  uint64_t site;    // the traced syscall instruction of the call's trampoline; the call returns behind it
  uint64_t target;  // where the code goes to when it has put the registers back
  Phase phase;
  uint32_t want_stop;    // 0, or the sum of the following
  uint32_t alone;        // the unit has no other thread: calls may sleep
  uint32_t others_wait;  // another thread of the unit could run
  uint32_t thread;       // serial of the thread that runs
  uint64_t head;         // bytes of complete records in the ring
  uint64_t last;         // where the last of them begins
  uint64_t series;   // size of the last of them, if it was an unsuccessful test: calls that follow may be counted in it
  uint64_t pending;  // head + 1: a send's record at `head` is complete but for its result
  // Trampolines, which the program may not change; if there are more, calls that change memory stop.
  uint32_t areas;
  struct {
    uint64_t start, end;
  } area[kAreas];
  uint32_t stops_behind;  // the call that is being served
  // A call of a unit with other threads that sleeps. The supervisor gives the baton to another one by taking the number
  // away: then the slot is not this thread's any more, and all that it does when it wakes up is to report the result.
  uint64_t asleep;      // number of the call; 0: none, or the baton was taken
  uint64_t sleeps;      // the last number
  uint64_t no_time[2];  // a timeout of zero
  // Descriptors of which the supervisor will still know what is behind them when it reads the records up to now, though
  // they be closed then: only these are.
  uint64_t known[kDescriptors / 64];
  // Sockets that were never connected: nothing is behind them yet, and they may be closed as well.
  uint64_t fresh[kDescriptors / 64];
  // Those of the known ones behind which there is no file with contents of its own (stat(2), S_ISREG).
  uint64_t no_file[kDescriptors / 64];
  uint64_t restricted[kCallWords];  // calls that the program's own seccomp filters may forbid: they stop
  Described described;              // by the call that is being served
  uint32_t replay;                  // the ring holds expected calls, which are answered from it
  uint32_t repeated;   // how many of the calls that the expected one at `taken` stands for were made already
  uint32_t processor;  // in replay: where it is re-driven
  uint64_t taken;      // bytes of the ring's expected calls that were made
  uint64_t messages;   // in replay: where the table of messages is mapped
};

// The code inside tracees and the supervisor change these at the same time, on two processors.
inline void set_bit(uint64_t* bits, uint64_t descriptor, bool value) {
  const auto fd = static_cast<uint32_t>(descriptor);
  if (fd >= kDescriptors) return;
  const uint64_t bit = uint64_t{1} << fd % 64;
  if (value) {
    __atomic_fetch_or(&bits[fd / 64], bit, __ATOMIC_SEQ_CST);
  } else {
    __atomic_fetch_and(&bits[fd / 64], ~bit, __ATOMIC_SEQ_CST);
  }
}
inline bool is_set(const uint64_t* bits, uint64_t descriptor) {
  const auto fd = static_cast<uint32_t>(descriptor);
  return fd < kDescriptors && (bits[fd / 64] >> fd % 64 & 1);
}
// What is behind a descriptor became known, or is not known any more.
inline void set_known(Slot& slot, uint64_t descriptor, bool known) {
  set_bit(slot.no_file, descriptor, false);
  set_bit(slot.known, descriptor, known);
}

// Where a record's last piece is, if it has a description: no memory of the program's.
inline constexpr uint64_t kDescribed = kSlot + offsetof(Slot, described);

inline constexpr uint32_t kTaken = 1u << 31;  // the supervisor has counted them: those that follow are others
inline constexpr uint32_t kLongestCycle = 8;  // as in the trace (event.h)

// A record is followed by `before` and then `after` pieces, each padded to 8 bytes.
struct Record {
  uint32_t size;    // with all that follows
  uint32_t repeat;  // how many calls it stands for, as an event does (event.h); and kTaken
  uint64_t stamp;   // of the first
  uint32_t thread;
  uint8_t counter;      // no call: rdtsc or rdtscp was executed, and `result` is what it read
  uint8_t no_channel;   // the result is a descriptor with no channel behind it
  uint16_t file : 15;   // 1 + place of the file that was mapped
  uint16_t behind : 1;  // the thread stops behind the call, to have code replaced there
  uint64_t site;
  Registers regs;
  uint64_t fs_base, gs_base;
  int64_t result;
  uint32_t before, after;
  uint32_t cycle;  // if it stands for several calls: of how many records they are
  uint32_t back;   // size of the record before, if that is of an unsuccessful test of the same thread
};
struct Piece {
  uint64_t address;
  uint64_t length;
};

// A call that the supervisor has a tracee make.
struct InjectedCall {
  uint64_t number;
  uint64_t args[6];
};
// As an injected call's argument 0 or 4: the descriptor that was opened last, which is r12; what r13 and r14 hold.
inline constexpr uint64_t kOpened = ~uint64_t{1}, kClockFile = ~uint64_t{2}, kSlotFile = ~uint64_t{3};

// The number of an expected rdtsc, rdtscp or cpuid. Its arguments are what rax, rbx, rcx and rdx hold behind it, and
// rax and rcx before it; of these only cpuid's are compared.
inline constexpr int32_t kTrapNumber = 0x200000;

// A call that the recording holds, and what it brought: in replay. Followed by the parts of the received message, if it
// was not logged, the calls that are made in its place (what changes memory), the outputs, and the other calls of its
// cycle.
struct Expected {
  uint32_t size;  // with all that follows
  int32_t number;
  uint64_t site;  // as in the slot
  uint64_t args[6];
  uint64_t in_hash;  // of the memory that it reads (payload.h); 0 = none
  int64_t result;
  uint64_t repeat;     // how many calls it stands for, as an event does (event.h)
  uint32_t regs_hash;  // preserved_registers_hash (registers.h)
  uint32_t arguments;  // that are compared
  uint32_t sends;      // a message that others need: its index + 1; 0: none
  uint32_t parts;
  uint32_t calls;  // of type InjectedCall
  uint32_t outputs;
  uint32_t cycle;
  uint32_t own_size;  // without the other calls of its cycle
};
struct Part {
  uint64_t message;  // its index
  uint64_t offset, length;
  uint64_t hash;  // XXH3-64 of these bytes
};
// What the kernel wrote: the next bytes of the message, or those that follow, padded to 8 bytes.
struct Output {
  uint64_t address, length;
  uint64_t from_message;
};

// What intervals that are re-driven together send to each other, in memory that all of them share: this, a table of
// messages, and their bytes behind it.
struct MessagesHeader {
  uint64_t waiting;  // how many threads wait for one
  uint64_t unused[7];
};
enum class MessageState : uint32_t { absent, awaited, sent };
struct Message {
  MessageState state;  // a futex (futex(2)): who makes it `sent` wakes those who made it `awaited`
  uint32_t processor;  // on which the sender is re-driven
  uint64_t length;     // that was sent
  uint64_t capacity;   // how much of it anybody needs
  uint64_t offset;     // of the bytes, from the table's start
};
constexpr uint64_t padded(uint64_t length) { return (length + 7) & ~uint64_t{7}; }

// cpuid's answer, as the supervisor gives it.
struct CpuidAnswer {
  uint32_t leaf, subleaf;
  uint32_t eax, ebx, ecx, edx;
};
// Those that were given already.
inline constexpr uint32_t kMaxAnswers = 128;
struct CpuidAnswers {
  uint64_t count;
  CpuidAnswer answers[kMaxAnswers];
};

// A record of a cpuid instruction has this in place of the call's number, and its leaf and subleaf are the first two
// arguments.
inline constexpr uint64_t kCpuidNumber = 0x100000;

inline constexpr uint32_t kMaxInjected = 10;  // at a time
// Marks of Header::load's calls, and of injected ones that open a file, by which a seccomp filter knows them. They
// contain a number of which no program knows: r15, which the supervisor sets. open(2) has it in the last three
// arguments, which it does not have; mmap(2) has its upper half among the flags, and ignores those with MAP_SHARED.
constexpr uint64_t load_flags(uint64_t secret) { return secret >> 32 << 32; }

// Which files some recorded process has mapped: calls that may change one of them stop. The bit of an inode is
// set for each; others may have the same one.
struct WatchedFiles {
  uint64_t any;  // not 0: there are some
  uint64_t bits[256];
};
static_assert(sizeof(WatchedFiles) <= kWatchedSize);
constexpr uint64_t watched_bit(uint64_t inode) {
  constexpr uint64_t kBits = sizeof(WatchedFiles::bits) * 8;
  return (inode * 0x9e3779b97f4a7c15) >> 32 & (kBits - 1);
}

inline constexpr uint32_t kMostPath = 64;

// What the supervisor writes while tracees run, and they only read: the last page of the code.
struct Orders {
  InjectedCall injected[kMaxInjected];
  Counter counter;            // what a served rdtsc answers
  char slot_path[kMostPath];  // where a forked child finds its slot's file
  CpuidAnswers cpuid;
};
inline constexpr uint64_t kOrdersSize = 0x1000;
inline constexpr uint64_t kOrders = kCode + kCodeSize - kOrdersSize;
static_assert(sizeof(Orders) <= kOrdersSize);

inline constexpr uint64_t kStack = kSlot + 0x1000;
inline constexpr uint64_t kRing = kStack + kStackSize;
inline constexpr uint64_t kSlotSize = kRing + kRingSize - kSlot;
inline constexpr uint64_t kEnd = kSlot + kSlotSize;

// At the start of the code: where its instructions are that the supervisor must know.
struct Header {
  uint64_t entry;     // where trampolines jump to
  uint64_t leave;     // puts the registers back and goes to the slot's target
  uint64_t executed;  // right behind the untraced syscall instruction
  uint64_t finished;  // behind what follows it until the slot's phase says that the call was executed
  uint64_t boundary;  // right behind the traced syscall instruction that reports a served call
  // Makes the calls from rbp to rbx, up to the first that fails, and stops at the boundary with the last one's result
  // in rdi.
  uint64_t inject;
  uint64_t injected;  // right behind its untraced syscall instruction
  uint64_t cpuid;     // where trampolines of cpuid instructions jump to
  // Code up to load_end that is copied to a program that has none of this mapped, with the paths of the files of the
  // code, the clock and a slot behind it, in kMostPath bytes each: opens them as r12, r13 and r14, maps the code, and
  // goes on at `inject`. Stops at a close of no descriptor if it cannot.
  uint64_t load;
  uint64_t load_opened;  // ... from here on with the files open
  uint64_t load_end;
  uint64_t patience;  // in replay, the timeout (timespec) with which it waits for a message
};

}  // namespace redrive::gate
