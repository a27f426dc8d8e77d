// Handlers interrupted by handlers; sa_mask and SA_NODEFER and SA_RESETHAND as documented.
#include "test.h"

static volatile sig_atomic_t depth, deepest, order[8], steps;
static void note(int what) { order[steps++] = what; }

static void inner(int signal) {
  (void)signal;
  if (++depth > deepest) deepest = depth;
  note(2);
  pass_checkpoints();
  depth--;
}
static void outer(int signal) {
  (void)signal;
  if (++depth > deepest) deepest = depth;
  note(1);
  MUST(kill(getpid(), SIGUSR2));
  note(3);
  depth--;
}
static volatile sig_atomic_t recursion;
static void recurse(int signal) {
  if (++recursion < 10) MUST(kill(getpid(), signal));
}

int main(void) {
  struct sigaction action = {.sa_handler = outer};
  MUST(sigaction(SIGUSR1, &action, NULL));
  MUST(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = inner}, NULL));
  MUST(kill(getpid(), SIGUSR1));
  CHECK(deepest == 2 && steps == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3);

  steps = deepest = 0;  // with SIGUSR2 in the mask the inner one comes after
  sigaddset(&action.sa_mask, SIGUSR2);
  MUST(sigaction(SIGUSR1, &action, NULL));
  MUST(kill(getpid(), SIGUSR1));
  CHECK(deepest == 1 && steps == 3 && order[0] == 1 && order[1] == 3 && order[2] == 2);

  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = recurse, .sa_flags = SA_NODEFER}, NULL));
  MUST(kill(getpid(), SIGUSR1));
  CHECK(recursion == 10);

  struct sigaction after;
  MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = recurse, .sa_flags = (int)SA_RESETHAND}, NULL));
  MUST(kill(getpid(), SIGUSR1));
  MUST(sigaction(SIGUSR1, NULL, &after));
  CHECK(recursion == 11 && after.sa_handler == SIG_DFL);
  return ok("nested");
}
