// exit: 143
// A program that a signal ends: its result line is out before.
#include "test.h"

int main(void) {
  pass_checkpoints();
  (void)ok("about to end");
  MUST(kill(getpid(), SIGTERM));
  for (;;) pause();
}
