// exit: 143
// A program that a signal ends; it has printed its result line before.
#include "test.h"

int main(void) {
  pass_checkpoints();
  (void)ok("about to end");
  MUST(kill(getpid(), SIGTERM));
  for (;;) pause();
}
