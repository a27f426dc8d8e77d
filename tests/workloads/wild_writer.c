// Writes where the recorder keeps what it shares with programs (interceptors/inprocess/layout.h), in ways that a stray pointer could.
// usage: wild_writer head|records
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kSlot = 0x6f020000, kHead = 152, kRing = 0x6f025000 };

int main(int argc, char** argv) {
  long sum = 0;
  for (int i = 0; i < 50; i++) sum += syscall(SYS_getppid);
  if (argc > 1 && strcmp(argv[1], "head") == 0) {
    *(volatile uint64_t*)(uintptr_t)(kSlot + kHead) = UINT64_MAX / 3;
  } else {
    memset((void*)(uintptr_t)kRing, 0xff, 65536);
  }
  for (int i = 0; i < 50; i++) sum += syscall(SYS_getppid);
  printf("ok %d\n", sum != 0);
  return 0;
}
