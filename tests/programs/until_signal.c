// args: 300
// Communicates with a child and reads random bytes every millisecond for N ms of CPU time, or until a signal ends it (0): for tests that
// interrupt, kill or fill up a recording. Prints a line once it has started.
#include "test.h"

#include <sys/random.h>
#include <time.h>

int main(int argc, char** argv) {
  const double limit_s = argc > 1 ? atoi(argv[1]) * 1e-3 : 0;
  int there[2], back[2];
  uint64_t value = 0;
  char noise[4000];
  MUST(pipe(there));
  MUST(pipe(back));
  const pid_t child = MUST(fork());
  if (child == 0) {
    MUST(close(there[1]));
    while (read(there[0], &value, sizeof value) == sizeof value) {
      value = compute(value, 5);
      write_all(back[1], &value, sizeof value);
    }
    _exit(0);
  }
  struct timespec cpu = {0, 0};
  for (int i = 0; limit_s == 0 || (double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9 < limit_s; i++) {
    if (i == 100) printf("under way\n"), fflush(stdout);
    write_all(there[1], &value, sizeof value);
    read_all(back[0], &value, sizeof value);
    CHECK(getrandom(noise, sizeof noise, 0) == sizeof noise);  // input that cannot be compressed
    (void)compute(value, 5);
    MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu));
  }
  MUST(close(there[1]));
  wait_for_exit(child, 0);
  return ok("stopped by itself");
}
