// The syscall table's own properties: completeness, lookup, names and text, the filter, and robustness against wild
// arguments.
#include "interceptors/syscall_table.h"

#include <asm/unistd.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <random>
#include <set>

#include "interceptors/gate_calls.h"
#include "tests/unit/run_filter.h"
#include "tests/unit/syscall_probe.h"

namespace redrive::syscall_table_test {
namespace {

std::vector<int> numbers_in_gate() {
  const auto table = std::make_unique<gate::Table>();
  fill_gate_table(*table);
  return gate_numbers(*table);
}

TEST_CASE("every syscall has one row, and the gap has none") {
  CHECK(all_rows().size() == 335 + 46);
  for (int64_t number = -2; number < 600; ++number) {
    CAPTURE(number);
    const bool exists = (number >= 0 && number <= 334) || (number >= 424 && number <= 469);
    if (exists) CHECK(syscall_name(number) != "syscall_" + std::to_string(number));
    if (!exists) CHECK(find_row(number, CallArgs{}) == nullptr);
    if (!exists) CHECK(refusal_without_row(number) == ENOSYS);
  }
  std::set<std::string_view> names;
  for (const SyscallRow& row : all_rows()) CHECK(names.insert(row.name).second);
}

TEST_CASE("commands are found by their multiplexer's selector") {
  for (const SyscallRow* command : all_commands()) {
    CallArgs args{};
    const SyscallRow* multiplexer = nullptr;
    for (const SyscallRow& row : all_rows()) {
      if (row.number == command->number) multiplexer = &row;
    }
    REQUIRE(multiplexer);
    REQUIRE(multiplexer->selector >= 0);
    // The upper half of the register does not matter.
    args[multiplexer->selector] = static_cast<uint64_t>(command->command) | 0xabcdull << 32;
    CHECK(find_row(command->number, args) == command);
  }
  const SyscallRow* wait =
      find_row(__NR_futex, call_args(0, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME));
  REQUIRE(wait);
  CHECK(wait->command == FUTEX_WAIT_BITSET);
}

TEST_CASE("unknown commands are answered as the multiplexer does") {
  CHECK(find_row(__NR_fcntl, call_args(0, 12345)) == nullptr);
  CHECK(refusal_without_row(__NR_fcntl) == EINVAL);
  CHECK(refusal_without_row(__NR_ioctl) == ENOTTY);
  CHECK(refusal_without_row(__NR_futex) == ENOSYS);
}

// Memory of which one page is missing.
class Pages {
 public:
  Pages(size_t count, size_t missing) : count_(count) {
    void* const made = mmap(nullptr, count * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(made != MAP_FAILED);
    base_ = static_cast<uint8_t*>(made);
    REQUIRE(munmap(at(missing * kPageSize), kPageSize) == 0);
  }
  ~Pages() { munmap(base_, count_ * kPageSize); }
  Pages(const Pages&) = delete;

  uint8_t* at(size_t offset) const { return base_ + offset; }

 private:
  size_t count_;
  uint8_t* base_ = nullptr;
};

TEST_CASE("ioctl requests that are not listed are read by their encoding, and what they write is found by comparison") {
  struct Block {
    char bytes[24];
  };
  const SyscallRow* row = find_row(__NR_ioctl, call_args(3, _IOWR('Z', 1, Block)));
  REQUIRE(row);
  CHECK(row->treat == Treat::emulate);
  CHECK(row->why != nullptr);
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  Pages pages(2, 1);  // not on the stack, which changes all the time
  Block& block = *reinterpret_cast<Block*>(pages.at(0));
  const CallArgs args = call_args(3, _IOWR('Z', 1, Block), &block);
  CHECK(inputs(*row, args, *memory) == std::vector<Span>{{word(&block), 24, false}});
  const CallArgs only_written = call_args(3, _IOR('Z', 1, Block), &block);
  CHECK(find_row(__NR_ioctl, only_written) == row);
  CHECK(inputs(*row, only_written, *memory).empty());
  const EntrySizes entry = entry_sizes(*row, args, *memory);
  CHECK(outputs(*row, args, entry, 0, *memory).empty());
  block.bytes[3] = 1;
  for (const int64_t result : {0, -EINVAL, -EFAULT}) {
    CHECK(outputs(*row, args, entry, result, *memory) == std::vector<Span>{{word(&block) + 3, 1, false}});
  }
  for (const uint64_t type : {0x03, 0x12, 0x22, 'K' + 0, 'L' + 0, 'S' + 0, 'T' + 0, 'V' + 0, 0x89, 0x94}) {
    CAPTURE(type);
    CHECK(find_row(__NR_ioctl, call_args(3, _IOC(_IOC_NONE, type, 0xee, 0))) == row);
    CHECK(find_row(__NR_ioctl, call_args(3, _IOR(type, 0xee, Block))) == row);
  }
  CHECK(find_row(__NR_ioctl, call_args(3, _IO('Z', 1))) == nullptr);
  CHECK(find_row(__NR_ioctl, call_args(3, 0xae80 /* KVM_RUN */)) == nullptr);
}

TEST_CASE(
    "what an ioctl changes behind pointers in its structure is found, however it is cut by memory that is not there") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  Pages pages(40, 20);
  auto* const structure = reinterpret_cast<uint64_t*>(pages.at(38 * kPageSize));
  const uint64_t words[] = {7, 1, word(pages.at(19 * kPageSize)), word(pages.at(18 * kPageSize)),
                            word(pages.at(30 * kPageSize))};
  std::ranges::copy(words, structure);
  const auto changes = [&](uint64_t request, std::initializer_list<size_t> places) {
    const CallArgs args = call_args(3, request, structure);
    const SyscallRow& row = *find_row(__NR_ioctl, args);
    const EntrySizes entry = entry_sizes(row, args, *memory);
    for (const size_t place : places) ++*pages.at(place);
    std::vector<Span> found = outputs(row, args, entry, 0, *memory);
    for (Span& span : found) span.address -= word(pages.at(0));
    for (const Span& window : possible_outputs(args, entry)) CHECK(window.length > 0);
    return found;
  };
  const size_t last = 20 * kPageSize - 1, other = 30 * kPageSize;
  const uint64_t request = _IOC(_IOC_WRITE, 'Z', 1, sizeof words);
  // Those that are close together become one, and nothing is found twice.
  CHECK(changes(request, {last, other, other + 20, other + 100}) ==
        std::vector<Span>{{last, 1, false}, {other, 21, false}, {other + 100, 1, false}});
  CHECK(changes(_IO('V', 0xee), {last, other + 9}) == std::vector<Span>{{last, 1, false}, {other + 9, 1, false}});
  // A pointer that the structure does not hold any more.
  CHECK(changes(_IOC(_IOC_WRITE, 'Z', 1, sizeof words - 8), {other}).empty());
  // Only so much behind each.
  CHECK(changes(request, {18 * kPageSize - 1}).empty());
}

TEST_CASE("file systems that a process serves are not mounted") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto mounted = [&](const char* type) {
    const CallArgs old = call_args("none", "/mnt", type, 0, 0), now = call_args(type, 0);
    const bool described = is_described(*find_row(__NR_mount, old), old, *memory);
    CHECK(described == is_described(*find_row(__NR_fsopen, now), now, *memory));
    return described;
  };
  for (const char* type : {"fuse", "fuseblk", "fuse.sshfs", "fuseblk.ntfs"}) CHECK_FALSE(mounted(type));
  for (const char* type : {"ext4", "", "fusectl", "virtiofs"}) CHECK(mounted(type));
  CHECK(mounted(nullptr));
  CHECK(find_row(__NR_fanotify_init, call_args(4))->refusal == EINVAL);
  CHECK(find_row(__NR_fanotify_init, call_args(8))->refusal == EINVAL);
  CHECK(find_row(__NR_fanotify_init, call_args(3))->treat == Treat::emulate);
}

TEST_CASE("options of sockets that write where pointers lead are not recorded") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const auto described = [&](int level, int name) {
    const CallArgs args = call_args(3, level, name, 0, 0);
    return is_described(*find_row(__NR_getsockopt, args), args, *memory);
  };
  CHECK_FALSE(described(6, 35));  // IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE
  CHECK(described(1, 35));
  CHECK(described(6, 34));
}

TEST_CASE("names of calls and errors") {
  CHECK(syscall_name(0) == "read");
  CHECK(syscall_name(469) == "file_setattr");
  CHECK(syscall_name(999) == "syscall_999");
  const scmp_version& version = *seccomp_version();
  const bool knows = std::pair(version.major, version.minor) >= std::pair(2u, 6u);
  CHECK(syscall_name(335) == (knows ? "uretprobe" : "syscall_335"));
  CHECK(call_name(335, CallArgs{}) == syscall_name(335));
  CHECK(format_call(335, CallArgs{}) == std::string(syscall_name(335)) + "(0, 0, 0, 0, 0, 0)");
  CHECK(syscall_name(-1) == "syscall_-1");
  for (const int other : {__PNR_riscv_flush_icache, __PNR_ugetrlimit}) {
    CHECK(syscall_name(other) == "syscall_" + std::to_string(other));
  }
  CHECK(syscall_name(1ll << 32) == "syscall_4294967296");
  CHECK(call_name(__NR_read, CallArgs{}) == "read");
  CHECK(call_name(__NR_fcntl, call_args(3, F_GETLK)) == "fcntl(F_GETLK)");
  CHECK(call_name(__NR_ioctl, call_args(3, TCGETS)) == "ioctl(TCGETS)");
  CHECK(call_name(__NR_ioctl, call_args(3, 0xdeadbeef)) == "ioctl(0xdeadbeef)");
  CHECK(call_name(__NR_futex, call_args(0, FUTEX_WAKE | FUTEX_PRIVATE_FLAG)) == "futex(FUTEX_WAKE)");
  CHECK(error_name(ENOSYS) == "ENOSYS");
  CHECK(error_name(-ENOSYS) == "ENOSYS");
  CHECK(error_name(-516) == "ERESTART_RESTARTBLOCK");
  CHECK(error_name(0) == "E?");
  CHECK(error_name(4000) == "E?");
  // Every number below the last errno, except the two that Linux leaves out.
  for (int err = 1; err <= EHWPOISON; ++err) CHECK((error_name(err) == "E?") == (err == 41 || err == 58));
}

TEST_CASE("calls and results as text") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  CHECK(format_call(__NR_read, call_args(3, 0x7ffe1000, 64)) == "read(3, 0x7ffe1000, 64)");
  CHECK(format_call(__NR_close, call_args(-1)) == "close(-1)");
  CHECK(format_call(__NR_openat, call_args(0xffffff9c, "/etc/passwd", O_RDONLY), &*memory) ==
        "openat(AT_FDCWD, \"/etc/passwd\", 0, 0)");
  CHECK(format_call(__NR_write,
                    call_args(1,
                              "a\n\x01"
                              "b",
                              4),
                    &*memory) == "write(1, \"a\\n\\x01b\", 4)");
  const std::string longer(100, 'x');
  CHECK(format_call(__NR_write, call_args(1, longer.c_str(), 100), &*memory) ==
        "write(1, \"" + longer.substr(0, 32) + "\"..., 100)");
  const char* argv[] = {"ls", "-l", nullptr};
  CHECK(format_call(__NR_execve, call_args("/bin/ls", argv, nullptr), &*memory) ==
        "execve(\"/bin/ls\", [\"ls\", \"-l\"], NULL)");
  CHECK(format_call(__NR_open, call_args(nullptr), &*memory) == "open(NULL, 0, 0)");
  CHECK(format_call(__NR_fcntl, call_args(3, F_SETFD, 1)) == "fcntl(3, F_SETFD, 1)");
  CHECK(format_call(__NR_getpid, CallArgs{}) == "getpid()");
  CHECK(format_call(999, call_args(1)) == "syscall_999(1, 0, 0, 0, 0, 0)");
  CHECK(format_result(64) == "64");
  CHECK(format_result(-EAGAIN) == "-1 EAGAIN (Resource temporarily unavailable)");
  CHECK(format_result(-512) == "? ERESTARTSYS");
  CHECK(format_result(0x7f0000001000) == "0x7f0000001000");
  CHECK(format_result(-4000) == "? E?");
}

TEST_CASE("a message queue call names no descriptor") {
  CHECK(find_row(__NR_msgrcv, CallArgs{})->fd_arg == -1);
  CHECK(find_row(__NR_splice, CallArgs{})->fd_arg == 2);
  CHECK(find_row(__NR_splice, CallArgs{})->source_fd_arg == 0);
}

// Arguments as from a fuzzer or a broken program: pointers to nothing, senseless lengths.
uint64_t wild(std::mt19937_64& random, const uint8_t* page) {
  switch (random() % 7) {
    case 0:
      return 0;
    case 1:
      return random();
    case 2:
      return random() % 64;
    case 3:
      return word(page) + random() % kPageSize;
    case 4:
      return word(page) + kPageSize - random() % 16;
    case 5:
      return ~0ull - random() % 16;
    default:
      return 1ull << random() % 64;
  }
}

TEST_CASE("no arguments make the interpreter fail") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  auto* page =
      static_cast<uint8_t*>(mmap(nullptr, 2 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(munmap(page + kPageSize, kPageSize) == 0);
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<const SyscallRow*> rows = all_commands();
  for (const SyscallRow& row : all_rows()) rows.push_back(&row);
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < kPageSize / 8; ++i) reinterpret_cast<uint64_t*>(page)[i] = wild(random, page);
    for (const SyscallRow* row : rows) {
      CallArgs args;
      for (uint64_t& arg : args) arg = wild(random, page);
      const EntrySizes entry = entry_sizes(*row, args, *memory);
      std::vector<Span> spans = inputs(*row, args, *memory);
      for (const int64_t result : {int64_t{-EINTR}, int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
        const auto out = outputs(*row, args, entry, result, *memory);
        spans.insert(spans.end(), out.begin(), out.end());
        datagram_lengths(*row, args, result, *memory);
      }
      for (const Span& span : spans) {
        CHECK(span.address != 0);
        CHECK(span.length > 0);
        CHECK(span.length <= kMaxSpan);
      }
      format_call(row->number, args, &*memory);
    }
  }
  munmap(page, kPageSize);
}

TEST_CASE("a length above one span comes as several") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  const CallArgs args = call_args(0, 0x10000, 3ull << 30);
  const SyscallRow* row = find_row(__NR_read, args);
  const auto out = outputs(*row, args, entry_sizes(*row, args, *memory), (1ll << 30) + 5, *memory);
  CHECK(out == std::vector<Span>{{0x10000, kMaxSpan, true}, {0x10000 + kMaxSpan, 5, true}});
}

TEST_CASE("a read that has read whole blocks has written the rest of its buffers too") {
  auto memory = Memory::open(getpid());
  REQUIRE(memory);
  std::vector<uint8_t> buffer(8192);
  const auto address = reinterpret_cast<uint64_t>(buffer.data());
  const CallArgs args = call_args(0, address, buffer.size());
  const SyscallRow* row = find_row(__NR_read, args);
  REQUIRE(row->reads_blocks);
  std::vector<Span> out;
  outputs(*row, args, entry_sizes(*row, args, *memory), 5000, *memory, out, true);
  CHECK(out == std::vector<Span>{{address, 8192, false}});
  outputs(*row, args, entry_sizes(*row, args, *memory), 5000, *memory, out);
  CHECK(out == std::vector<Span>{{address, 5000, true}});
}

TEST_CASE("the filter traces this architecture and refuses others") {
  const auto filter = seccomp_filter().value();
  CHECK(run_filter(filter, AUDIT_ARCH_X86_64, 0) == SECCOMP_RET_TRACE);
  CHECK(run_filter(filter, AUDIT_ARCH_X86_64, 999) == SECCOMP_RET_TRACE);
  CHECK(run_filter(filter, AUDIT_ARCH_X86_64, 0x40000000) == (SECCOMP_RET_ERRNO | ENOSYS));
  CHECK(run_filter(filter, AUDIT_ARCH_I386, 1) == (SECCOMP_RET_ERRNO | ENOSYS));
}

constexpr uint64_t kUntraced = 0x6f000100, kAlsoUntraced = 0x6f000180, kTraced = 0x6f000200;

TEST_CASE("the filter tells the syscall instructions of the code inside tracees from others") {
  const UntracedSite sites[] = {{kUntraced, {0, 31, 32, 300}}, {kAlsoUntraced, {9}}};
  const auto filter = seccomp_filter(sites, kTraced).value();
  const auto at = [&](uint64_t ip, uint32_t number) { return run_filter(filter, AUDIT_ARCH_X86_64, number, ip); };
  CHECK(at(kUntraced, 0) == SECCOMP_RET_ALLOW);
  for (const uint32_t number : {31, 32, 300}) CHECK(at(kUntraced, number) == SECCOMP_RET_ALLOW);
  for (const uint32_t number : {1, 9, 33, 63, 64, 301, 332, 0x10000}) CHECK(at(kUntraced, number) == SECCOMP_RET_TRACE);
  CHECK(at(kAlsoUntraced, 9) == SECCOMP_RET_ALLOW);
  CHECK(at(kAlsoUntraced, 0) == SECCOMP_RET_TRACE);
  CHECK(at(kUntraced + (1ull << 32), 0) == SECCOMP_RET_TRACE);
  CHECK(at(kUntraced + 2, 0) == SECCOMP_RET_TRACE);
  // The register of the number contains a result.
  CHECK(at(kTraced, 0xfffffff2) == SECCOMP_RET_TRACE);
  CHECK(at(0x401000, 0xfffffff2) == (SECCOMP_RET_ERRNO | ENOSYS));
  CHECK(run_filter(filter, AUDIT_ARCH_I386, 1, kUntraced) == (SECCOMP_RET_ERRNO | ENOSYS));
}

TEST_CASE("the filter lets calls through that are exactly those it was told") {
  const ExactCall call{SYS_open, {std::nullopt, 7, std::nullopt, 1ull << 32, std::nullopt, std::nullopt}};
  const auto filter = seccomp_filter({}, 0, std::span(&call, 1)).value();
  const auto answer = [&](uint32_t number, std::array<uint64_t, 6> args) {
    return run_filter(filter, AUDIT_ARCH_X86_64, number, 0x401000, args);
  };
  CHECK(answer(SYS_open, {1, 7, 3, 1ull << 32, 5, 6}) == SECCOMP_RET_ALLOW);
  CHECK(answer(SYS_open, {1, 7, 3, 0, 5, 6}) == SECCOMP_RET_TRACE);
  CHECK(answer(SYS_open, {1, 7, 3, 1, 5, 6}) == SECCOMP_RET_TRACE);
  CHECK(answer(SYS_open, {1, 8, 3, 1ull << 32, 5, 6}) == SECCOMP_RET_TRACE);
  CHECK(answer(SYS_openat, {1, 7, 3, 1ull << 32, 5, 6}) == SECCOMP_RET_TRACE);
}

// What the filter must answer, in the words of its declaration.
struct FilterModel {
  std::vector<UntracedSite> untraced;
  std::vector<ExactCall> calls;

  uint32_t answer(uint32_t arch, uint32_t number, uint64_t ip, const CallArgs& args) const {
    constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | ENOSYS;
    if (arch != AUDIT_ARCH_X86_64) return kForeign;
    if (ip == kTraced) return SECCOMP_RET_TRACE;
    for (const auto& [address, numbers] : untraced) {
      if (ip != address) continue;
      if (number >= __X32_SYSCALL_BIT && number != ~0u) return kForeign;
      const bool allowed = std::ranges::count(numbers, static_cast<int>(number)) > 0;
      return allowed ? SECCOMP_RET_ALLOW : SECCOMP_RET_TRACE;
    }
    if (number & __X32_SYSCALL_BIT) return kForeign;
    for (const ExactCall& call : calls) {
      bool same = static_cast<uint32_t>(call.number) == number;
      for (size_t i = 0; i < args.size(); ++i) same = same && call.args[i].value_or(args[i]) == args[i];
      if (same) return call.answer;
    }
    return SECCOMP_RET_TRACE;
  }
};

TEST_CASE("the filter answers as declared: all numbers, at all addresses, with arguments that nearly match") {
  constexpr std::nullopt_t any = std::nullopt;
  constexpr uint64_t kSecret = 0xfedcba9876543210;
  const FilterModel model{{{kUntraced, numbers_in_gate()}, {kAlsoUntraced, {SYS_mmap, SYS_close, SYS_brk}}},
                          {fatal_call(true),
                           fatal_call(false),
                           {SYS_open, {any, 0x80000, any, kSecret, kSecret, kSecret}},
                           {SYS_open, {any, 0x80002, any, kSecret, kSecret, kSecret}},
                           {SYS_mmap, {0x6f000000, 0x20000, 5, kSecret & ~0xffu, any, 0}}}};
  const auto filter = seccomp_filter(model.untraced, kTraced, model.calls).value();
  std::vector<uint32_t> numbers{1u << 16, 1u << 31, ~0u, static_cast<uint32_t>(-EFAULT)};
  for (uint32_t number = 0; number < 600; ++number) {
    numbers.insert(numbers.end(), {number, number | __X32_SYSCALL_BIT});
  }
  std::vector<CallArgs> arguments{{}};
  for (const ExactCall& call : model.calls) {
    CallArgs args{};
    for (size_t i = 0; i < args.size(); ++i) args[i] = call.args[i].value_or(0x1234);
    arguments.push_back(args);
    for (size_t i = 0; i < args.size(); ++i) {
      for (const int bit : {0, 31, 32, 63}) {
        arguments.push_back(args);
        arguments.back()[i] ^= 1ull << bit;
      }
    }
  }
  constexpr uint64_t kPlaces[] = {kUntraced,         kUntraced - 2, kUntraced + (1ull << 32), kAlsoUntraced,
                                  kAlsoUntraced + 2, kTraced,       kTraced + (1ull << 63),   0x401000};
  for (const uint64_t ip : kPlaces) {
    for (const uint32_t number : numbers) {
      const auto wrong = [&](const CallArgs& args, uint32_t arch = AUDIT_ARCH_X86_64) {
        return run_filter(filter, arch, number, ip, args) != model.answer(arch, number, ip, args);
      };
      CAPTURE(ip);
      CAPTURE(number);
      CHECK(std::ranges::count_if(arguments, [&](const CallArgs& args) { return wrong(args); }) == 0);
      CHECK_FALSE(wrong({}, AUDIT_ARCH_I386));
    }
  }
}

TEST_CASE("the filter lets calls of the code inside tracees through within a few instructions") {
  const auto numbers = numbers_in_gate();
  const UntracedSite sites[] = {{kUntraced, numbers}};
  const auto filter = seccomp_filter(sites, kTraced).value();
  for (const int number : numbers) {
    CAPTURE(number);
    size_t steps = 0;
    CHECK(run_filter(filter, AUDIT_ARCH_X86_64, static_cast<uint32_t>(number), kUntraced, {}, &steps) ==
          SECCOMP_RET_ALLOW);
    CHECK(steps <= 22);
  }
}

TEST_CASE("the kernel accepts the filter") {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGILL, SIG_DFL);  // doctest's handler makes system calls
    auto filter = seccomp_filter().value();
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    // Nothing can be called afterwards, not even _exit: an illegal instruction shows that the filter was installed.
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) __builtin_trap();
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGILL);
}

}  // namespace
}  // namespace redrive::syscall_table_test
