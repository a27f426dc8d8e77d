// The memory of a call's arguments, as the code inside tracees sees it.
#pragma once

#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "interceptors/inprocess/layout.h"
#include "interceptors/socket_options.h"

namespace redrive::gate {

inline constexpr uint64_t kMaxVector = 64;  // elements of an array; a call with more of them stops
inline constexpr uint64_t kMaxName = sizeof(sockaddr_storage);
inline constexpr uint64_t kTooLong = kRingSize + 1;

// The offset of a call's argument in Registers, where all six are adjacent.
inline constexpr uint64_t argument_place(int index) {
  return offsetof(Registers, rdi) + static_cast<uint64_t>(index) * sizeof(uint64_t);
}
static_assert(argument_place(1) == offsetof(Registers, rsi) && argument_place(2) == offsetof(Registers, rdx) &&
              argument_place(3) == offsetof(Registers, r10) && argument_place(4) == offsetof(Registers, r8) &&
              argument_place(5) == offsetof(Registers, r9));
inline uint64_t argument(const Registers& regs, int index) {
  uint64_t value;
  __builtin_memcpy(&value, reinterpret_cast<const uint8_t*>(&regs) + argument_place(index), sizeof value);
  return value;
}
inline void set_argument(Registers& regs, int index, uint64_t value) {
  __builtin_memcpy(reinterpret_cast<uint8_t*>(&regs) + argument_place(index), &value, sizeof value);
}

template <typename T>
const T& at(uint64_t address) {
  return *reinterpret_cast<const T*>(address);
}

inline uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

// The call's entry in the table; null if it is not served.
inline const Call* call_of(const Registers& regs) {
  if (regs.rax >= kCalls) return nullptr;
  const auto& table = at<Table>(kTable);
  const Call* call = &table.calls[regs.rax];
  if (call->selector != kNoArg) {
    const uint32_t command = static_cast<uint32_t>(argument(regs, call->selector)) & call->selector_mask;
    uint32_t first = call->first_command, end = first + call->commands;
    while (first < end) {
      const uint32_t middle = (first + end) / 2;
      if (table.command_numbers[middle] < command) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    if (first == call->first_command + call->commands || table.command_numbers[first] != command) return nullptr;
    call = &table.commands[first];
  }
  return call->serve == Serve::never ? nullptr : call;
}

inline uint64_t string_length(uint64_t address, uint64_t most) {
  const auto* text = reinterpret_cast<const char*>(address);
  uint64_t length = 0;
  while (length < most && text[length]) ++length;
  return length < most ? length + 1 : length;
}

// The number of elements in the span's array.
inline uint64_t count(const Span& span, const Registers& regs) {
  return span.value ? span.value : argument(regs, span.other);
}

// How many bytes one counts for in the length of a pointee or option.
inline uint64_t unit(const Span& span, const Registers& regs) {
  return span.extent == Extent::option ? option_unit(argument(regs, 1), argument(regs, 2)) : 1;
}

// How much the call may read or write at the span itself, according to its arguments.
inline uint64_t capacity(const Span& span, const Registers& regs) {
  const uint64_t other = argument(regs, span.other);
  switch (span.extent) {
    case Extent::fixed:
      return span.value;
    case Extent::arg:
      if (other > kRingSize * 8) return kTooLong;
      return (other + span.divisor - 1) / span.divisor * span.value;
    case Extent::result:
      return other > kRingSize ? kTooLong : other * span.value;
    case Extent::option:
      if (option_writes_elsewhere(argument(regs, 1), argument(regs, 2))) return kTooLong;
      [[fallthrough]];
    case Extent::pointee:
      return other ? at<uint32_t>(other) * unit(span, regs) : 0;
    case Extent::length_of:
      return other ? sizeof(uint32_t) : 0;
    case Extent::string:
      return string_length(argument(regs, span.arg), span.value);
    case Extent::vector:
      return count(span, regs) > kMaxVector ? kTooLong : count(span, regs) * sizeof(iovec);
    case Extent::message:
      return sizeof(msghdr);
    case Extent::messages:
      return count(span, regs) > kMaxVector ? kTooLong : count(span, regs) * sizeof(mmsghdr);
  }
  return kTooLong;
}

// Memory that a message header points to, as the kernel found it.
inline uint64_t name_length(const msghdr& message) {
  return message.msg_name ? smaller(message.msg_namelen, kMaxName) : 0;
}
inline uint64_t control_length(const msghdr& message) { return message.msg_control ? message.msg_controllen : 0; }

// Visits the memory of a span of `length` bytes and the memory that it points to. Calls `reads(address, length,
// payload)` for what the kernel reads, in the order of inputs() (syscall_table.h), and `writes(address, length)` for
// what it may write in memory that is pointed to. They return whether to continue. False if they do not, or if there is
// too much.
template <typename Reads, typename Writes>
bool visit_memory(const Span& span, const Registers& regs, uint64_t length, const Reads& reads, const Writes& writes) {
  const uint64_t address = argument(regs, span.arg);
  const auto buffers = [&](const iovec* vector, uint64_t elements) {
    for (uint64_t i = 0; i < elements; ++i) {
      const auto buffer = reinterpret_cast<uint64_t>(vector[i].iov_base);
      if (!buffer) continue;
      if (!(span.sent ? reads(buffer, vector[i].iov_len, span.payload) : writes(buffer, vector[i].iov_len)))
        return false;
    }
    return true;
  };
  const auto message = [&](const msghdr& header) {
    const auto name = reinterpret_cast<uint64_t>(header.msg_name),
               control = reinterpret_cast<uint64_t>(header.msg_control);
    const auto vector = reinterpret_cast<uint64_t>(header.msg_iov);
    if (header.msg_iovlen > kMaxVector || !reads(reinterpret_cast<uint64_t>(&header), sizeof header, false))
      return false;
    if (name && !(span.sent ? reads(name, name_length(header), false) : writes(name, name_length(header))))
      return false;
    if (vector &&
        !(reads(vector, header.msg_iovlen * sizeof(iovec), false) && buffers(header.msg_iov, header.msg_iovlen))) {
      return false;
    }
    return !control ||
           (span.sent ? reads(control, control_length(header), false) : writes(control, control_length(header)));
  };
  if (length > kRingSize) return false;
  switch (span.extent) {
    case Extent::vector:
      return reads(address, length, false) && buffers(&at<iovec>(address), count(span, regs));
    case Extent::message:
      return message(at<msghdr>(address));
    case Extent::messages:
      for (uint64_t i = 0; i < count(span, regs); ++i) {
        if (!message((&at<mmsghdr>(address))[i].msg_hdr)) return false;
      }
      return true;
    default:
      return !span.before || reads(address, length, span.payload);
  }
}

// visit(address, length, payload) for each piece of memory that the kernel reads at the call's entry, in order.
template <typename Visit>
void for_each_input(const Call& call, const Registers& regs, const Visit& visit) {
  const auto reads = [&](uint64_t address, uint64_t length, bool payload) {
    if (length) visit(address, length, payload);
    return true;
  };
  for (int i = 0; i < call.spans; ++i) {
    const Span& span = call.span[i];
    if (!argument(regs, span.arg)) continue;
    visit_memory(span, regs, capacity(span, regs), reads, [](uint64_t, uint64_t) { return true; });
  }
}

}  // namespace redrive::gate
