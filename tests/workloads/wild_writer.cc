// Writes where the recorder keeps what it shares with programs (interceptors/inprocess/layout.h), in ways that a stray pointer could.
// usage: wild_writer head|records
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interceptors/inprocess/layout.h"

using namespace redrive::gate;

int main(int argc, char** argv) {
  long sum = 0;
  for (int i = 0; i < 50; i++) sum += syscall(SYS_getppid);
  if (argc > 1 && strcmp(argv[1], "head") == 0) {
    *reinterpret_cast<volatile uint64_t*>(kSlot + offsetof(Slot, head)) = UINT64_MAX / 3;
  } else {
    memset(reinterpret_cast<void*>(kRing), 0xff, 65536);
  }
  for (int i = 0; i < 50; i++) sum += syscall(SYS_getppid);
  printf("ok %d\n", sum != 0);
  return 0;
}
