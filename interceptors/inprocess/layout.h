// What the supervisor and the code inside tracees share: where the code lies, the table of calls that it serves, and
// the slot of an address space, with the ring of records that it writes.
//
// One thread of a unit runs user code at a time, so an address space needs only one slot. That thread may run on
// another processor than the supervisor, which looks at the slot meanwhile. So the order in which the code writes there
// matters, and x86 preserves it (Intel SDM volume 3, "Memory Ordering").
#pragma once

#include <cstddef>
#include <cstdint>

#include "interceptors/counter.h"
#include "interceptors/memory_change.h"
#include "interceptors/new_descriptor.h"
#include "interceptors/written.h"

namespace redrive::gate {

// The address is fixed, so that a seccomp filter can recognize the code's own system calls by their address. It is
// below 2 GiB, so that the code can use absolute addresses for everything in it.
inline constexpr uint64_t kCode = 0x6f000000;
inline constexpr uint64_t kCodeSize = 0x9000;
inline constexpr uint64_t kTable = kCode + kCodeSize;  // Table
inline constexpr uint64_t kTableSize = 0x10000;
inline constexpr uint64_t kFiles = kTable + kTableSize;  // KnownFiles
inline constexpr uint64_t kFilesSize = 0x6000;
inline constexpr uint64_t kWatched = kFiles + kFilesSize;  // WatchedFiles
inline constexpr uint64_t kWatchedSize = 0x1000;
inline constexpr uint64_t kClock = kWatched + kWatchedSize;  // Clock, the same page in all address spaces
inline constexpr uint64_t kClockSize = 0x1000;
inline constexpr uint64_t kCommonSize = kClock - kCode;  // what is mapped together, read-only
inline constexpr uint64_t kSlot = kCode + 0x21000;
static_assert(kClock + kClockSize <= kSlot);
inline constexpr uint64_t kStackSize = 0x4000;
inline constexpr uint64_t kRingSize = 0x100000;

inline constexpr uint32_t kCalls = 470;
inline constexpr uint32_t kCallWords = (kCalls + 63) / 64;  // of bits, one for each call
inline constexpr uint32_t kCommands = 96;                   // served commands of multiplexers
inline constexpr uint32_t kMaxSpans = 6;
inline constexpr uint32_t kAreas = 16;
inline constexpr uint32_t kDescriptors = 4096;  // higher ones are closed with a stop

// The length of the memory that a call reads or writes at one of its arguments (ExtentKind in syscall_table.h).
enum class Extent : uint8_t {
  fixed,      // `value` bytes
  arg,        // argument `other`, divided by `divisor` and rounded up, times `value`
  result,     // result times `value`, at most argument `other` times `value`
  pointee,    // *(u32*)argument `other`, the smaller of before and after
  option,     // the same in the option's unit (socket_options.h)
  length_of,  // a u32 if argument `other` is not 0
  string,     // NUL-terminated, at most `value` bytes
  vector,     // iovec array with `value` elements, or argument `other` if that is 0, and its buffers
  message,    // msghdr, and what it points to
  messages,   // mmsghdr array with argument `other` elements, and what they point to
};
struct Span {
  uint8_t arg = 0;
  Extent extent = Extent::fixed;
  Written written = Written::success;
  bool before : 1 = false;   // read by the kernel
  bool after : 1 = false;    // written by the kernel
  bool sent : 1 = false;     // vectors and messages: the kernel reads, not writes, the buffers that they point to
  bool payload : 1 = false;  // travels through the channel; of vectors and messages, the buffers do
  uint8_t other = 0;
  uint16_t divisor = 1;
  uint32_t value = 0;
};

enum class Serve : uint8_t {
  never,   // stops
  always,  // never sleeps
  sleeps,  // may sleep; not served while another thread of the unit could run
};

inline constexpr uint8_t kNoArg = 0xff;

struct Call {
  Serve serve = Serve::never;
  bool send = false;   // its bytes can be received before it returns
  bool test = false;   // may be repeated unsuccessfully in series
  bool wakes = false;  // wakes threads that wait for a futex
  bool tells_time = false;
  // May change the contents of a file, as in the table's rows (FileChange).
  bool changes_file = false;
  bool changes_path = false;
  bool reads_blocks = false;  // as in the table's rows
  uint8_t closes = kNoArg;    // the argument with a descriptor that the call closes
  uint8_t loses = kNoArg;     // one of which cannot be found out after the call what is behind it
  NewDescriptor makes = NewDescriptor::none;
  MemoryChange memory = MemoryChange::none;
  // How to tell whether a call that may sleep would sleep. By its descriptor: not if O_NONBLOCK is set, or MSG_DONTWAIT
  // is among the flags. By a futex: not if the word at `word` differs from argument `expected`. By a timeout: the call
  // is tried without one, and answers `timed_out` if it would sleep; `timeout_at`: the argument points to the timeout.
  // A call with none of these gives up the processor (sched_yield): it is not served while another thread waits.
  bool yields = false;
  bool timeout_at = false;
  uint8_t descriptor = kNoArg;
  uint8_t flags = kNoArg;
  uint8_t word = kNoArg;
  uint8_t expected = kNoArg;
  uint8_t timeout = kNoArg;
  uint8_t changed = kNoArg;  // the argument that names the changed file: a descriptor, or with changes_path a path
  uint8_t truncate_flags = kNoArg;  // it changes the file only if these have O_TRUNC
  uint8_t clear = kNoArg;           // an argument whose bits from clear_from on must be clear
  int16_t timed_out = 0;
  int16_t refusal = 0;  // positive errno of its answer, given without the kernel
  // For multiplexers: the argument with the command, which of its bits count, and the commands in the table.
  uint8_t selector = kNoArg;
  uint8_t commands = 0;
  uint16_t first_command = 0;
  uint32_t selector_mask = 0;
  uint8_t clear_from = 0;
  uint8_t spans = 0;
  Span span[kMaxSpans];
};

struct Table {
  Call calls[kCalls];
  uint32_t command_numbers[kCommands];  // sorted for each multiplexer
  Call commands[kCommands];
};
static_assert(sizeof(Table) <= kTableSize);

// The calls that the code makes in a recording in addition to those that it serves. By restart_syscall, the kernel
// continues an interrupted call.
inline constexpr uint64_t kFstat = 5, kGetsockname = 51, kGetpeername = 52, kGetsockopt = 55, kFcntl = 72,
                          kRestartSyscall = 219, kClockGettime = 228, kFstatAt = 262;
inline constexpr uint64_t kOwnCalls[] = {kFstat, kGetsockname,    kGetpeername,  kGetsockopt,
                                         kFcntl, kRestartSyscall, kClockGettime, kFstatAt};

// What must be done when a file's code is mapped.
enum class MappedCode : uint32_t {
  unknown,   // a stop
  replaced,  // instructions are replaced there after the call, at one stop
  plain,     // nothing
};
// A version of a file of which the trace holds a copy (stat(2)); `held` is set after everything else.
struct KnownFile {
  uint64_t device, inode, size;
  int64_t modified_ns, changed_ns;
  uint32_t held;
  MappedCode code;
};
inline constexpr uint32_t kKnownFiles = 512;
// Each file is at place_of(its version) or at one of the next places.
struct KnownFiles {
  KnownFile file[kKnownFiles];
};
static_assert(sizeof(KnownFiles) <= kFilesSize);
constexpr uint32_t place_of(uint64_t inode, uint64_t size, int64_t modified_ns) {
  const uint64_t mixed = (inode * 31 + size) * 31 + static_cast<uint64_t>(modified_ns);
  return static_cast<uint32_t>(mixed ^ mixed >> 32) % kKnownFiles;
}

// The only memory that all tracees write to.
struct Clock {
  uint64_t now;  // the last stamp taken
};

// The registers of a served call at its entry, as the gate saves them. rcx only for instructions other than system
// calls, which change it.
struct Registers {
  uint64_t rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12, r13, r14, r15, rsp, flags, rcx, r11;
};

// What the code inside tracees has found out about a descriptor as soon as it was one end of a channel.
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

inline constexpr uint32_t kStopAtCall = 1;    // the next call shall stop, or the next rdtsc or cpuid if there are many
inline constexpr uint32_t kServeNothing = 2;  // nothing is served

inline constexpr uint32_t kLoops = 8;  // instructions whose executions are counted at the same time

struct Slot {
  Registers regs;
  uint64_t site;    // the traced syscall instruction of the call's trampoline; the call returns right after it
  uint64_t target;  // where the code continues after restoring the registers
  Phase phase;
  uint32_t want_stop;    // 0, or a sum of the constants above
  uint32_t others_wait;  // another thread of the unit could run
  uint32_t thread;       // serial of the thread that runs
  uint64_t head;         // bytes of complete records in the ring
  uint64_t last;         // where the last of them begins
  uint64_t series;       // size of the last one if it was an unsuccessful test: later calls may be counted in it
  uint64_t pending;      // head + 1: a send's record at `head` is complete except for its result
  // Trampolines, which the program must not change. If there are more, calls that change memory stop.
  uint32_t areas;
  struct {
    uint64_t start, end;
  } area[kAreas];
  uint32_t stops_behind;  // the call that is being served will stop right after it
  uint32_t polls;         // the loop in which the thread is may have no pause
  // A sleeping call. The supervisor gives the baton to another thread, or makes sure that it hears of the call's end,
  // by taking the number away: the slot then no longer belongs to this thread, which only reports the result when it
  // wakes up.
  uint64_t asleep;      // number of the call; 0: none, or the baton was taken
  uint64_t sleeps;      // the last number
  uint64_t timeout[2];  // that a call has instead of its own
  uint64_t making;      // head + 1: the call whose record is at `head` may have been made
  // The descriptors whose objects the supervisor will still know when it reads the records written so far, even if they
  // are closed by then. Only these may be closed in process, and their connections ended.
  uint64_t known[kDescriptors / 64];
  // Sockets that were never connected: nothing is behind them yet, so they may be closed too.
  uint64_t fresh[kDescriptors / 64];
  // Known descriptors of something other than a file with contents of its own (stat(2), S_ISREG).
  uint64_t no_file[kDescriptors / 64];
  uint64_t restricted[kCallWords];  // calls that the program's own seccomp filters may forbid: they stop
  Described described;              // by the call that is being served
  uint32_t replay;                  // the ring holds expected calls, which are answered from it
  uint32_t repeated;                // how many of the calls that the expected one at `taken` stands for have been made
  uint32_t processor;               // in replay: the processor where it is re-driven
  uint64_t taken;                   // bytes of expected calls in the ring that have been made
  uint64_t messages;                // in replay: where the table of messages is mapped
  // How many tests, or calls of the same instruction, have had no success, one after the other. A thread that spins
  // gives others a turn.
  uint64_t spin_site;
  uint32_t spins;
  uint32_t unnoted;  // calls since the last one that has noted its time
  // The thread's tests in vain, one after the other with nothing between that takes long: how many there are, whether
  // they wait, since when there are any, and when the last one was.
  uint32_t tests, waits;
  uint64_t tests_since_ns, tested_at_ns;
  uint32_t traps;         // rdtsc and cpuid since the last call or stop, while a stop was wanted or others waited
  uint32_t stop_at_wake;  // calls that wake others stop: a thread of the unit waits in vain for a lock
  // How often the thread has come to each trampoline of a loop since its last event; nothing is known if `uncounted`.
  // Of those that find no room, nothing is known either.
  uint32_t uncounted;
  uint32_t loops;  // such trampolines, here
  struct {
    uint64_t site, times;
    uint64_t hash, unchanged;  // of the registers, if it polls; how often they have been the same, one after the other
  } loop[kLoops];
  uint64_t loop_patience;  // so often it comes there in vain before it lets others run
  uint64_t looped;         // how often it has come to the one of `site`, which was the last: it reports that
  // In replay: the trampoline to which the thread is to come, and how many times it has yet to; it reports the last.
  uint64_t awaited_loop, loops_left;
};

// The thread makes an event: what it does from now on is counted from zero.
inline void forget_loops(Slot& slot) { slot.uncounted = slot.loops = 0; }

// The code inside tracees and the supervisor change these bits at the same time, on two processors.
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
// Notes whether it is known what is behind a descriptor.
inline void set_known(Slot& slot, uint64_t descriptor, bool known) {
  set_bit(slot.no_file, descriptor, false);
  set_bit(slot.known, descriptor, known);
}

// The address of a record's last piece if that is a description; it is not the program's memory.
inline constexpr uint64_t kDescribed = kSlot + offsetof(Slot, described);

// So often a thread spins while others wait, before it gives them a turn, for which the next call or instruction stops:
// by calls; by rdtsc or cpuid, which may also measure short pieces of work.
inline constexpr uint32_t kMostSpins = 64, kMostTraps = 256;
inline constexpr uint32_t kTaken = 1u << 31;  // the supervisor has counted them: later ones are separate
inline constexpr uint32_t kLongestCycle = 8;  // as in the trace (event.h)

// A record is followed by `before` and then `after` pieces, each padded to 8 bytes.
struct Record {
  uint32_t size;    // including everything that follows
  uint32_t repeat;  // how many calls it stands for, as in an event (event.h); plus kTaken
  uint64_t stamp;   // of the first
  uint32_t thread;
  uint8_t counter;     // not a call: rdtsc or rdtscp was executed, and read `result`
  uint8_t no_channel;  // the result is a descriptor with no channel behind it
  uint16_t file : 15;  // 1 + place of the file that was mapped
  // The thread stops after the call: to have code replaced there, or because the call has written more than it says.
  uint16_t behind : 1;
  uint64_t site;
  Registers regs;
  uint64_t fs_base, gs_base;
  int64_t result;
  uint32_t before, after;
  uint32_t cycle;    // if it stands for several calls: of how many records they are
  uint32_t back;     // size of the previous record, if that is an unsuccessful test of the same thread
  uint64_t time_ns;  // right before the stamp (CLOCK_MONOTONIC); 0: not noted
};
struct Piece {
  uint64_t address;
  uint64_t length;
};

// A call that the supervisor makes a tracee execute.
struct InjectedCall {
  uint64_t number;
  uint64_t args[6];
};
// As argument 0 or 4 of an injected call: the descriptor that was opened last (r12), and those in r13 and r14.
inline constexpr uint64_t kOpened = ~uint64_t{1}, kClockFile = ~uint64_t{2}, kSlotFile = ~uint64_t{3};

// The number of an expected rdtsc, rdtscp or cpuid. Its arguments are the values of rax, rbx, rcx and rdx after the
// instruction, and of rax and rcx before it; only those of cpuid are compared.
inline constexpr int32_t kTrapNumber = 0x200000;

// In replay: a call that the recording holds, and its results. It is followed by the parts of the received message, if
// that was not logged, the calls that are made in its place (for calls that change memory), the outputs, and the other
// calls of its cycle.
struct Expected {
  uint32_t size;  // including everything that follows
  int32_t number;
  uint64_t site;  // as in the slot
  uint64_t args[6];
  uint64_t in_hash;  // hash of the memory that it reads (payload.h); 0 = none
  int64_t result;
  uint64_t repeat;     // how many calls it stands for, as in an event (event.h)
  uint32_t regs_mask;  // which bits of preserved_registers_hash (registers.h) are compared
  uint32_t regs_hash;
  uint16_t arguments;  // how many are compared
  uint16_t cycle;
  uint32_t sends;  // index + 1 of the message that it sends, if others need that; 0: none
  uint32_t parts;
  uint32_t calls;  // of type InjectedCall
  uint32_t outputs;
  uint32_t own_size;  // without the other calls of its cycle
};
struct Part {
  uint64_t message;  // its index
  uint64_t offset, length;
  uint64_t hash;  // XXH3-64 of these bytes
};
// What the kernel wrote: either the next bytes of the message, or the bytes that follow, padded to 8.
struct Output {
  uint64_t address, length;
  uint64_t from_message;
};

// What intervals that are re-driven together send to each other, in memory that all of them share: this header, a table
// of messages, the rings, and then the messages' bytes.
struct MessagesHeader {
  uint64_t waiting;  // how many threads wait for a message, or for room in a ring
  uint64_t rings;    // where these are, from the table's start
  uint64_t unused[6];
};
enum class MessageState : uint32_t { absent, awaited, sent };
struct Message {
  MessageState state;  // a futex (futex(2)): the thread that sets `sent` wakes those that set `awaited`
  uint32_t processor;  // where the sender is re-driven
  uint64_t length;     // how much was sent
  uint64_t capacity;   // how much of it is needed
  uint64_t offset;     // of the bytes, from the table's start: a place of its own, or one in its ring
  uint32_t ring;       // its index + 1; 0: none
  uint32_t uses;       // with a ring: how many receives have not taken the message yet
};
// Memory that is used again for what one interval sends to the same receivers, where that is long (message_ring.h).
// Only code that re-drives the sender writes to it, except to `waits`.
struct MessageRing {
  uint64_t start, size;  // of its bytes, from the table's start
  uint64_t head;         // where the next message goes, from `start`
  uint64_t oldest;       // the index of the first message that may not have been received
  uint64_t awaited;      // the index of the message whose receive ends the sender's wait
  uint32_t waits;        // a futex: the sender waits for room, as long as it is 1
  uint32_t in_vain;      // how many of its waits ended before anything was received
};
constexpr uint64_t padded(uint64_t length) { return (length + 7) & ~uint64_t{7}; }

// Whether cpuid's answer may depend on the subleaf. Where it does not (Intel SDM vol. 2, CPUID; AMD APM vol. 3,
// appendix E), programs leave there what the register happens to hold.
constexpr bool has_subleaves(uint32_t leaf) {
  const bool basic = leaf <= 3 || leaf == 5 || leaf == 6 || leaf == 9 || leaf == 0xa;
  return !basic && (leaf < 0x80000000 || leaf > 0x8000001c);
}
// cpuid's answer, as the supervisor gives it.
struct CpuidAnswer {
  uint32_t leaf, subleaf;  // 0 if it has none
  uint32_t eax, ebx, ecx, edx;
};
// The answers that have been given.
inline constexpr uint32_t kMaxAnswers = 128;
struct CpuidAnswers {
  uint64_t count;
  CpuidAnswer answers[kMaxAnswers];
};

// The record of a cpuid instruction has this instead of a call's number; the leaf and subleaf are the first two
// arguments.
inline constexpr uint64_t kCpuidNumber = 0x100000;

inline constexpr uint32_t kMaxInjected = 10;  // at a time
// Marks by which a seccomp filter recognizes the calls of Header::load, and injected ones that open a file. They
// contain a number that no program knows: r15, which the supervisor sets. open(2) has it in its last three arguments,
// which it does not use; mmap(2) has its upper half among the flags, and ignores such flags with MAP_SHARED.
constexpr uint64_t load_flags(uint64_t secret) { return secret >> 32 << 32; }

// The files that some recorded process has mapped. A call that may change one of them stops. The bit for each inode is
// set; several inodes may have the same bit.
struct WatchedFiles {
  uint64_t any;  // nonzero if there are any
  uint64_t bits[256];
};
static_assert(sizeof(WatchedFiles) <= kWatchedSize);
constexpr uint64_t watched_bit(uint64_t inode) {
  constexpr uint64_t kBits = sizeof(WatchedFiles::bits) * 8;
  return (inode * 0x9e3779b97f4a7c15) >> 32 & (kBits - 1);
}

inline constexpr uint32_t kMostPath = 64;

// What the supervisor writes and tracees only read while they run: the last page of the code.
struct Orders {
  InjectedCall injected[kMaxInjected];
  Counter counter;            // what a served rdtsc answers
  char slot_path[kMostPath];  // where a forked child finds its slot's file
  CpuidAnswers cpuid;
  uint32_t notes_every;  // each so manieth call of an address space notes when it was made
};
inline constexpr uint64_t kOrdersSize = 0x1000;
inline constexpr uint64_t kOrders = kCode + kCodeSize - kOrdersSize;
static_assert(sizeof(Orders) <= kOrdersSize);

inline constexpr uint64_t kStack = kSlot + 0x1000;
inline constexpr uint64_t kRing = kStack + kStackSize;
inline constexpr uint64_t kSlotSize = kRing + kRingSize - kSlot;
inline constexpr uint64_t kEnd = kSlot + kSlotSize;

// At the start of the code: addresses of instructions that the supervisor must know.
struct Header {
  uint64_t entry;  // where trampolines jump to
  uint64_t leave;  // restores the registers and continues at the slot's target
  // From here up to that instruction, the slot can be taken from a call that has not been made.
  uint64_t sleeps;
  uint64_t executed;  // right after the untraced syscall instruction
  uint64_t finished;  // after the code that follows it, up to where the slot's phase says that the call was executed
  uint64_t boundary;  // right after the traced syscall instruction that reports a served call
  // Makes the calls from rbp to rbx, up to the first that fails, and stops at the boundary with the last one's result
  // in rdi.
  uint64_t inject;
  uint64_t injected;          // right after its untraced syscall instruction
  uint64_t cpuid;             // where trampolines of cpuid instructions jump to
  uint64_t pausing, polling;  // ... and those of loops
  // Code up to load_end that is copied into a program in which none of this is mapped. After it come the paths of the
  // files of the code, the clock and a slot, kMostPath bytes each. It opens them as r12, r13 and r14, maps the code,
  // and continues at `inject`. If it cannot, it stops at a close of no descriptor.
  uint64_t load;
  uint64_t load_opened;  // ... starting here if the files are open
  uint64_t load_end;
  uint64_t patience;  // in replay: the timeout (timespec) with which it waits for a message
};

}  // namespace redrive::gate
