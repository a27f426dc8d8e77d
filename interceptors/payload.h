// The bytes that a system call reads from its caller's memory, in the form that record and replay both use.
#pragma once

#include <sys/socket.h>
#include <xxhash.h>

#include <algorithm>

#include "interceptors/syscall_table.h"

namespace redrive {

// A send of more bytes is not held: who receives it keeps what it receives, as input.
inline constexpr uint64_t kLongestPayload = uint64_t{16} << 20;

// One hash of all the memory that a call reads. Unreadable spans count as empty. `scratch` is buffer space to reuse.
inline uint64_t hash_spans(const std::vector<Span>& spans, const Memory& memory, Bytes& scratch) {
  if (spans.empty()) return 0;
  if (const uint8_t* whole = spans.size() == 1 ? memory.view(spans[0].address, spans[0].length) : nullptr) {
    return XXH3_64bits(whole, spans[0].length);
  }
  scratch.clear();
  for (const auto& span : spans) memory.append_some(span.address, span.length, scratch);
  return XXH3_64bits(scratch.data(), scratch.size());
}

// The payload of a send, in order.
inline Bytes read_payload(const std::vector<Span>& inputs, const Memory& memory) {
  Bytes payload;
  for (const auto& span : inputs) {
    if (span.payload) memory.append_some(span.address, span.length, payload);
  }
  return payload;
}

// Whether the call is sendmmsg(2), whose result is a number of datagrams.
inline bool sends_datagrams(const SyscallRow& row) {
  return std::any_of(row.args.begin(), row.args.end(), [](const Arg& arg) { return arg.kind == ArgKind::mmsghdr_in; });
}

// The lengths of the datagrams that a send makes. There is one, except for sendmmsg(2).
inline std::vector<uint64_t> send_lengths(const SyscallRow& row, std::span<const uint64_t, 6> args,
                                          const Memory& memory, uint64_t payload) {
  if (!sends_datagrams(row)) return {payload};
  std::vector<uint64_t> lengths;
  uint64_t left = payload;
  const uint64_t count = std::min<uint64_t>(args[2], 1024);  // UIO_MAXIOV
  for (uint64_t i = 0; i < count; ++i) {
    mmsghdr header{};
    if (!memory.get(args[1] + i * sizeof header, header)) break;
    uint64_t length = 0;
    for (uint64_t k = 0; k < header.msg_hdr.msg_iovlen; ++k) {
      iovec vector{};
      if (!memory.get(reinterpret_cast<Address>(header.msg_hdr.msg_iov + k), vector)) break;
      length += vector.iov_len;
    }
    lengths.push_back(std::min(length, left));
    left -= lengths.back();
  }
  return lengths;
}

}  // namespace redrive
