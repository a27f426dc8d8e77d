// Makes calls by int $0x80, with numbers of x32, and with bits in the register that the kernel does not look at, again and again, until it is
// ended; and says so.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../programs/foreign_calls.h"

int main(void) {
  for (long i = 0;; i++) {
    const int pid = old_call(20);
    if (pid != getpid() && pid != -ENOSYS) abort();
    if (call(0x40000000L + SYS_getpid) != -ENOSYS || call(0x100000000L + SYS_getpid) != getpid()) abort();
    printf("%ld\n", i);
    fflush(stdout);
    usleep(5000);
  }
}
