// A case of a switch that begins right after a syscall instruction: a jump through a table leads there, and nothing may
// be put over the first bytes of the case.
#include "test.h"

__attribute__((noinline)) static long step(int kind, long value) {
  switch (kind) {
    case 0:
      __asm__ volatile("syscall" : "+a"(value)::"rcx", "r11", "memory");  // fall through
    case 1:
      __asm__ volatile("add $1, %0" : "+a"(value));  // fall through
    case 2:
      __asm__ volatile("add $2, %0" : "+a"(value));
      break;
    case 3:
      __asm__ volatile("add $3, %0" : "+a"(value));
      break;
    case 4:
      __asm__ volatile("sub $3, %0" : "+a"(value));
      break;
    case 5:
      __asm__ volatile("neg %0" : "+a"(value));
      break;
    case 6:
      __asm__ volatile("not %0" : "+a"(value));
      break;
    case 7:
      __asm__ volatile("shl $1, %0" : "+a"(value));
      break;
  }
  return value;
}

int main(void) {
  const long own = getpid();
  for (int i = 0; i < 400; i++) {
    CHECK(step(0, SYS_getpid) == own + 3);
    CHECK(step(1, 5) == 8);
    CHECK(step(2, 5) == 7);
    CHECK(step(3 + i % 5, 0) <= 3);
  }
  return ok("400 calls");
}
