// Counts the signals that it gets, and prints each. Ends with status 3 when a file `end` appears in its directory.
// usage: count_signals [unhandled | until-input | dispositions]
//   unhandled      handles none
//   until-input    ends when something can be read from standard input instead
//   dispositions   prints which signals are ignored and which are blocked, and ends
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kSignals = 65 };

static void print_dispositions(void) {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  printf("ignored:");
  for (int signal = 1; signal < kSignals; signal++) {
    struct sigaction action;
    if (sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN) printf(" %d", signal);
  }
  printf("\nblocked:");
  for (int signal = 1; signal < kSignals; signal++) {
    if (sigismember(&blocked, signal) == 1) printf(" %d", signal);
  }
  printf("\n");
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  if (strcmp(how, "dispositions") == 0) {
    print_dispositions();
    return 0;
  }
  // Signals are taken one at a time, while this waits for them.
  sigset_t all;
  sigfillset(&all);
  if (strcmp(how, "unhandled") != 0) sigprocmask(SIG_BLOCK, &all, NULL);
  setvbuf(stdout, NULL, _IONBF, 0);
  printf("ready\n");
  int counts[kSignals] = {0};
  for (;;) {
    const struct timespec time = {0, 20000000};
    const int signal = strcmp(how, "unhandled") == 0 ? (nanosleep(&time, NULL), 0) : sigtimedwait(&all, NULL, &time);
    if (signal > 0) printf("%d: %d\n", signal, ++counts[signal]);
    struct pollfd input = {0, POLLIN, 0};
    if (strcmp(how, "until-input") == 0 ? poll(&input, 1, 0) == 1 : access("end", F_OK) == 0) return 3;
  }
}
