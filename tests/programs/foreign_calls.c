// Calls of other kinds than those of 64-bit programs: by int $0x80, with numbers of x32, and with bits in the register that the kernel does
// not look at. A recording refuses the first, as kernels do that have no 32-bit programs.
#include "foreign_calls.h"

#include "test.h"

int main(void) {
  for (int i = 0; i < 100; i++) {
    const int pid = old_call(20);
    CHECK(pid == getpid() || pid == -ENOSYS);
    CHECK(call(0x40000000L + SYS_getpid) == -ENOSYS);
    CHECK(call(0x100000000L + SYS_getpid) == getpid());
    CHECK(call(-1) == -ENOSYS);
    if (i % 10 == 0) usleep(100);
  }
  pass_checkpoints();
  return ok("none was taken for another");
}
