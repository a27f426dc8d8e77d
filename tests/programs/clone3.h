// clone3(2) without a library.
#pragma once

#include <linux/sched.h>
#include <sys/syscall.h>

// A thread or process without a library: on a stack of its own, it runs `body` and ends.
static long clone3_and_run(struct clone_args* arguments, void (*body)(void)) {
  long result = SYS_clone3;
  __asm__ volatile(
      "syscall\n"
      "test %%rax, %%rax\n"
      "jnz 1f\n"
      "call *%[body]\n"
      "mov %[exit], %%eax\n"
      "xor %%edi, %%edi\n"
      "syscall\n"
      "1:"
      : "+a"(result)
      : "D"(arguments), "S"(sizeof *arguments), [body] "r"(body), [exit] "i"(SYS_exit)
      : "rcx", "r11", "memory");
  return result;
}
