// Runs a real system call on this process's own memory and compares what the kernel changed with what the syscall table
// says.
//
// All memory of the call lies in an arena filled with a pattern. Each call is made twice with different patterns, so
// that a byte to which the kernel happens to write the pattern's value is noticed the other time. A changed byte
// outside the outputs() spans is a failure.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>

#include "base/fd.h"
#include "interceptors/syscall_table.h"
#include "tests/unit/unit_test.h"

namespace redrive {

using CallArgs = std::array<uint64_t, 6>;

class Arena {
 public:
  static constexpr size_t kSize = 64 * kPageSize;

  // The page after the arena is unmapped, so that accesses past the end are noticed.
  Arena() {
    void* all = mmap(nullptr, kSize + kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(all != MAP_FAILED);
    base_ = static_cast<uint8_t*>(all);
    REQUIRE(mprotect(base_, kSize, PROT_READ | PROT_WRITE) == 0);
  }
  ~Arena() { munmap(base_, kSize + kPageSize); }
  Arena(const Arena&) = delete;

  void fill(uint8_t pattern) {
    std::memset(base_, pattern, kSize);
    used_ = 0;
  }
  // Patterned memory, with patterned memory on both sides.
  uint8_t* bytes(size_t size) {
    used_ = (used_ + 64 + 15) / 16 * 16;
    REQUIRE(used_ + size + 64 <= kSize);
    uint8_t* made = base_ + used_;
    used_ += size;
    return made;
  }
  template <typename T>
  T* put(const T& value) {
    return static_cast<T*>(std::memcpy(bytes(sizeof value), &value, sizeof value));
  }
  char* text(std::string_view text) {
    char* made = static_cast<char*>(std::memcpy(bytes(text.size() + 1), text.data(), text.size()));
    made[text.size()] = 0;
    return made;
  }
  const uint8_t* begin() const { return base_; }
  bool contains(const Span& span) const {
    const Address base = reinterpret_cast<Address>(base_);
    return span.address >= base && span.length <= kSize && span.address + span.length <= base + kSize;
  }

 private:
  uint8_t* base_ = nullptr;
  size_t used_ = 0;
};

template <typename T>
uint64_t word(T value) {
  if constexpr (std::is_null_pointer_v<T>) {
    return 0;
  } else if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}
template <typename... T>
CallArgs call_args(T... values) {
  return {word(values)...};
}

struct SyscallProbe {
  CallArgs args{};
  int64_t result = 0;
  std::vector<Span> in, out;
  std::vector<uint64_t> datagrams;

  uint64_t bytes_out(bool payload) const {
    uint64_t sum = 0;
    for (const Span& span : out) sum += span.payload == payload ? span.length : 0;
    return sum;
  }
  uint64_t bytes_in(bool payload) const {
    uint64_t sum = 0;
    for (const Span& span : in) sum += span.payload == payload ? span.length : 0;
    return sum;
  }
  bool writes(uint64_t address, uint64_t length) const {
    for (const Span& span : out) {
      if (span.address == address && span.length == length) return true;
    }
    return false;
  }
};

// The position of the byte, relative to the argument below it.
inline std::string place(const SyscallProbe& probe, const uint8_t* byte) {
  int nearest = -1;
  for (int i = 0; i < 6; ++i) {
    if (probe.args[i] <= word(byte) && (nearest < 0 || probe.args[i] > probe.args[nearest])) nearest = i;
  }
  return "argument " + std::to_string(nearest) + " + " +
         std::to_string(word(byte) - probe.args[nearest < 0 ? 0 : nearest]);
}

inline int64_t raw_syscall(int64_t number, const CallArgs& a) {
  const long result = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  return result == -1 ? -errno : result;
}

// `set_up` puts the call's memory into the arena and prepares whatever else the kernel needs; it runs once for each
// pattern.
inline SyscallProbe probe(int64_t number, const std::function<CallArgs(Arena&)>& set_up) {
  static Arena arena;
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  SyscallProbe probe;
  for (const uint8_t pattern : {0xa5, 0x5a}) {
    arena.fill(pattern);
    probe.args = set_up(arena);
    const SyscallRow* row = find_row(number, probe.args);
    REQUIRE_MESSAGE(row, format_call(number, probe.args));
    REQUIRE(row->treat != Treat::refuse);
    const std::vector<uint8_t> before(arena.begin(), arena.begin() + Arena::kSize);
    probe.in = inputs(*row, probe.args, *memory);
    const EntrySizes entry = entry_sizes(*row, probe.args, *memory);
    probe.result = raw_syscall(number, probe.args);
    probe.out = outputs(*row, probe.args, entry, probe.result, *memory);
    probe.datagrams = datagram_lengths(*row, probe.args, probe.result, *memory);

    INFO(format_call(number, probe.args), " = ", format_result(probe.result));
    std::vector<bool> covered(Arena::kSize);
    for (const Span& span : probe.in) CHECK(arena.contains(span));
    for (const Span& span : probe.out) {
      REQUIRE(arena.contains(span));
      const size_t first = span.address - reinterpret_cast<Address>(arena.begin());
      std::fill_n(covered.begin() + static_cast<ssize_t>(first), span.length, true);
    }
    for (size_t i = 0; i < Arena::kSize; ++i) {
      if (arena.begin()[i] == before[i] || covered[i]) continue;
      FAIL_CHECK("the kernel changed a byte that no span covers, at ", place(probe, arena.begin() + i));
      break;
    }
  }
  return probe;
}

// ---- What several tests set up

inline constexpr std::string_view kText = "the quick brown fox jumps over the lazy dog";

struct Pair {
  Fd a, b;
};
inline Pair make_pipe() {
  int fds[2];
  REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}
inline Pair make_sockets(int type) {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}
// A pipe that holds `text`.
inline Pair full_pipe(std::string_view text = kText) {
  Pair pipe = make_pipe();
  REQUIRE(write(pipe.b.get(), text.data(), text.size()) == std::ssize(text));
  return pipe;
}
// Arguments, one of which, at place `at`, is `size` bytes of memory.
inline SyscallProbe with_buffer(int64_t number, CallArgs args, int at, size_t size) {
  return probe(number, [=](Arena& arena) {
    CallArgs made = args;
    made[at] = word(arena.bytes(size));
    return made;
  });
}

inline std::vector<iovec> scatter(Arena& arena, std::initializer_list<size_t> sizes) {
  std::vector<iovec> vectors;
  for (const size_t size : sizes) vectors.push_back({size ? arena.bytes(size) : nullptr, size});
  return vectors;
}
inline iovec* put_iovecs(Arena& arena, const std::vector<iovec>& vectors) {
  return reinterpret_cast<iovec*>(
      std::memcpy(arena.bytes(vectors.size() * sizeof(iovec)), vectors.data(), vectors.size() * sizeof(iovec)));
}

}  // namespace redrive
