// Children that share memory with their parent, which continues for long before they first run: checkpoints find them at their birth.
// images: 2
#include "test.h"

#include <sys/mman.h>
#include <time.h>

int main(void) {
  long* const shared = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const clock_t end = clock() + CLOCKS_PER_SEC / 2;
  long children = 0;
  while (clock() < end) {
    const pid_t child = MUST(fork());
    if (child == 0) {
      if (getppid() > 1) shared[0]++;
      _exit(7);
    }
    for (int i = 0; i < 2000; i++) shared[1] += getppid() > 0;
    int status;
    CHECK(MUST(waitpid(child, &status, 0)) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    children++;
  }
  CHECK(shared[0] == children && shared[1] == 2000 * children);
  return ok("all children ran");
}
