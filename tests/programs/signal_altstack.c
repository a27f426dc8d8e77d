// A handler on an alternate stack, which survives checkpoints and can be queried.
#include "test.h"

static char stack[65536];
static volatile sig_atomic_t calls;

static void handler(int signal) {
  char here;
  stack_t current;
  CHECK(signal == SIGUSR1 && &here >= stack && &here < stack + sizeof stack);
  MUST(sigaltstack(NULL, &current));
  CHECK(current.ss_flags & SS_ONSTACK);
  if (++calls == 2) pass_checkpoints();  // checkpoints inside the handler
}

int main(void) {
  stack_t wanted = {.ss_sp = stack, .ss_size = sizeof stack}, found;
  MUST(sigaltstack(&wanted, NULL));
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  MUST(sigaction(SIGUSR1, &action, NULL));
  CHECK(raise(SIGUSR1) == 0 && calls == 1);
  pass_checkpoints();
  MUST(sigaltstack(NULL, &found));
  CHECK(found.ss_sp == stack && found.ss_size == sizeof stack && found.ss_flags == 0);
  CHECK(raise(SIGUSR1) == 0 && calls == 2);
  return ok("%d calls", (int)calls);
}
