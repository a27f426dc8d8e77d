// The one declarative table of x86-64 syscalls, and the interpreter that reads it in both directions.
//
// A row says how a syscall's arguments are to be read and how it is treated. The seccomp filter, capture, injection,
// the text dump, divergence messages, the man page section and the list of required tests are derived from the rows; no
// other code switches over syscall numbers, except the `special` pairs that a row names. Argument kinds carry direction
// and extent.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/remote.h"
#include "interceptors/memory_change.h"
#include "interceptors/new_descriptor.h"
#include "interceptors/written.h"

namespace redrive {

enum class Treat : uint8_t {
  emulate,  // record result and output memory; replay injects them and does not enter the kernel
  special,  // a record/replay pair of its own (see `Special`)
  refuse,   // answered with `refusal` as a kernel without the feature would, and counted
};

// What the record loop and the replay engine must do beyond the generic treatment. One value per pair, not per syscall.
enum class Special : uint8_t {
  none,
  mmap,
  munmap,
  mprotect,
  mremap,
  brk,
  madvise,
  shmat,
  shmdt,  // memory layout (memory)
  fork,
  vfork,
  clone,
  clone3,  // birth of threads and processes
  execve,
  execveat,
  exit,
  exit_group,
  sigreturn,
  arch_prctl,
  set_tid_address,    // FS/GS base are registers
  modify_ldt,         // segments of its own, which images hold (LocalDescriptor)
  sched_setaffinity,  // where what is recorded runs is up to the recorder
  write_process,      // another process's memory changes, at an event of that
  seccomp,            // what a program forbids itself, the recorder keeps and enforces (program_filters.h)
};

// What a syscall does to a channel, for the pairing of endpoints. The fd is always in the argument named by `fd_arg`;
// only a SysV queue has no descriptor: msgsnd and msgrcv have fd_arg -1 and the queue's id in argument 0.
enum class Traffic : uint8_t {
  none,
  send,      // its input payload goes into the object behind the fd: write, sendto, sendmsg, writev, sendmmsg ...
  receive,   // its output payload comes out of it: read, recvfrom, recvmsg, readv, recvmmsg ...
  transfer,  // bytes go from one descriptor to another inside the kernel: sendfile, splice, tee, copy_file_range
};

// How a call changes the contents of a file, which processes that have mapped it see.
enum class FileChange : uint8_t {
  none,
  writes,     // as many bytes as it answers, at the position that argument `change_offset` holds, or points to if the
              // kernel moves that on; else at the descriptor's position
  resizes,    // ftruncate, truncate; opening with O_TRUNC
  allocates,  // fallocate
  replaces,   // any of it, by what another file holds
};

// How the descriptor table changes: what a cache of "what is behind this fd" must forget.
enum class FdEffect : uint8_t { none, closes, closes_range, replaces /* dup2, dup3: the second argument */ };

enum class ArgKind : uint8_t {
  none,     // not an argument
  val,      // compared by value
  pointer,  // an address that the kernel does not follow, or that only identifies (futex word, set_robust_list)
  fd,
  path,          // NUL-terminated string read by the kernel
  string_array,  // NULL-terminated array of strings (argv, envp)
  in,            // memory read, by extent
  out,           // memory written, by extent
  in_out,
  iovec_in,     // iovec array (count in the next argument, or `value` if the extent is fixed), buffers read
  iovec_out,    // ... buffers written, `result` bytes in all
  msghdr_in,    // sendmsg
  msghdr_out,   // recvmsg: name, control, flags, lengths, buffers
  mmsghdr_in,   // sendmmsg; the kernel writes msg_len of `result` headers
  mmsghdr_out,  // recvmmsg: `result` headers
  ifconf,       // struct ifconf of SIOCGIFCONF: length in and out, and the buffer it points to
  ethtool,      // struct ifreq of SIOCETHTOOL, and its command's structure, which it points to
  filter,       // struct sock_fprog, and the instructions it points to
};

enum class ExtentKind : uint8_t {
  none,
  fixed,        // `value` bytes
  arg,          // argument `value`, divided by `divisor` and rounded up, times `scale` bytes
  result,       // result times `scale` bytes (0 if negative), at most argument `cap_arg` times `scale`
  pointee_u32,  // *(u32*)argument `value`: socklen_t in and out; the smaller of before and after
  self_u32,    // the u32 that lies `value` bytes into the memory itself: file_handle, sched_attr; the smaller of before
               // and after, or of argument `cap_arg` and after. At least the u32.
  c_string,    // NUL-terminated, at most `value` bytes
  ioc_size,    // what the ioctl request in argument `value` encodes (_IOC_SIZE)
  semaphores,  // 2 bytes for each semaphore of the set whose id is argument `value`: the kernel is asked, at recording
};

struct Extent {
  ExtentKind kind = ExtentKind::none;
  uint32_t value = 0;
  uint32_t scale = 1;
  uint16_t divisor = 1;
  uint16_t header = 0;  // bytes before the extent proper; never payload: msgbuf's type, file_handle's head
  int8_t cap_arg = -1;
};

struct Arg {
  ArgKind kind = ArgKind::none;
  Extent extent{};
  bool payload = false;  // these bytes are what travels through the channel (Traffic)
  Written written = Written::success;
};

struct SyscallRow {
  int32_t number;
  const char* name;
  Treat treat;
  std::array<Arg, 6> args{};
  Special special = Special::none;
  Traffic traffic = Traffic::none;
  int8_t fd_arg = -1;
  FdEffect fd_effect = FdEffect::none;
  NewDescriptor new_descriptor = NewDescriptor::none;  // that the call makes
  bool may_block = false;                              // can sleep for long: the unit's other threads go on meanwhile
  bool test =
      false;  // may be repeated unsuccessfully in series: poll, epoll_wait, select, sched_yield, non-blocking receives
  // May be served without a stop by the code inside tracees (inprocess/): has no sub-rows. If it may sleep, only while
  // no other thread of the unit could run, or if one of the following says that it would not. If it closes a
  // descriptor, only if it is known what is behind that. If it changes the memory layout, only the program's own
  // private memory, anonymous or of files that the trace holds. A replay executes what is special, at a stop.
  bool in_process = false;
  MemoryChange memory = MemoryChange::none;
  int8_t waits_on_arg = -1;  // a descriptor: with O_NONBLOCK, the call does not sleep; as with Traffic's fd_arg
  int8_t timeout_arg = -1;   // with 0 in it, or in what it points to, the call does not sleep
  int16_t timed_out = 0;     // positive errno that it answers then; 0: with 0
  bool lock_word = false;    // argument 0 is a futex that the kernel locks or unlocks: it writes the word
  int8_t word_arg = -1;      // a futex: the call does not sleep if the word there is not what expected_arg says
  int8_t expected_arg = -1;
  int8_t mask_arg = -1;  // signal mask while the call sleeps: served only if it is null
  // Programs make no such call where the kernel has mapped its vDSO (vdso(7)), if argument 0 is a clock, of one of
  // these. What they forbid themselves by seccomp(2) does not concern it.
  bool in_vdso = false;
  int16_t refusal = 0;  // positive errno for Treat::refuse
  const char* why =
      nullptr;  // for refuse: reason shown in the list of refused calls; else: what the row may miss ("unsure")
  // Multiplexers: sub-rows selected by the value of argument `selector`; -1 = not a multiplexer. A sub-row has the same
  // shape, its multiplexer's number and name, and beside them the command's.
  int8_t selector = -1;
  uint32_t selector_mask = 0xffffffff;  // commands are 32-bit; futex: without its flag bits
  int16_t unknown_command = 0;          // positive errno for commands without a sub-row
  int64_t command = -1;                 // sub-rows only; -1 as well for the generic ioctl rows
  const char* command_name = nullptr;
  bool common = false;        // refuse: every program's C library tries it and has another way; not worth a warning
  int8_t source_fd_arg = -1;  // Traffic::transfer: `fd_arg` is the destination
  int8_t flags_arg = -1;      // send, receive: the argument that holds the MSG_* flags

  FileChange file_change = FileChange::none;
  int8_t changed_arg = -1;    // the argument that names the changed file: a descriptor, or a path
  int8_t change_offset = -1;  // -1: at the descriptor's position
  int8_t truncate_arg = -1;   // only with O_TRUNC among the flags in this argument

  size_t argument_count() const {
    size_t count = args.size();
    while (count > 0 && args[count - 1].kind == ArgKind::none) --count;
    return count;
  }
};

// The row for an entered syscall, sub-row resolved by its arguments; null if the number (or sub-command) has no row: to
// be refused with ENOSYS (number) or EINVAL (sub-command), reported.
const SyscallRow* find_row(int64_t number, std::span<const uint64_t, 6> args);
// Positive errno for a call without a row: ENOSYS, or what the multiplexer answers to unknown commands (ioctl: ENOTTY).
int refusal_without_row(int64_t number);
std::span<const SyscallRow> all_rows();         // sorted by number
std::vector<const SyscallRow*> all_commands();  // the sub-rows
std::string_view syscall_name(int64_t number);  // "syscall_999" for unknown ones; valid until the thread's next call
std::string_view error_name(int64_t err);       // "ENOSYS", also of -38; "E?" for unknown ones
// Name with sub-command where there is one: "fcntl(F_GETLK)".
std::string call_name(int64_t number, std::span<const uint64_t, 6> args);

struct Span {
  uint64_t address = 0;
  uint64_t length = 0;
  bool payload = false;
  bool operator==(const Span&) const = default;
};

// The memory a syscall reads, found at its entry, in argument order. Control structures (iovec arrays, msghdrs) come as
// spans too. `payload` marks the bytes that travel; for sendmmsg the payloads of all messages in order. Nothing here
// was checked by the kernel yet: a span that cannot be read is to be left out. No span is longer than kMaxSpan; a
// longer extent comes as several.
inline constexpr uint64_t kMaxSpan = 1ull << 30;
std::vector<Span> inputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory);
// The same into a vector that is used again and again, as of the two below.
void inputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory, std::vector<Span>& spans);

// Whether all memory is known that the call reads and writes: of some calls a structure in memory says which command
// it is. False: to be refused, as one without a row.
bool is_described(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory);

// Extents of value-result arguments, which must be read before the kernel changes them.
struct EntrySizes {
  std::array<uint64_t, 6> size{};       // capacity of each out argument as of entry
  std::vector<Span> buffers;            // payload buffers of iovec_out/msghdr_out/mmsghdr_out, in order, empty ones too
  std::vector<uint32_t> buffer_counts;  // how many of `buffers` each message has; one element for iovec_out
  std::vector<Span> fixed_outputs;  // non-payload memory that msghdr_out/mmsghdr_out writes; each message has a fixed
                                    // number: name, control, the header's lengths and flags; empty ones too
};
EntrySizes entry_sizes(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory);
void entry_sizes(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory, EntrySizes& entry);

// The memory the kernel wrote, found at exit. Never longer than what the entry allowed; payload spans in the order in
// which bytes were received, exactly `result` bytes in all for stream receives. For recvmmsg the payload of each
// received header (msg_len) in order. Spans cover all that the kernel wrote and may cover a little more (a timeout that
// was not updated); after a failed call only readable memory is named. restart_syscall has the outputs of the call it
// restarts: pass that call's row.
std::vector<Span> outputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const EntrySizes& entry,
                          int64_t result, const Memory& memory);
void outputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const EntrySizes& entry, int64_t result,
             const Memory& memory, std::vector<Span>& spans);

// All memory that the kernel may write, or have written, before the exit is seen.
std::vector<Span> possible_outputs(std::span<const uint64_t, 6> args, const EntrySizes& entry);

// For recvmmsg: payload length of each received datagram in order, read at exit. For other receives: one element, the
// result.
std::vector<uint64_t> datagram_lengths(const SyscallRow& row, std::span<const uint64_t, 6> args, int64_t result,
                                       const Memory& memory);

// A call with certain values in some of its arguments, and what the filter answers.
struct ExactCall {
  int32_t number;
  std::array<std::optional<uint64_t>, 6> args;
  uint32_t answer = SECCOMP_RET_ALLOW;
};

// A call that ends the thread that makes it by SIGSYS, or its whole process: for the recorder, which puts it in the
// place of one that is forbidden.
ExactCall fatal_call(bool whole_process);

// A syscall instruction of the code inside tracees, by the address behind it, and the calls that may be made there
// without a stop.
struct UntracedSite {
  uint64_t address = 0;
  std::vector<int> numbers;
};

// The seccomp program: RET_TRACE for every syscall of this architecture, ENOSYS for other architectures (x32, i386).
// Those at the sites in `untraced` are allowed; at the address `traced` (0: none) all are RET_TRACE, whatever the
// number. `calls` have their own answers wherever they are made.
std::vector<sock_filter> seccomp_filter(std::span<const UntracedSite> untraced = {}, uint64_t traced = 0,
                                        std::span<const ExactCall> calls = {});

// "read(3, 0x7ffe..., 64)", from a recorded event's numbers. With `memory`, strings and sent bytes are shown as strace
// does.
std::string format_call(int64_t number, std::span<const uint64_t, 6> args, const Memory* memory = nullptr);
std::string format_result(int64_t result);  // "64", "-1 EAGAIN (Resource temporarily unavailable)", "? ERESTARTSYS"

}  // namespace redrive
