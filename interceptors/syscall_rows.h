// How rows of the syscall table are written: constexpr helpers for syscall_table.cc, syscall_commands.cc and
// syscall_ioctls.cc.
//
// Not for other files: users of the table include syscall_table.h. Names are short because each occurs hundreds of
// times.
#pragma once

#include <asm/unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "interceptors/syscall_table.h"

namespace redrive {

// The sub-rows; each table is sorted by (number, command).
std::span<const SyscallRow> command_rows();
std::span<const SyscallRow> ioctl_rows();
// The row for the direction and size that a request's number encodes; null if it encodes nothing.
const SyscallRow* generic_ioctl_row(uint32_t request);

}  // namespace redrive

namespace redrive::rows {

inline constexpr const char* kPorts = "direct hardware access";  // a reason for refusals

inline constexpr Arg val{ArgKind::val};
inline constexpr Arg ptr{ArgKind::pointer};
inline constexpr Arg fd{ArgKind::fd};
inline constexpr Arg path{ArgKind::path};
inline constexpr Arg strings{ArgKind::string_array};
inline constexpr Arg ifconf{ArgKind::ifconf};
inline constexpr Arg ethtool{ArgKind::ethtool};
inline constexpr Arg filesystem{ArgKind::filesystem};
inline constexpr Arg filter{ArgKind::filter};

constexpr Arg sized(ArgKind kind, uint32_t bytes) { return {kind, {ExtentKind::fixed, bytes}}; }
constexpr Arg in(uint32_t bytes) { return sized(ArgKind::in, bytes); }
constexpr Arg out(uint32_t bytes) { return sized(ArgKind::out, bytes); }
constexpr Arg in_out(uint32_t bytes) { return sized(ArgKind::in_out, bytes); }

constexpr Arg sized_by(ArgKind kind, uint32_t arg, uint32_t scale, uint16_t divisor) {
  return {kind, {ExtentKind::arg, arg, scale, divisor}};
}
constexpr Arg in_sized_by(uint32_t arg, uint32_t scale = 1, uint16_t divisor = 1) {
  return sized_by(ArgKind::in, arg, scale, divisor);
}
constexpr Arg out_sized_by(uint32_t arg, uint32_t scale = 1, uint16_t divisor = 1) {
  return sized_by(ArgKind::out, arg, scale, divisor);
}
constexpr Arg in_out_sized_by(uint32_t arg, uint32_t scale = 1, uint16_t divisor = 1) {
  return sized_by(ArgKind::in_out, arg, scale, divisor);
}
// A structure of `header` bytes, followed by entries of `scale` bytes. A u32 at offset `at` holds their number.
constexpr Arg counted(uint16_t header, uint32_t at, uint32_t scale) {
  return {ArgKind::in_out, {ExtentKind::self_u32, at, scale, 1, header}};
}
// A bitmap with the number of bits in argument `arg`, in whole longs: fd_set, nodemask.
constexpr Arg in_bits(uint32_t arg) { return in_sized_by(arg, 8, 64); }
constexpr Arg out_bits(uint32_t arg) { return out_sized_by(arg, 8, 64); }
constexpr Arg in_out_bits(uint32_t arg) { return in_out_sized_by(arg, 8, 64); }

// The result is the number of bytes (or elements of `scale` bytes), in a buffer for as many as argument `cap` says.
constexpr Arg out_result(int8_t cap, uint32_t scale = 1) {
  Arg arg{ArgKind::out, {ExtentKind::result, 0, scale}};
  arg.extent.cap_arg = cap;
  return arg;
}
// *(u32*)argument `length` is the number of bytes: sockaddr, getsockopt.
constexpr Arg out_pointee(uint32_t length) { return {ArgKind::out, {ExtentKind::pointee_u32, length}}; }
// The length of what is at argument `address`, which the kernel only looks at if that is not 0.
constexpr Arg length_of(uint32_t address) { return {ArgKind::in_out, {ExtentKind::length_of, address}}; }
constexpr Arg out_option(uint32_t length) { return {ArgKind::out, {ExtentKind::option, length}}; }
// A u32 in the structure itself is its number of bytes.
constexpr Arg self_sized(ArgKind kind, int8_t cap = -1, uint16_t header = 0) {
  Arg arg{kind, {ExtentKind::self_u32}};
  arg.extent.cap_arg = cap;
  arg.extent.header = header;
  return arg;
}
constexpr Arg text(uint32_t limit) { return {ArgKind::in, {ExtentKind::c_string, limit}}; }
constexpr Arg out_text(uint32_t limit) { return {ArgKind::out, {ExtentKind::c_string, limit}}; }
constexpr Arg out_semaphores(uint32_t id) { return {ArgKind::out, {ExtentKind::semaphores, id}}; }

constexpr Arg payload(Arg arg) {
  arg.payload = true;
  return arg;
}
constexpr Arg after_header(uint16_t bytes, Arg arg) {
  arg.extent.header = bytes;
  return arg;
}
constexpr Arg always(Arg arg) {
  arg.written = Written::always;
  return arg;
}
constexpr Arg on_error(Arg arg) {
  arg.written = Written::error;
  return arg;
}
constexpr Arg if_positive(Arg arg) {
  arg.written = Written::positive;
  return arg;
}
inline constexpr Arg watched = always({ArgKind::watched, {ExtentKind::ioc_size, 1}});

inline constexpr Arg iov_in{ArgKind::iovec_in};
inline constexpr Arg iov_out{ArgKind::iovec_out};
inline constexpr Arg msg_in = payload({ArgKind::msghdr_in});
inline constexpr Arg msg_out = payload({ArgKind::msghdr_out});
inline constexpr Arg mmsg_in = payload({ArgKind::mmsghdr_in});
inline constexpr Arg mmsg_out = payload({ArgKind::mmsghdr_out});
// An {address, length} pair in memory that points to what is read or written; it has the shape of an iovec.
inline constexpr Arg one_iov_in = sized(ArgKind::iovec_in, 1);
inline constexpr Arg one_iov_out = sized(ArgKind::iovec_out, 1);

inline constexpr Arg timespec_in = in(16);
inline constexpr Arg timespec_out = out(16);
// The rest of a sleep. The kernel writes it whenever a signal or a tracer wakes the thread, even if the sleep
// continues.
inline constexpr Arg time_left = always(timespec_out);
inline constexpr Arg siginfo_in = in(128);
inline constexpr Arg siginfo_out = out(128);
inline constexpr Arg rusage_out = out(144);
inline constexpr Arg stat_out = out(144);
constexpr Arg addr_in(uint32_t length) { return in_sized_by(length); }

// A row under construction.
struct Row : SyscallRow {
  constexpr Row with(auto&& change) const {
    Row row = *this;
    change(row);
    return row;
  }
  constexpr Row sends(int8_t arg) const {
    return with([=](Row& row) { row.traffic = Traffic::send, row.fd_arg = arg; });
  }
  constexpr Row receives(int8_t arg) const {
    return with([=](Row& row) { row.traffic = Traffic::receive, row.fd_arg = arg; });
  }
  constexpr Row transfers(int8_t from, int8_t to) const {
    return with([=](Row& row) { row.traffic = Traffic::transfer, row.source_fd_arg = from, row.fd_arg = to; });
  }
  constexpr Row flags(int8_t arg) const {
    return with([=](Row& row) { row.flags_arg = arg; });
  }
  constexpr Row is_common() const {
    return with([](Row& row) { row.common = true; });
  }
  constexpr Row blocks() const {
    return with([](Row& row) { row.may_block = true; });
  }
  constexpr Row signals() const {
    return with([](Row& row) { row.may_kill = true; });
  }
  constexpr Row wakes_others() const {
    return with([](Row& row) { row.wakes = true; });
  }
  constexpr Row locks() const {
    return with([](Row& row) { row.lock_word = true; });
  }
  constexpr Row tests() const {
    return with([](Row& row) { row.may_block = row.test = true; });
  }
  constexpr Row served() const {
    return with([](Row& row) { row.in_process = true; });
  }
  constexpr Row whole_blocks() const {
    return with([](Row& row) { row.reads_blocks = true; });
  }
  constexpr Row changes(MemoryChange what) const {
    return with([=](Row& row) { row.memory = what; });
  }
  constexpr Row times_out(int8_t arg, int16_t answer = 0) const {
    return with([=](Row& row) { row.timeout_arg = arg, row.timed_out = answer; });
  }
  constexpr Row makes(NewDescriptor what) const {
    return with([=](Row& row) { row.new_descriptor = what; });
  }
  constexpr Row waits_on(int8_t arg) const {
    return with([=](Row& row) { row.waits_on_arg = arg; });
  }
  constexpr Row waits_while(int8_t word, int8_t expected) const {
    return with([=](Row& row) { row.word_arg = word, row.expected_arg = expected; });
  }
  constexpr Row masks(int8_t arg) const {
    return with([=](Row& row) { row.clear_arg = arg; });
  }
  constexpr Row served_if_clear(int8_t arg, uint8_t from) const {
    return served().with([=](Row& row) { row.clear_arg = arg, row.clear_from = from; });
  }
  constexpr Row effect(FdEffect effect) const {
    return with([=](Row& row) { row.fd_effect = effect; });
  }
  constexpr Row answered_by_vdso() const {
    return with([](Row& row) { row.in_vdso = true; });
  }
  constexpr Row selects(int8_t arg, int16_t unknown = EINVAL, uint32_t mask = 0xffffffff) const {
    return with([=](Row& row) { row.selector = arg, row.unknown_command = unknown, row.selector_mask = mask; });
  }
  constexpr Row changes_file(int8_t arg, FileChange change, int8_t offset = -1) const {
    return with([=](Row& row) { row.changed_arg = arg, row.file_change = change, row.change_offset = offset; });
  }
  constexpr Row truncates(int8_t path, int8_t flags = -1) const {
    return changes_file(path, FileChange::resizes).with([=](Row& row) { row.truncate_arg = flags; });
  }
  constexpr Row refused_in_part(int16_t refusal, const char* why) const {
    return with([=](Row& row) { row.refusal = refusal, row.why = why; });
  }
  constexpr Row unsure(const char* why) const {
    return with([=](Row& row) { row.why = why; });
  }
};

// The call that a row is for; in a sub-row, also the command.
struct Call {
  int32_t number;
  const char* name;
  int64_t command = -1;
  const char* command_name = nullptr;
};

template <typename... Args>
constexpr Row row(Call call, Treat treat, Args... args) {
  Row made{{call.number, call.name, treat, {args...}}};
  made.command = call.command;
  made.command_name = call.command_name;
  return made;
}
template <typename... Args>
constexpr Row emulate(Call call, Args... args) {
  return row(call, Treat::emulate, args...);
}
template <typename... Args>
constexpr Row special(Call call, Special pair, Args... args) {
  return row(call, Treat::special, args...).with([=](Row& made) { made.special = pair; });
}
constexpr Row refuse(Call call, int16_t refusal, const char* why) {
  return row(call, Treat::refuse).with([=](Row& made) { made.refusal = refusal, made.why = why; });
}

constexpr bool valid(const Arg& arg, std::span<const Arg> args, int index) {
  const auto exists = [&](int i) { return i >= 0 && i < 6 && args[i].kind != ArgKind::none; };
  const Extent& extent = arg.extent;
  const bool pointed = arg.kind == ArgKind::in || arg.kind == ArgKind::out || arg.kind == ArgKind::in_out ||
                       arg.kind == ArgKind::watched;
  const bool counted = arg.kind == ArgKind::iovec_in || arg.kind == ArgKind::iovec_out ||
                       arg.kind == ArgKind::mmsghdr_in || arg.kind == ArgKind::mmsghdr_out;
  if (extent.divisor == 0 || extent.scale == 0) return false;
  if (extent.cap_arg >= 0 && !(exists(extent.cap_arg) && args[extent.cap_arg].kind == ArgKind::val)) return false;
  if (counted) return extent.kind == ExtentKind::fixed ? extent.value > 0 : exists(index + 1);
  if (!pointed) return extent.kind == ExtentKind::none;
  switch (extent.kind) {
    case ExtentKind::none:
      return false;
    case ExtentKind::fixed:
      return extent.value > 0;
    case ExtentKind::arg:
      return exists(extent.value) && args[extent.value].kind == ArgKind::val;
    case ExtentKind::result:
      return extent.cap_arg >= 0 && arg.kind == ArgKind::out;
    case ExtentKind::pointee_u32:
    case ExtentKind::option:
      return exists(extent.value) && args[extent.value].kind == ArgKind::in_out;
    case ExtentKind::length_of:
      return exists(extent.value) && args[extent.value].kind == ArgKind::out;
    case ExtentKind::self_u32:
      return true;
    case ExtentKind::c_string:
      return extent.value > 0;
    case ExtentKind::ioc_size:
      return extent.value == 1;
    case ExtentKind::semaphores:
      return exists(extent.value) && arg.kind == ArgKind::out;
  }
  return false;
}

constexpr bool valid(const SyscallRow& row) {
  bool ended = false;
  int payloads = 0;
  for (int i = 0; i < 6; ++i) {
    const Arg& arg = row.args[i];
    if (ended && arg.kind != ArgKind::none) return false;
    ended = ended || arg.kind == ArgKind::none;
    if (!valid(arg, row.args, i)) return false;
    payloads += arg.payload;
  }
  const auto is_fd = [&](int i) { return i >= 0 && i < 6 && row.args[i].kind == ArgKind::fd; };
  const bool sysv_queue = row.number == __NR_msgsnd || row.number == __NR_msgrcv;
  if ((row.traffic != Traffic::none) != (row.fd_arg >= 0) && !sysv_queue) return false;
  if (row.fd_arg >= 0 && !is_fd(row.fd_arg)) return false;
  // The other end of vmsplice is memory.
  if (row.source_fd_arg >= 0 && !(row.traffic == Traffic::transfer && is_fd(row.source_fd_arg))) return false;
  if ((row.traffic == Traffic::send || row.traffic == Traffic::receive) != (payloads == 1)) return false;
  const bool refused_in_part = std::ranges::any_of(row.args, [](const Arg& arg) {
    return arg.kind == ArgKind::ethtool || arg.kind == ArgKind::filesystem || arg.extent.kind == ExtentKind::option;
  });
  if ((row.treat == Treat::refuse || refused_in_part) != (row.refusal > 0)) return false;
  if (row.treat == Treat::refuse && (!row.why || row.args[0].kind != ArgKind::none)) return false;
  if ((row.treat == Treat::special) != (row.special != Special::none)) return false;
  if ((row.selector >= 0) != (row.unknown_command > 0)) return false;
  const bool names_file =
      row.changed_arg >= 0 && (is_fd(row.changed_arg) || row.args[row.changed_arg].kind == ArgKind::path);
  if ((row.file_change != FileChange::none) != names_file) return false;
  if (row.new_descriptor == NewDescriptor::copy && !is_fd(0)) return false;
  const bool served_special =
      row.memory != MemoryChange::none || row.special == Special::arch_prctl || row.special == Special::set_tid_address;
  const bool served_treatment = row.treat != Treat::special || served_special;
  if (row.in_process && (!served_treatment || row.selector >= 0 || row.fd_effect == FdEffect::closes_range)) {
    return false;
  }
  return row.selector < 6 && (row.command_name == nullptr || row.selector < 0);
}

constexpr bool less(const SyscallRow& a, const SyscallRow& b) {
  return a.number != b.number ? a.number < b.number : a.command < b.command;
}

template <size_t N>
constexpr std::array<SyscallRow, N> sorted(const Row (&rows)[N]) {
  std::array<SyscallRow, N> made{};
  std::copy(rows, rows + N, made.begin());
  std::sort(made.begin(), made.end(), less);
  return made;
}

// Whether every row is valid, and greater than the one before it.
constexpr bool valid_table(std::span<const SyscallRow> table) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (!valid(table[i]) || (i > 0 && !less(table[i - 1], table[i]))) return false;
  }
  return true;
}

}  // namespace redrive::rows

// The identity of a row, SYS(read), or of a sub-row, CMD(fcntl, F_GETLK). If the headers lack the constant, it is
// written as a number: NEW(451, cachestat), NEW_CMD(fcntl, 1027, F_DUPFD_QUERY).
#define SYS(name) \
  ::redrive::rows::Call { __NR_##name, #name }
#define NEW(number, name) \
  ::redrive::rows::Call { number, #name }
#define CMD(name, command) \
  ::redrive::rows::Call { __NR_##name, #name, static_cast<int64_t>(command), #command }
#define NEW_CMD(name, number, command) \
  ::redrive::rows::Call { __NR_##name, #name, number, #command }
