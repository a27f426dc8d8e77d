// period: 200us
// A call that a timer's handled signal interrupts again and again, and that the kernel enters again each time: a thread that must be
// stopped where it is may have left the kernel only to enter the call again.
#include "test.h"

#include <sys/time.h>
#include <time.h>

static volatile uint64_t computed;
static volatile sig_atomic_t handled;
static void handle(int signal) {
  (void)signal;
  computed = computed * 3 + 1;
  handled++;
}

int main(void) {
  int ends[2];
  MUST(pipe(ends));
  const pid_t child = MUST(fork());
  if (child == 0) {
    const struct timespec pause = {0, 600 * 1000 * 1000};
    CHECK(nanosleep(&pause, NULL) == 0);
    write_all(ends[1], "x", 1);
    _exit(0);
  }
  MUST(sigaction(SIGALRM, &(struct sigaction){.sa_handler = handle, .sa_flags = SA_RESTART}, NULL));
  MUST(setitimer(ITIMER_REAL, &(struct itimerval){{0, 200}, {0, 200}}, NULL));
  char byte;
  CHECK(read(ends[0], &byte, 1) == 1);
  MUST(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL));
  CHECK(handled > 0);
  wait_for_exit(child, 0);
  return ok("restarted");
}
