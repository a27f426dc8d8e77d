// The one declarative table of x86-64 system calls, and the interpreter that reads it in both directions.
//
// A row says how a call's arguments are to be read and how the call is treated. The seccomp filter, capture, injection,
// the text dump, divergence messages, the man page section and the list of required tests are derived from the rows. No
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
#include "base/result.h"
#include "interceptors/memory_change.h"
#include "interceptors/new_descriptor.h"
#include "interceptors/written.h"

namespace redrive {

enum class Treat : uint8_t {
  emulate,  // record result and output memory; a replay injects them without entering the kernel
  special,  // a record/replay pair of its own (see `Special`)
  refuse,   // answered with `refusal`, as by a kernel without the feature, and counted
};

// What the record loop and the replay engine do in addition to the generic treatment. There is one value per pair, not
// per call.
enum class Special : uint8_t {
  none,
  mmap,
  munmap,
  mprotect,
  mremap,
  brk,
  madvise,
  shmat,
  shmdt,
  personality,  // memory layout (memory)
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
  modify_ldt,         // segments of the program's own, which images hold (LocalDescriptor)
  sched_setaffinity,  // the recorder decides where recorded programs run
  write_process,      // another process's memory changes, at an event of that process
  seccomp,            // the recorder keeps and enforces what a program forbids itself (program_filters.h)
};

// What a call does to a channel, for the pairing of endpoints. `fd_arg` is the argument with the descriptor. Only a
// SysV queue has no descriptor: for msgsnd and msgrcv fd_arg is -1, and argument 0 is the queue's id.
enum class Traffic : uint8_t {
  none,
  send,      // its input payload goes into the object behind the fd: write, sendto, sendmsg, writev, sendmmsg ...
  receive,   // its output payload comes out of that object: read, recvfrom, recvmsg, readv, recvmmsg ...
  transfer,  // bytes go from one descriptor to another inside the kernel: sendfile, splice, tee, copy_file_range
};

// How a call changes the contents of a file. Processes that have mapped the file see this.
enum class FileChange : uint8_t {
  none,
  writes,     // the result is the number of bytes; their position is argument `change_offset`, or where it points if
              // the kernel advances it; without such an argument, it is the descriptor's position
  resizes,    // ftruncate, truncate; opening with O_TRUNC
  allocates,  // fallocate
  replaces,   // replaces any part by contents of another file
};

// How the descriptor table changes: what a cache of "what is behind this fd" must forget.
enum class FdEffect : uint8_t {
  none,
  closes,
  closes_range,
  replaces,  // dup2, dup3: the second argument
  ends,      // a connection, which may have no addresses any more then; the descriptor stays what it is
};

enum class ArgKind : uint8_t {
  none,     // unused
  val,      // compared by value
  pointer,  // an address that the kernel does not follow, or that only serves as a name (futex word, set_robust_list)
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
  mmsghdr_in,   // sendmmsg; the kernel writes msg_len in `result` headers
  mmsghdr_out,  // recvmmsg: `result` headers
  ifconf,       // struct ifconf of SIOCGIFCONF: length in and out, and the buffer that it points to
  ethtool,      // struct ifreq of SIOCETHTOOL, and the command's structure that it points to
  filesystem,   // the name of a file system's type
  filter,       // struct sock_fprog, and the instructions it points to
  watched,  // an ioctl's argument, described by its request alone: read if the request says so; what is written, there
            // and behind pointers that lie there, is found by comparison
};

enum class ExtentKind : uint8_t {
  none,
  fixed,        // `value` bytes
  arg,          // argument `value`, divided by `divisor` and rounded up, times `scale` bytes
  result,       // result times `scale` bytes (0 if negative), at most argument `cap_arg` times `scale`
  pointee_u32,  // *(u32*)argument `value`: socklen_t in and out; the smaller of before and after
  option,       // getsockopt(2): *(u32*)argument `value` in the option's unit (socket_options.h); as above
  length_of,    // the length of argument `value`, a u32; nothing if that argument is 0, because the kernel ignores it
  self_u32,    // the u32 that lies `value` bytes into the memory itself: file_handle, sched_attr; the smaller of before
               // and after, or of argument `cap_arg` and after; at least the u32 itself
  c_string,    // NUL-terminated, at most `value` bytes
  ioc_size,    // what the ioctl request in argument `value` encodes (_IOC_SIZE)
  semaphores,  // 2 bytes for each semaphore of the set with id argument `value`; the kernel is asked when recording
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
  bool payload = false;  // these bytes travel through the channel (Traffic)
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
  bool may_block = false;                              // can sleep for long: the unit's other threads run meanwhile
  bool test =
      false;  // may be repeated unsuccessfully in series: poll, epoll_wait, select, sched_yield, non-blocking receives
  // May be served without a stop by the code inside tracees (inprocess/). Such a row has no sub-rows. A call that may
  // sleep is served only while no other thread of the unit could run, or if one of the following fields says that it
  // would not sleep. A call that closes a descriptor, or ends its connection, is served only if it is known what is
  // behind that. A call that changes the memory layout is served only if it changes the program's own private memory,
  // either anonymous or of files that the trace holds. A replay executes special calls at a stop.
  bool in_process = false;
  MemoryChange memory = MemoryChange::none;
  int8_t waits_on_arg = -1;  // a descriptor, as in Traffic's fd_arg: with O_NONBLOCK, the call does not sleep
  int8_t timeout_arg = -1;   // if this is 0, or what it points to is, the call does not sleep
  int16_t timed_out = 0;     // positive errno of the call's answer in that case; 0: the result 0
  // Argument 0 is a file: opened with O_DIRECT, the kernel reads whole blocks of it into the buffers at args[1], also
  // at its end, and says that it has read up to the end (open(2)).
  bool reads_blocks = false;
  bool may_kill = false;   // sends a signal, which may be SIGKILL
  bool wakes = false;      // wakes threads that wait for a futex; the result is 0 if there are none
  bool lock_word = false;  // argument 0 is a futex that the kernel locks or unlocks by writing the word
  int8_t word_arg = -1;    // a futex: the call does not sleep unless the word there equals expected_arg
  int8_t expected_arg = -1;
  // The call is served only if an argument's bits from this one on are clear: all of a signal mask's address; of
  // wait4(2)'s options, those for children of all kinds.
  int8_t clear_arg = -1;
  uint8_t clear_from = 0;
  // Programs do not make this call if the kernel has mapped its vDSO (vdso(7)); if argument 0 is a clock, only for
  // these clocks. What programs forbid themselves by seccomp(2) does not apply to it.
  bool in_vdso = false;
  int16_t refusal = 0;        // positive errno for Treat::refuse, and for arguments that are not to be recorded
                              // (is_described)
  const char* why = nullptr;  // the refusal's reason, shown in the list of refused calls; without a refusal: what the
                              // row may miss ("unsure")
  // For multiplexers: the argument whose value selects a sub-row; -1: not a multiplexer. A sub-row has the same form,
  // with its multiplexer's number and name, and those of the command in addition.
  int8_t selector = -1;
  uint32_t selector_mask = 0xffffffff;  // commands are 32-bit; for futex: without its flag bits
  int16_t unknown_command = 0;          // positive errno for commands without a sub-row
  int64_t command = -1;                 // only in sub-rows; -1 in the generic ioctl rows too
  const char* command_name = nullptr;
  bool common = false;        // refuse: every program's C library tries it and can do without; not worth a warning
  int8_t source_fd_arg = -1;  // Traffic::transfer: `fd_arg` is the destination
  int8_t flags_arg = -1;      // send, receive: the argument that holds the MSG_* flags

  FileChange file_change = FileChange::none;
  int8_t changed_arg = -1;    // the argument that names the changed file: a descriptor or a path
  int8_t change_offset = -1;  // -1: the descriptor's position
  int8_t truncate_arg = -1;   // changes the file only if the flags in this argument have O_TRUNC

  size_t argument_count() const {
    size_t count = args.size();
    while (count > 0 && args[count - 1].kind == ArgKind::none) --count;
    return count;
  }
};

// The row for an entered call, with the sub-row selected by its arguments. Null if the number or the sub-command has no
// row: the call must then be refused with ENOSYS (number) or EINVAL (sub-command) and reported.
const SyscallRow* find_row(int64_t number, std::span<const uint64_t, 6> args);
// Positive errno for a call without a row: ENOSYS, or what the multiplexer answers to unknown commands (ioctl: ENOTTY).
int refusal_without_row(int64_t number);
std::span<const SyscallRow> all_rows();         // sorted by number
std::vector<const SyscallRow*> all_commands();  // the sub-rows
std::string_view syscall_name(int64_t number);  // "syscall_999" if libseccomp has none; valid until the next call
std::string_view error_name(int64_t err);       // "ENOSYS", also for -38; "E?" for unknown ones
// The name with the sub-command, if there is one: "fcntl(F_GETLK)".
std::string call_name(int64_t number, std::span<const uint64_t, 6> args);

struct Span {
  uint64_t address = 0;
  uint64_t length = 0;
  bool payload = false;
  bool operator==(const Span&) const = default;
};

// The memory that a call reads, found at its entry, in the order of arguments. Control structures (iovec arrays,
// msghdrs) are included as spans. `payload` marks the bytes that travel; for sendmmsg, the payloads of all messages in
// order. The kernel has not checked any of this yet: callers leave out spans that cannot be read. No span is longer
// than kMaxSpan; a longer extent becomes several spans.
inline constexpr uint64_t kMaxSpan = 1ull << 30;
std::vector<Span> inputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory);
// The same into a vector that is reused. So do the two functions below.
void inputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory, std::vector<Span>& spans);

// Whether the call can be recorded with these arguments: whether all memory that it reads and writes is known, where a
// structure in memory determines the command; and whether nobody who is recorded serves the file system that it mounts.
// If not, the call must be refused.
bool is_described(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory);

// Extents of value-result arguments, which must be read before the kernel changes them.
struct EntrySizes {
  std::array<uint64_t, 6> size{};  // capacity of each out argument at entry
  std::vector<Span> buffers;       // payload buffers of iovec_out/msghdr_out/mmsghdr_out, in order, also empty ones
  std::vector<uint32_t> buffer_counts;  // how many of `buffers` belong to each message; one element for iovec_out
  std::vector<Span> fixed_outputs;      // other memory: name, control, the header's lengths and flags of each message,
                                        // also empty ones; or what an ifconf or ethtool structure points to
  std::vector<Stretch> watched;         // what a watched argument may change, as it is at entry; in ascending order
};
EntrySizes entry_sizes(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory);
void entry_sizes(const SyscallRow& row, std::span<const uint64_t, 6> args, const Memory& memory, EntrySizes& entry);

// The memory that the kernel wrote, found at exit. It is never longer than the entry allowed. Payload spans are in the
// order in which bytes were received, and have exactly `result` bytes in total for stream receives; for recvmmsg, they
// are the payloads of the received headers (msg_len) in order. Spans cover everything that the kernel wrote and
// possibly a little more (a timeout that was not updated); after a failed call, only readable memory is included.
// restart_syscall has the outputs of the call that it restarts: pass that call's row. `wrote_more`: the kernel has
// written more of the buffers than the result says (SyscallRow::reads_blocks). Then no span is payload.
std::vector<Span> outputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const EntrySizes& entry,
                          int64_t result, const Memory& memory);
void outputs(const SyscallRow& row, std::span<const uint64_t, 6> args, const EntrySizes& entry, int64_t result,
             const Memory& memory, std::vector<Span>& spans, bool wrote_more = false);

// All memory that the kernel may write, or have written, before the exit is seen.
std::vector<Span> possible_outputs(std::span<const uint64_t, 6> args, const EntrySizes& entry);

// For recvmmsg, the payload length of each received datagram in order, read at exit. For other receives, one element,
// the result.
std::vector<uint64_t> datagram_lengths(const SyscallRow& row, std::span<const uint64_t, 6> args, int64_t result,
                                       const Memory& memory);

// A call with certain values in some of its arguments, and the filter's answer to it.
struct ExactCall {
  int32_t number;
  std::array<std::optional<uint64_t>, 6> args;
  uint32_t answer = SECCOMP_RET_ALLOW;
};

// A call that ends the calling thread, or its whole process, with SIGSYS. The recorder substitutes it for a forbidden
// one.
ExactCall fatal_call(bool whole_process);

// A syscall instruction of the code inside tracees, given by the address right after it, and the calls that may be made
// there without a stop.
struct UntracedSite {
  uint64_t address = 0;
  std::vector<int> numbers;
};

// The seccomp program: RET_TRACE for every call of this architecture, ENOSYS for other architectures (x32, i386). The
// calls listed for the sites in `untraced` are allowed there. At the address `traced` (0: none), all calls are
// RET_TRACE, whatever the number. `calls` have their own answers wherever they are made.
Result<std::vector<sock_filter>> seccomp_filter(std::span<const UntracedSite> untraced = {}, uint64_t traced = 0,
                                                std::span<const ExactCall> calls = {});

// "read(3, 0x7ffe..., 64)", from the numbers of a recorded event. With `memory`, strings and sent bytes are shown as in
// strace.
std::string format_call(int64_t number, std::span<const uint64_t, 6> args, const Memory* memory = nullptr);
std::string format_result(int64_t result);  // "64", "-1 EAGAIN (Resource temporarily unavailable)", "? ERESTARTSYS"

}  // namespace redrive
