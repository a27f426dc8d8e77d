// exit: 134
// abort() with a handler that returns: it ends the program anyway.
#include "test.h"

#include <sys/resource.h>

static void handler(int signal) {
  (void)signal;
  write_all(STDOUT_FILENO, "ok in the handler\n", 18);
}

int main(void) {
  MUST(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
  MUST(sigaction(SIGABRT, &(struct sigaction){.sa_handler = handler}, NULL));
  abort();
}
