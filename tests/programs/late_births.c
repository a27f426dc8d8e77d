// Processes of one unit are born while others wait for the baton, at the end of a long stretch without any call.
#include "test.h"

#include <sys/mman.h>

int main(void) {
  volatile int* born = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(born != MAP_FAILED);
  pid_t children[4];
  for (int i = 0; i < 4; i++) {
    (void)compute(1, 150);
    children[i] = MUST(fork());
    if (children[i] == 0) {
      __sync_fetch_and_add(born, 1);
      _exit(i);
    }
  }
  for (int i = 0; i < 4; i++) wait_for_exit(children[i], i);
  CHECK(*born == 4);
  return ok("4 born");
}
