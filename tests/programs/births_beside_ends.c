// Processes that share memory with their parent. While the parent makes new ones, others are killed, or are in an execve during which
// they have lost the baton.
#include "test.h"

#include <sys/mman.h>

enum { kChildren = 120, kAtOnce = 6 };

static pid_t children[kAtOnce];

// Every third one was to be killed, most of them before they have computed.
static void end(int number) {
  int status;
  CHECK(MUST(waitpid(children[number % kAtOnce], &status, 0)) == children[number % kAtOnce]);
  CHECK(number % 3 == 0 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
  int number = 0;
  for (; number < kChildren; number++) {
    if (number >= kAtOnce) {
      const int oldest = number - kAtOnce;
      if (oldest % 3 == 0) MUST(kill(children[oldest % kAtOnce], SIGKILL));
      // Births at the same time as that end.
      const pid_t other = MUST(fork());
      if (other == 0) _exit(3);
      wait_for_exit(other, 3);
      end(oldest);
    }
    const pid_t child = children[number % kAtOnce] = MUST(fork());
    if (child == 0) {
      if (number % 3 == 0) pause();
      compute(1, 60);
      execl("/bin/true", "true", NULL);
      _exit(4);
    }
  }
  for (int oldest = kChildren - kAtOnce; oldest < kChildren; oldest++) {
    if (oldest % 3 == 0) MUST(kill(children[oldest % kAtOnce], SIGKILL));
    end(oldest);
  }
  return ok("%d children", number);
}
