#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <map>

#include "interceptors/syscall_table.h"

namespace redrive {

namespace {

constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | ENOSYS;

// Allows these numbers, and lets the tracer see all others. The bit of a number is looked up in the mask of its word.
std::vector<sock_filter> allow(const std::vector<int>& numbers) {
  constexpr uint32_t kWord = 32;
  std::map<uint32_t, uint32_t> masks;  // by word
  for (const int number : numbers) masks[static_cast<uint32_t>(number) / kWord] |= 1u << number % kWord;
  std::vector<sock_filter> code{
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kWord - 1),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_LD | BPF_IMM, 1),
      BPF_STMT(BPF_ALU | BPF_LSH | BPF_X, 0),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 5),
  };
  for (const auto& [word, mask] : masks) {
    const sock_filter look[] = {
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, word, 0, 4),  BPF_STMT(BPF_MISC | BPF_TXA, 0),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, mask, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
    };
    code.insert(code.end(), std::begin(look), std::end(look));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
  return code;
}

}  // namespace

ExactCall fatal_call(bool whole_process) {
  constexpr uint64_t kMark = 0x6c61746166;  // in arguments that getpid(2) does not have
  return {__NR_getpid,
          {kMark, kMark, kMark, kMark, kMark, whole_process},
          whole_process ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_KILL_THREAD};
}

std::vector<sock_filter> seccomp_filter(std::span<const UntracedSite> untraced, uint64_t traced,
                                        std::span<const ExactCall> calls) {
  std::vector<sock_filter> filter{
      BPF_STMT(kLoad, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, kForeign),
  };
  const auto at = [&](uint64_t address, const std::vector<sock_filter>& answer) {
    constexpr uint32_t kAddress = offsetof(seccomp_data, instruction_pointer);
    const auto size = static_cast<uint32_t>(answer.size());
    const sock_filter test[] = {
        BPF_STMT(kLoad, kAddress),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address), 1, 0),
        BPF_STMT(BPF_JMP | BPF_JA, size + 3),
        BPF_STMT(kLoad, kAddress + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address >> 32), 1, 0),
        BPF_STMT(BPF_JMP | BPF_JA, size),
    };
    filter.insert(filter.end(), std::begin(test), std::end(test));
    filter.insert(filter.end(), answer.begin(), answer.end());
  };
  const sock_filter trace = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
  for (const auto& [address, numbers] : untraced) at(address, allow(numbers));
  if (traced) at(traced, {trace});
  for (const auto& call : calls) {
    std::vector<sock_filter> test;
    const auto compare = [&](size_t offset, uint64_t value) {
      test.push_back(BPF_STMT(kLoad, static_cast<uint32_t>(offset)));
      test.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(value), 0, 0));
    };
    compare(offsetof(seccomp_data, nr), static_cast<uint64_t>(call.number));
    for (size_t i = 0; i < call.args.size(); ++i) {
      if (!call.args[i]) continue;
      const size_t at = offsetof(seccomp_data, args) + i * sizeof(uint64_t);
      compare(at, *call.args[i]);
      compare(at + 4, *call.args[i] >> 32);
    }
    test.push_back(BPF_STMT(BPF_RET | BPF_K, call.answer));
    for (size_t i = 1; i < test.size(); i += 2) test[i].jf = static_cast<uint8_t>(test.size() - 1 - i);
    filter.insert(filter.end(), test.begin(), test.end());
  }
  const sock_filter rest[] = {
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, __X32_SYSCALL_BIT, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kForeign),
      trace,
  };
  filter.insert(filter.end(), std::begin(rest), std::end(rest));
  return filter;
}

}  // namespace redrive
