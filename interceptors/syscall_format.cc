// Names and text of calls and results, in the style of strace.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interceptors/syscall_table.h"

namespace redrive {
namespace {

using Args = std::span<const uint64_t, 6>;

constexpr size_t kShown = 32;  // bytes of a buffer, elements of an array
constexpr int64_t kLastErrno = 4095;
constexpr int64_t kFirstRestart = 512;  // <linux/errno.h>: programs never see these
constexpr std::string_view kRestarts[] = {"ERESTARTSYS", "ERESTARTNOINTR", "ERESTARTNOHAND", "ENOIOCTLCMD",
                                          "ERESTART_RESTARTBLOCK"};

std::string hex(uint64_t value) { return value ? fmt::format("{:#x}", value) : "0"; }

// Small numbers of either sign are decimal, the others (masks, addresses, sizes of address ranges) hexadecimal.
std::string number(uint64_t value) {
  const int64_t wide = static_cast<int64_t>(value);
  const int32_t narrow = static_cast<int32_t>(value);
  if (value >> 32 == 0 && narrow < 0 && narrow >= -kLastErrno) return fmt::format("{}", narrow);
  return wide >= -kLastErrno && wide < (1 << 20) ? fmt::format("{}", wide) : hex(value);
}

std::string pointer(uint64_t value) { return value ? hex(value) : "NULL"; }

std::string descriptor(uint64_t value) {
  const int fd = static_cast<int>(value);
  return fd == AT_FDCWD ? "AT_FDCWD" : fmt::format("{}", fd);
}

std::string quoted(std::string_view bytes, bool cut) {
  std::string text = "\"";
  for (const char c : bytes) {
    static constexpr std::string_view kPlain = "\n\t\r\"\\", kEscaped = "ntr\"\\";
    if (const size_t at = kPlain.find(c); at != std::string_view::npos) {
      text += {'\\', kEscaped[at]};
    } else if (c >= ' ' && c < 127) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text + (cut ? "\"..." : "\"");
}

std::string quoted_string(const Memory& memory, Address address, size_t limit) {
  char first;
  if (address == 0 || !memory.get(address, first)) return pointer(address);
  std::string text = memory.string(address, limit + 1);
  const bool cut = text.size() > limit;
  text.resize(std::min(text.size(), limit));
  return quoted(text, cut);
}

std::string quoted_buffer(const Memory& memory, Address address, uint64_t size) {
  std::string bytes(std::min<uint64_t>(size, kShown), '\0');
  if (address == 0 || !memory.read(address, bytes.data(), bytes.size())) return pointer(address);
  return quoted(bytes, size > kShown);
}

std::string quoted_array(const Memory& memory, Address address) {
  std::string text = "[";
  Address string = 0;
  for (size_t i = 0; memory.get(address + i * sizeof string, string) && string; ++i) {
    if (i > 0) text += ", ";
    if (i == kShown) return text + "...]";
    text += quoted_string(memory, string, kShown);
  }
  return text + "]";
}

std::string format_arg(const Arg& arg, Args args, int index, const Memory* memory) {
  const uint64_t value = args[index];
  if (arg.kind == ArgKind::val) return number(value);
  if (arg.kind == ArgKind::fd) return descriptor(value);
  if (!memory) return pointer(value);
  const bool string = arg.kind == ArgKind::in && arg.extent.kind == ExtentKind::c_string;
  if (arg.kind == ArgKind::path || arg.kind == ArgKind::filesystem || string)
    return quoted_string(*memory, value, kPageSize);
  if (arg.kind == ArgKind::string_array) return value ? quoted_array(*memory, value) : "NULL";
  if (arg.kind == ArgKind::in && arg.payload && arg.extent.header == 0) {
    return quoted_buffer(*memory, value, args[arg.extent.value]);
  }
  return pointer(value);
}

// The multiplexer's row; sub-rows are found by the arguments.
const SyscallRow* main_row(int64_t number) {
  const auto rows = all_rows();
  const auto at = std::ranges::lower_bound(rows, number, {}, &SyscallRow::number);
  return at != rows.end() && at->number == number ? &*at : nullptr;
}

std::string command_name(const SyscallRow& multiplexer, const SyscallRow* row, uint64_t value) {
  const uint32_t all = static_cast<uint32_t>(value);
  if (!row || !row->command_name) return all < 4096 ? fmt::format("{}", all) : hex(all);
  const uint32_t flags = all & ~multiplexer.selector_mask;
  return flags ? std::string(row->command_name) + "|" + hex(flags) : row->command_name;
}

}  // namespace

std::string_view error_name(int64_t err) {
  err = std::abs(err);
  if (err >= kFirstRestart && err < kFirstRestart + std::ssize(kRestarts)) return kRestarts[err - kFirstRestart];
  const char* name = err > 0 && err <= kLastErrno ? strerrorname_np(static_cast<int>(err)) : nullptr;
  return name ? name : "E?";
}

std::string call_name(int64_t number, Args args) {
  std::string name(syscall_name(number));
  const SyscallRow* multiplexer = main_row(number);
  if (!multiplexer || multiplexer->selector < 0) return name;
  const uint64_t command = args[multiplexer->selector] & multiplexer->selector_mask;
  return name + "(" + command_name(*multiplexer, find_row(number, args), command) + ")";
}

std::string format_call(int64_t number, Args args, const Memory* memory) {
  const SyscallRow* main = main_row(number);
  const SyscallRow* row = find_row(number, args);
  // A refused row has no arguments: all six are shown, and for a refused command those of its multiplexer.
  const SyscallRow* shape = row && row->treat != Treat::refuse ? row : main && main->selector >= 0 ? main : nullptr;
  std::string text = std::string(syscall_name(number)) + "(";
  for (int i = 0; i < 6; ++i) {
    if (shape && shape->args[i].kind == ArgKind::none) break;
    if (i > 0) text += ", ";
    if (main && main->selector == i) {
      text += command_name(*main, row, args[i]);
    } else {
      text += shape ? format_arg(shape->args[i], args, i, memory) : redrive::number(args[i]);
    }
  }
  return text + ")";
}

std::string format_result(int64_t result) {
  if (result >= 0) return result >> 32 ? hex(static_cast<uint64_t>(result)) : fmt::format("{}", result);
  if (result < -kLastErrno) return hex(static_cast<uint64_t>(result));
  const std::string name(error_name(result));
  if (result <= -kFirstRestart) return "? " + name;
  const char* meaning = strerrordesc_np(static_cast<int>(-result));
  return "-1 " + name + " (" + (meaning ? meaning : "unknown error") + ")";
}

}  // namespace redrive
