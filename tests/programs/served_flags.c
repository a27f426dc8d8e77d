// What a system call must preserve when it is served without a stop: every arithmetic flag and the direction flag, all registers except
// rax, rcx and r11, and payloads of each length, up to their last byte.
#include "test.h"

#include <fcntl.h>

enum { kCarry = 1, kParity = 4, kAdjust = 0x10, kZero = 0x40, kSign = 0x80, kDirection = 0x400, kOverflow = 0x800 };

// The flags after a call that was made with these flags.
static uint64_t flags_behind(uint64_t flags) {
  uint64_t behind, number = SYS_getppid;
  __asm__ volatile(
      "sub $128, %%rsp\n"
      "push %[flags]\n"
      "popfq\n"
      "syscall\n"
      "nop\nnop\nnop\nnop\n"
      "pushfq\n"
      "pop %[behind]\n"
      "cld\n"
      "add $128, %%rsp\n"
      : [behind] "=r"(behind), "+a"(number)
      : [flags] "r"(flags)
      : "rcx", "r11", "memory", "cc");
  return behind;
}

static void flags(void) {
  static const uint64_t each[] = {kCarry, kParity, kAdjust, kZero, kSign, kDirection, kOverflow};
  for (int round = 0; round < 20; round++) {
    for (unsigned set = 0; set < 128; set++) {
      uint64_t wanted = 0x202;
      for (int i = 0; i < 7; i++) wanted |= set >> i & 1 ? each[i] : 0;
      CHECK(flags_behind(wanted) == wanted);
    }
  }
}

static void registers(void) {
  for (uint64_t i = 1; i < 500; i++) {
    uint64_t before[12], after[12], result;
    for (int k = 0; k < 12; k++) before[k] = i * 0x9e3779b97f4a7c15u + (uint64_t)k;
    __asm__ volatile(
        "sub $128, %%rsp\n"
        "push %%rbx\npush %%rbp\n"
        "mov %[before], %%rax\n"
        "push %[after]\n"
        "mov 0(%%rax), %%rbx\nmov 8(%%rax), %%rbp\nmov 16(%%rax), %%rdi\nmov 24(%%rax), %%rsi\n"
        "mov 32(%%rax), %%rdx\nmov 40(%%rax), %%r8\nmov 48(%%rax), %%r9\nmov 56(%%rax), %%r10\n"
        "mov 64(%%rax), %%r12\nmov 72(%%rax), %%r13\nmov 80(%%rax), %%r14\nmov 88(%%rax), %%r15\n"
        "mov $110, %%eax\n"  // getppid
        "syscall\n"
        "nop\nnop\nnop\n"
        "mov (%%rsp), %%rcx\n"
        "mov %%rbx, 0(%%rcx)\nmov %%rbp, 8(%%rcx)\nmov %%rdi, 16(%%rcx)\nmov %%rsi, 24(%%rcx)\n"
        "mov %%rdx, 32(%%rcx)\nmov %%r8, 40(%%rcx)\nmov %%r9, 48(%%rcx)\nmov %%r10, 56(%%rcx)\n"
        "mov %%r12, 64(%%rcx)\nmov %%r13, 72(%%rcx)\nmov %%r14, 80(%%rcx)\nmov %%r15, 88(%%rcx)\n"
        "pop %%rcx\npop %%rbp\npop %%rbx\n"
        "add $128, %%rsp\n"
        : "=&a"(result)
        : [before] "r"(before), [after] "r"(after)
        : "rcx", "r11", "rdi", "rsi", "rdx", "r8", "r9", "r10", "r12", "r13", "r14", "r15", "memory", "cc");
    CHECK((pid_t)result == getppid());
    CHECK(memcmp(before, after, sizeof before) == 0);
  }
}

// The bytes around a payload belong to other data.
static void lengths(void) {
  int ends[2];
  MUST(pipe(ends));
  static uint8_t out[4400], in[4400];
  for (size_t i = 0; i < sizeof out; i++) out[i] = (uint8_t)(i * 7 + i / 251);
  for (size_t length = 1; length < 4096; length += length < 600 ? 1 : 97) {
    const size_t at = length % 13;
    memset(in, 0xee, sizeof in);
    CHECK(write(ends[1], out + at, length) == (ssize_t)length);
    CHECK(read(ends[0], in + 8 - length % 8, length) == (ssize_t)length);
    CHECK(memcmp(in + 8 - length % 8, out + at, length) == 0);
    CHECK(in[7 - length % 8] == 0xee && in[8 - length % 8 + length] == 0xee);
    NOTE(in);
  }
}

int main(void) {
  flags();
  registers();
  lengths();
  return ok("%016lx", noted);
}
