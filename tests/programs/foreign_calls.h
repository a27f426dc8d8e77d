// Calls without arguments that the C library does not make: by the instruction of 64-bit programs with any number, and by int $0x80.
#pragma once

static long call(long number) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
  return result;
}

static int old_call(int number) {
  int result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number) : "memory");
  return result;
}
